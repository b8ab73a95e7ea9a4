"""What stands behind both faces of a producer: one buffer, and the threads that empty it."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import Mapping
from threading import RLock
from typing import Any, cast
from weakref import WeakValueDictionary

import orjson

from producers.buffer import Buffer
from producers.chain import Chain
from producers.clock import monotonic_s
from producers.contract.commands import Auth
from producers.contract.envelope import encode
from producers.errors import CommandRejected, LeaseLost
from producers.handle import Numbering, Receipt, Sent
from producers.hold import Keeper
from producers.names import new_producer_id
from producers.receipts import Inquiry, OnReceipt, Receipts
from producers.report import Closed, Flushed, Status
from producers.sender import Sender
from producers.settings import ProducerSettings
from producers.spiller import Spiller
from producers.spool import Spool
from producers.tracing import traceparent
from producers.validation import encode_body

logger = logging.getLogger("statewriter.producer")

JOIN_S_MAX = 0.5
"""How long a close waits for a thread that is in the middle of something."""


class Outbox:
    """Takes commands at once and sends them from threads of its own."""

    def __init__(
        self, producer_id: str, settings: ProducerSettings, on_rejected: OnReceipt | None
    ) -> None:
        self.settings = settings
        self._on_rejected = on_rejected
        self._chains: WeakValueDictionary[str, Chain] = WeakValueDictionary()
        self._buffer = Buffer(
            producer_id,
            bytes_max=settings.buffer_bytes_max,
            when_full=settings.when_full,
            block_timeout_ms=settings.block_timeout_ms,
        )
        self._begin(producer_id)
        _open.add(self)
        if self._spool is not None and self._spool.has_leftovers():
            # What an earlier process left need not wait until this one has something to say.
            self.start()

    def _begin(self, producer_id: str) -> None:
        settings = self.settings
        self._spool = (
            Spool(
                settings.spool_folder / settings.destination,
                producer_id,
                bytes_max=settings.spool_bytes_max,
                fsync=settings.spool_fsync,
                adopts=settings.spool_folder if settings.spool_adopts == "all" else None,
            )
            if settings.when_full == "spool"
            else None
        )
        self._buffer.reset(producer_id, self._spool)
        self._sender: Sender | None = None
        self._spiller: Spiller | None = None
        self._receipts = Receipts(
            self._buffer, settings, self._partitions, self._on_rejected, self._make_good
        )
        self._busy: set[Chain] = set()
        self.keeper = Keeper(self._receipts)
        self._start_lock = RLock()
        self._told_drop = False

    @property
    def buffer(self) -> Buffer:
        """What waits."""
        return self._buffer

    def publish(  # noqa: PLR0913  # a command and how it is sent
        self,
        run: str,
        kind: str,
        body: Mapping[str, Any] | bytes,
        auth: Auth | None = None,
        *,
        numbering: Numbering | None = None,
        ask: bool = False,
        wait: bool = True,
        trace: str | None = None,
    ) -> tuple[Sent, bytes]:
        """Say a command; returns its handle and the JSON text of its body.

        A text was judged already. Without `wait` it does not wait for room. The trace is the
        current span unless one is given.
        """
        text = body if isinstance(body, bytes) else encode_body(kind, body)
        ask = ask or self._receipts.always
        # The buffer puts in the sequence, under its lock. A fragment is copied, not parsed again.
        body_text = cast("Mapping[str, Any]", orjson.Fragment(text))
        fields = encode(
            kind, body_text, producer="", seq=0, auth=auth, trace=trace or traceparent()
        )
        if ask:
            fields[b"reply"] = self._receipts.reply
        if self._sender is None and not self._buffer.closed:
            self.start()
        sent = self._buffer.put(run, kind, fields, numbering, wait=wait)
        if ask:
            self._receipts.expect(sent)
        if sent.dropped and not self._told_drop:
            self._told_drop = True
            logger.warning(
                "action=command_dropped producer=%s run=%s kind=%s: the buffer is full; the count "
                "is in status() and close()",
                sent.producer,
                run,
                kind,
            )
        return sent, text

    def chain(self, run: str) -> Chain:
        """The states of a run: one chain, whoever says them."""
        with self._start_lock:
            chain = self._chains.get(run)
            if chain is None:
                chain = self._chains[run] = Chain(run, self, self.settings.delta_bytes_min)
            return chain

    def keep(self, chain: Chain, busy: bool) -> None:
        """Keep the chain alive while it is busy, whoever else forgets it."""
        (self._busy.add if busy else self._busy.discard)(chain)

    def _make_good(self, receipt: Receipt) -> bool:
        """Whether a refusal is none, since what was refused is said again."""
        chain = self._chains.get(receipt.run)
        try:
            return chain is not None and chain.answer(receipt)
        except Exception:
            logger.exception("action=state_unsent run=%s", receipt.run)
            return False

    def start(self) -> None:
        """Start the threads, if they do not run."""
        with self._start_lock:
            if self._sender is not None or self._buffer.closed:
                return
            _close_in_pool_worker()
            sender = Sender(self._buffer, self.settings, self._spool)
            sender.start()
            if self._spool is not None:
                self._spiller = Spiller(self._buffer, self._spool, self.settings.spool_after_ms)
                self._spiller.start()
            self._sender = sender

    def inquire(self, sent: Sent, timeout_s: float) -> Inquiry:
        """Begin to wait for a receipt."""
        return Inquiry(
            sent, self._receipts, self._buffer, self.settings.receipt_timeout_ms, timeout_s
        )

    def await_confirmed(self, sent: Sent) -> None:
        """Wait as a call with `confirm` does: not at all where calls never wait."""
        if self._buffer.may_block:
            self.confirm(sent, self.settings.confirm_timeout_ms / 1_000)

    def confirm(self, sent: Sent, timeout_s: float) -> Receipt:
        """Wait until the writer has applied it. Raises CommandRejected or NotConfirmed."""
        inquiry = self.inquire(sent, timeout_s)
        while wait_s := inquiry.look():
            self._buffer.await_movement(inquiry.ready, wait_s)
        return judged(sent)

    def flush(self, timeout_s: float) -> Flushed:
        """Wait until Redis has accepted all that was said before this call."""
        return self.flushed(self._buffer.flush(timeout_s))

    def flushed(self, waiting: int) -> Flushed:
        """How a flush ended."""
        return Flushed(self._buffer.levels.accepted, waiting, self._error())

    def close(self, timeout_s: float) -> Closed:
        """Take no more, send what waits, put on disk what can not be sent, and say what became."""
        deadline = monotonic_s() + timeout_s
        first = not self._buffer.closed
        self._buffer.close()
        undelivered = 0
        if self._sender is not None:
            undelivered = self._buffer.flush(timeout_s, or_spooled=self._spool is not None)
        return self.end(first, undelivered, deadline)

    def end(self, first: bool, undelivered: int, deadline: float) -> Closed:
        """What `close` does after the flush."""
        self._buffer.stop()
        self.keeper.stop()
        self._receipts.close()
        _open.discard(self)
        for thread in (self._sender, self._spiller):
            if thread is not None:
                thread.join(min(JOIN_S_MAX, max(0.0, deadline - monotonic_s())))
        if self._spool is not None and self._spiller is not None:
            undelivered = self._spiller.spill_rest()
            self._spool.close()
        levels = self._buffer.levels
        closed = Closed(levels.accepted, undelivered, levels.spooled, levels.dropped, self._error())
        if first and (closed.undelivered or closed.dropped or closed.spooled):
            logger.warning(
                "action=closed_%s producer=%s accepted=%d undelivered=%d spooled=%d dropped=%d "
                "error=%s",
                "undelivered" if closed.undelivered or closed.dropped else "spooled",
                self._buffer.producer_id,
                *closed,
            )
        return closed

    def status(self) -> Status:
        """How it stands now. Never waits."""
        levels = self._buffer.levels
        sender = self._sender
        return Status(
            producer_id=self._buffer.producer_id,
            redis=None if sender is None else sender.link.server,
            connected=sender is not None and sender.link.connected,
            partitions=self._partitions(),
            accepted=levels.accepted,
            waiting=levels.waiting,
            waiting_bytes=levels.waiting_bytes,
            spooled=levels.spooled,
            dropped=levels.dropped,
            closed=self._buffer.closed,
            error=self._error(),
        )

    def begin_in_child(self) -> None:
        """After a fork, in the child: begin anew. What waits is the parent's to send."""
        if self._spool is not None:
            self._spool.forget()
        self._begin(new_producer_id())
        for chain in list(self._chains.values()):
            chain.begin()

    def _partitions(self) -> int | None:
        return self.settings.partitions if self._sender is None else self._sender.link.partitions

    def _error(self) -> str | None:
        trouble = None if self._sender is None else self._sender.trouble
        return None if trouble is None else trouble.text


