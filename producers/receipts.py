"""What the writer answers: read by a thread of its own, from the reply streams of this producer."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from threading import Condition, RLock, Thread
from typing import NamedTuple
from weakref import WeakValueDictionary

from producers.buffer import Buffer
from producers.clock import monotonic_s
from producers.contract.keys import Keys
from producers.errors import BufferFull, MetaMismatch, NotConfirmed, ProducerClosed
from producers.handle import Numbering, Receipt, Sent
from producers.link import NotReady, Wire, ask, describe, open_wire
from producers.settings import ProducerSettings

logger = logging.getLogger("statewriter.producer")

BLOCK_MS = 500
RETRY_S = 0.25
RECENT_MAX = 1_000
READ_MAX = 1_000

OnReceipt = Callable[[Receipt], None]


class Name(NamedTuple):
    """What a receipt and a handle are matched by."""

    run: str
    producer: str
    seq: int


class Receipts:
    """Gives receipts to the handles that wait for them, and refusals to whoever listens.

    It reads from the first question on, and connects again as often as it takes. `make_good` sees
    each receipt first; a refusal of which it says yes is none.
    """

    def __init__(
        self,
        buffer: Buffer,
        settings: ProducerSettings,
        partitions: Callable[[], int | None],
        on_rejected: OnReceipt | None,
        make_good: Callable[[Receipt], bool],
    ) -> None:
        self._buffer = buffer
        self._settings = settings
        self._keys = Keys(settings.prefix)
        self._partitions = partitions
        self._on_rejected = on_rejected
        self._make_good = make_good
        # Reentrant, as the buffer's.
        self._lock = RLock()
        self._ended = Condition(self._lock)
        self._closed = False
        self._handles: WeakValueDictionary[Name, Sent] = WeakValueDictionary()
        # Receipts may come before the caller had its handle.
        self._recent: OrderedDict[Name, Receipt] = OrderedDict()
        self._watchers: dict[str, list[OnReceipt]] = {}
        self._cursors: dict[str, str] = {}
        self._thread: Thread | None = None
        self.always = on_rejected is not None

    @property
    def reply(self) -> bytes:
        """What a command says to be answered here."""
        return self._buffer.producer_id.encode()

    def expect(self, sent: Sent) -> None:
        """Look out for the receipt of a command that asks for one."""
        name = Name(sent.run, sent.producer, sent.seq)
        with self._lock:
            self._handles[name] = sent
            sent.receipt = self._recent.get(name)
            if self._thread is None and not self._closed:
                self._thread = Thread(target=self._work, name="statewriter-receipts", daemon=True)
                self._thread.start()

    def watch(self, run: str, watcher: OnReceipt) -> None:
        """Call this with each refusal of the run's commands of this producer."""
        with self._lock:
            self._watchers.setdefault(run, []).append(watcher)

    def unwatch(self, run: str, watcher: OnReceipt) -> None:
        """Undo `watch`."""
        with self._lock:
            watchers = self._watchers.get(run, [])
            if watcher in watchers:
                watchers.remove(watcher)
            if not watchers:
                self._watchers.pop(run, None)

    def close(self) -> None:
        """Read no more."""
        with self._lock:
            self._closed = True
            self._ended.notify_all()

    def _work(self) -> None:
        connection: Wire | None = None
        try:
            while not self._closed:
                try:
                    if connection is None:
                        connection, _ = open_wire(self._settings)
                    self._read(connection)
                except Exception as error:  # noqa: BLE001  # this thread must outlive anything
                    if not isinstance(error, NotReady):
                        logger.debug("action=receipts_lost: %s", describe(error))
                    if connection is not None:
                        connection.disconnect()
                        connection = None
                    self._pause(RETRY_S)
        finally:
            if connection is not None:
                connection.disconnect()

    def _pause(self, wait_s: float) -> None:
        with self._lock:
            if not self._closed:
                self._ended.wait(wait_s)

    def _read(self, connection: Wire) -> None:
        partitions = self._partitions()
        if partitions is None:
            self._pause(RETRY_S)
            return
        reply = self._buffer.producer_id
        keys = [self._keys.reply(partition, reply) for partition in range(partitions)]
        cursors = [self._cursors.get(key, "0") for key in keys]
        block_ms = min(BLOCK_MS, self._settings.reply_timeout_ms // 2)
        (found,) = ask(
            connection,
            [["XREAD", "COUNT", READ_MAX, "BLOCK", block_ms, "STREAMS", *keys, *cursors]],
        )
        if isinstance(found, Exception):
            raise found
        for key, items in found or ():
            for message_id, pairs in items:
                self._take(dict(zip(pairs[::2], pairs[1::2], strict=True)))
                self._cursors[key.decode()] = message_id.decode()
        if found:
            self._buffer.announce()

    def _take(self, fields: dict[bytes, bytes]) -> None:
        try:
            receipt = Receipt.of(fields)
        except (KeyError, ValueError) as error:
            logger.warning("action=receipt_unreadable: %s", describe(error))
            return
        name = Name(receipt.run, receipt.producer, receipt.seq)
        with self._lock:
            sent = self._handles.get(name)
            is_news = name not in self._recent and (sent is None or sent.receipt is None)
        # Without the lock, since it may say things.
        is_good = is_news and self._make_good(receipt)
        with self._lock:
            sent = self._handles.get(name)
            if is_good:
                self._handles.pop(name, None)
            elif sent is not None and sent.receipt is None:
                sent.receipt = receipt
            self._recent.setdefault(name, receipt)
            while len(self._recent) > RECENT_MAX:
                self._recent.popitem(last=False)
            if is_good or not is_news or receipt.outcome != "rejected":
                return
            listeners = list(self._watchers.get(receipt.run, ()))
        if self._on_rejected is not None:
            listeners.append(self._on_rejected)
        for listener in listeners:
            try:
                listener(receipt)
            except Exception:
                logger.exception("action=on_rejected_failed run=%s", receipt.run)


class Inquiry:
    """Waiting for one command's receipt, and sending it again when none comes.

    `look` is called again and again, with a wait of at most what it returned in between.
    """

    def __init__(
        self, sent: Sent, receipts: Receipts, buffer: Buffer, timeout_ms: int, timeout_s: float
    ) -> None:
        self._sent = sent
        self._receipts = receipts
        self._buffer = buffer
        self._patience_s = timeout_ms / 1_000
        self._deadline = monotonic_s() + timeout_s
        self._asked_at: float | None = None
        receipts.expect(sent.latest)

    def ready(self) -> bool:
        """Whether there is a reason to look again before the time."""
        sent = self._sent.latest
        is_under_way = self._asked_at is None and sent.message_id is not None
        return sent.receipt is not None or sent.dropped or is_under_way

    def look(self) -> float:
        """How long to wait now, 0 if the receipt is there. Raises NotConfirmed."""
        sent = self._sent.latest
        if sent.receipt is not None:
            return 0
        if sent.dropped:
            raise NotConfirmed("The command was dropped: the buffer was full.")
        now_s = monotonic_s()
        if now_s >= self._deadline:
            raise NotConfirmed(f"No receipt in time; the command is {sent.state}.")
        if sent.message_id is not None:
            asks = sent.fields is not None and b"reply" in sent.fields
            if self._asked_at is None and asks:
                self._asked_at = now_s
            elif self._asked_at is None or now_s - self._asked_at >= self._patience_s:
                self._ask_again()
                self._asked_at = now_s
                self._patience_s *= 2
        wait_s = self._deadline - now_s
        return wait_s if self._asked_at is None else min(wait_s, self._patience_s)

    def _ask_again(self) -> None:
        sent = self._sent.latest
        if sent.fields is None:
            raise NotConfirmed("The command's bytes are gone: it can not be asked for again.")
        fields = {**sent.fields, b"reply": self._receipts.reply}
        try:
            self._buffer.put(sent.run, sent.kind, fields, Numbering(sent.producer, sent.seq))
        except (BufferFull, MetaMismatch):
            return
        except ProducerClosed:
            raise NotConfirmed("The producer is closed.") from None
