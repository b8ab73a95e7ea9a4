"""The producer: what a host holds to say what its agents do."""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Any, NamedTuple, Self, cast

import orjson

from producers.buffer import Buffer, Numbering, Sent
from producers.clock import monotonic_s, now_ms
from producers.contract.commands import Auth, Dialect, EffectKind, Parent, Source
from producers.contract.envelope import encode
from producers.contract.reasons import Reason
from producers.errors import InvalidCommand
from producers.names import new_producer_id, new_run_id
from producers.run import Run
from producers.sender import Sender
from producers.settings import ProducerSettings, WhenFull, make_settings
from producers.validation import check_producer, check_run_id, check_sequence, encode_body

logger = logging.getLogger("statewriter.producer")


class Flushed(NamedTuple):
    """Commands accepted by Redis since the producer was made; of those before the flush, the rest.

    `error` says why some wait, if that is known.
    """

    accepted: int
    waiting: int
    error: str | None = None


class Closed(NamedTuple):
    """Commands accepted by Redis since the producer was made, and those that were not.

    An undelivered one may have arrived nevertheless, if only Redis' answer was lost.
    """

    accepted: int
    undelivered: int
    error: str | None = None


class Status(NamedTuple):
    """How a producer stands. `error` is why nothing goes through now, None if all is well."""

    producer_id: str
    redis: str | None
    connected: bool
    partitions: int | None
    accepted: int
    waiting: int
    waiting_bytes: int
    closed: bool
    error: str | None