def judged(sent: Sent) -> Receipt:
    """The receipt of a command that was answered. Raises CommandRejected if it was refused."""
    receipt = sent.latest.receipt
    assert receipt is not None
    if receipt.outcome == "rejected":
        raise (LeaseLost if (receipt.reason or "").startswith("lease_") else CommandRejected)(
            receipt
        )
    return receipt


_open: set[Outbox] = set()
"""Those that nobody closed yet: kept alive so that the interpreter's exit can."""
_pool_worker: int | None = None


def _close_at_exit() -> None:
    started_s = monotonic_s()
    for outbox in list(_open):
        # All together, not one after the other, get the time.
        left_s = outbox.settings.exit_timeout_ms / 1_000 - (monotonic_s() - started_s)
        outbox.close(max(0.0, left_s))


def _close_in_pool_worker() -> None:
    """A process that multiprocessing made ends without `atexit`, but calls its own finalizers."""
    global _pool_worker  # noqa: PLW0603
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None or _pool_worker == os.getpid():
        return
    _pool_worker = os.getpid()
    from multiprocessing.util import Finalize

    Finalize(None, _close_at_exit, exitpriority=100)


def _begin_in_child() -> None:
    for outbox in list(_open):
        outbox.begin_in_child()


atexit.register(_close_at_exit)
os.register_at_fork(after_in_child=_begin_in_child)