class Producer:
    """Takes commands at once and sends them from a thread of its own.

    A call validates, numbers and buffers: it waits for nothing but, in a full buffer, room. What is
    accepted is in Redis; what is buffered dies with the process, so close it, or use it in a
    `with`. Safe across threads. After a fork the child's producer is empty and has another id.

    Every call that says something may raise InvalidCommand, BufferFull, ProducerClosed or
    MetaMismatch, and has then said nothing.
    """

    def __init__(  # noqa: PLR0913  # each is optional and has a setting
        self,
        redis: str | None = None,
        *,
        data: str | Path | None = None,
        partitions: int | None = None,
        prefix: str | None = None,
        producer_id: str | None = None,
        buffer_bytes_max: int | None = None,
        when_full: WhenFull | None = None,
        block_timeout_ms: int | None = None,
        settings: ProducerSettings | None = None,
    ) -> None:
        """Arguments left out come from `settings`, else from the environment, else the defaults.

        No server need run yet: commands wait for it. A `producer_id` must never have been used
        before, or the writer takes new commands for old ones. Raises InvalidSettings.
        """
        self._settings = make_settings(
            settings,
            {
                "redis": redis,
                "data": data,
                "partitions": partitions,
                "prefix": prefix,
                "buffer_bytes_max": buffer_bytes_max,
                "when_full": when_full,
                "block_timeout_ms": block_timeout_ms,
            },
        )
        self._buffer = Buffer(
            new_producer_id() if producer_id is None else check_producer(producer_id),
            bytes_max=self._settings.buffer_bytes_max,
            when_full=self._settings.when_full,
            block_timeout_ms=self._settings.block_timeout_ms,
        )
        self._sender: Sender | None = None
        self._start_lock = RLock()
        _open.add(self)

    @property
    def producer_id(self) -> str:
        """The id under which this instance counts its sequences."""
        return self._buffer.producer_id

    @property
    def settings(self) -> ProducerSettings:
        """The settings in force."""
        return self._settings

    def create_run(  # noqa: PLR0913  # all but the first are optional and named
        self,
        workflow: str,
        *,
        run_id: str | None = None,
        input: Any = None,
        definition: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
        title: str | None = None,
        tags: Mapping[str, str] | None = None,
        parent: str | Run | Parent | None = None,
        source: Source | None = None,
        effects: list[EffectKind] | None = None,
        retention_seconds: int | None = None,
        dialect: Dialect = "generic",
        reserve: bool = False,
    ) -> Run:
        """Create a run, or with `reserve` only its id; its id is made up if none is given."""
        if run_id is None:
            run_id = new_run_id(workflow, now_ms())
        if isinstance(parent, Run):
            parent = parent.id
        if isinstance(parent, Parent):
            parent_body: Any = parent.model_dump()
        else:
            parent_body = None if parent is None else {"run": parent}
        body = {
            "dialect": dialect,
            "workflow": workflow,
            "definition": definition,
            "input": input,
            "source": None if source is None else source.model_dump(exclude_none=True),
            "state": state,
            "status": "queued" if reserve else None,
            "parent": parent_body,
            "title": title,
            "tags": tags,
            "retention_seconds": retention_seconds,
            "effects": effects,
        }
        run = self.run(run_id)
        run.send("run.create", {name: value for name, value in body.items() if value is not None})
        return run

    def run(self, run_id: str) -> Run:
        """A run that exists, for example made by another host. Sends nothing."""
        return Run(check_run_id(run_id), self._publish)

    def send(
        self,
        run_id: str,
        kind: str,
        body: Mapping[str, Any],
        *,
        auth: Auth | None = None,
        producer: str | None = None,
        seq: int | None = None,
    ) -> Sent:
        """Send a command of any kind as it is; `producer` and `seq` together replace our own."""
        if producer is None and seq is None:
            numbering = None
        elif producer is None or seq is None:
            raise InvalidCommand(Reason.FIELD_MISSING, "producer" if producer is None else "seq")
        else:
            numbering = Numbering(check_producer(producer), check_sequence(seq))
        return self._publish(check_run_id(run_id), kind, body, auth, numbering)[0]

    def flush(self, timeout_s: float = 10) -> Flushed:
        """Wait until Redis has accepted all that was said before this call."""
        waiting = self._buffer.flush(timeout_s)
        return Flushed(self._buffer.levels.accepted, waiting, self._error())

    def close(self, timeout_s: float = 5) -> Closed:
        """Take no more, send what waits for at most `timeout_s`, and say what became of it."""
        deadline = monotonic_s() + timeout_s
        first = not self._buffer.closed
        self._buffer.close()
        undelivered = self._buffer.flush(timeout_s)
        self._buffer.stop()
        _open.discard(self)
        if self._sender is not None:
            self._sender.join(max(0.0, deadline - monotonic_s()))
        closed = Closed(self._buffer.levels.accepted, undelivered, self._error())
        if first and closed.undelivered:
            logger.warning(
                "action=closed_undelivered producer=%s accepted=%d undelivered=%d error=%s",
                self.producer_id,
                closed.accepted,
                closed.undelivered,
                closed.error,
            )
        return closed

    def status(self) -> Status:
        """How it stands now. Never waits."""
        levels = self._buffer.levels
        sender = self._sender
        return Status(
            producer_id=self.producer_id,
            redis=None if sender is None else sender.link.server,
            connected=sender is not None and sender.link.connected,
            partitions=self._settings.partitions if sender is None else sender.link.partitions,
            accepted=levels.accepted,
            waiting=levels.waiting,
            waiting_bytes=levels.waiting_bytes,
            closed=self._buffer.closed,
            error=self._error(),
        )

    def begin_in_child(self) -> None:
        """After a fork, in the child: begin anew. What waits is the parent's to send."""
        self._buffer.reset(new_producer_id())
        self._sender = None
        self._start_lock = RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _publish(
        self,
        run: str,
        kind: str,
        body: Mapping[str, Any],
        auth: Auth | None,
        numbering: Numbering | None = None,
    ) -> tuple[Sent, bytes]:
        text = encode_body(kind, body)
        # The buffer puts in the sequence, under its lock. A fragment is copied, not parsed again.
        body_text = cast("Mapping[str, Any]", orjson.Fragment(text))
        fields = encode(kind, body_text, producer="", seq=0, auth=auth)
        if self._sender is None and not self._buffer.closed:
            self._start()
        return self._buffer.put(run, kind, fields, numbering), text

    def _start(self) -> None:
        with self._start_lock:
            if self._sender is None:
                sender = Sender(self._buffer, self._settings)
                sender.start()
                self._sender = sender

    def _error(self) -> str | None:
        trouble = None if self._sender is None else self._sender.trouble
        return None if trouble is None else trouble.text


_open: set[Producer] = set()
"""Producers that nobody closed yet: kept alive so that the interpreter's exit can."""


def _close_at_exit() -> None:
    producers = list(_open)
    if not producers:
        return
    started_s = monotonic_s()
    for producer in producers:
        # All together, not one after the other, get the time.
        left_s = producer.settings.exit_timeout_ms / 1_000 - (monotonic_s() - started_s)
        producer.close(max(0.0, left_s))


def _begin_in_child() -> None:
    for producer in list(_open):
        producer.begin_in_child()


atexit.register(_close_at_exit)
os.register_at_fork(after_in_child=_begin_in_child)
