"""What was said and is not yet accepted by Redis: numbered, bounded in bytes, in order per run.

Callers put, one sender takes. A command stays here until Redis has answered for it, so whatever
happens to the connection the sender takes the same commands again, in the same order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from threading import Condition, RLock
from typing import NamedTuple

from producers.clock import monotonic_s
from producers.errors import BufferFull, MetaMismatch, ProducerClosed
from producers.settings import WhenFull

COMMAND_OVERHEAD_BYTES = 1_024
"""What a waiting command costs in memory beside the bytes of its fields."""


@dataclass(slots=True, eq=False)
class Sent:
    """One command on its way. `message_id` is None until Redis has accepted it."""

    run: str
    producer: str
    seq: int
    kind: str
    message_id: str | None = None


class Numbering(NamedTuple):
    """Another producer's id and sequence, to be sent under instead of our own."""

    producer: str
    seq: int


class Waiting:
    """A command in the buffer: its handle, its stream fields, its size, its place in time."""

    __slots__ = ("fields", "sent", "serial", "size_bytes")

    def __init__(self, sent: Sent, fields: dict[bytes, bytes], size_bytes: int, serial: int):
        self.sent = sent
        self.fields = fields
        self.size_bytes = size_bytes
        self.serial = serial


class Levels(NamedTuple):
    """How full the buffer is: commands ever accepted, commands and bytes waiting."""

    accepted: int
    waiting: int
    waiting_bytes: int


Batch = list[tuple[str, list[Waiting]]]


class Buffer:
    """Commands by run. Thread-safe; the waits are on conditions of one lock."""

    def __init__(
        self, producer_id: str, *, bytes_max: int, when_full: WhenFull, block_timeout_ms: int
    ) -> None:
        self._bytes_max = bytes_max
        self._when_full = when_full
        self._block_timeout_ms = block_timeout_ms
        self._closed = False
        self._mismatch: str | None = None
        self.reset(producer_id)

    def reset(self, producer_id: str) -> None:
        """Begin empty under another producer id. For a forked child: the parent keeps its own.

        The locks are new as well, since a thread that the child does not have may hold them.
        """
        self.producer_id = producer_id
        # Reentrant: a signal handler that speaks or closes may have interrupted a call.
        self._lock = RLock()
        self._arrived = Condition(self._lock)
        self._moved = Condition(self._lock)
        self._halted = Condition(self._lock)
        self._stopped = False
        self._queues: dict[str, deque[Waiting]] = {}
        self._failing: set[str] = set()
        self._sequences: dict[str, count[int]] = {}
        self._serials = count(1)
        self._levels = Levels(0, 0, 0)

    # the callers' side

    def put(
        self, run: str, kind: str, fields: dict[bytes, bytes], numbering: Numbering | None = None
    ) -> Sent:
        """Number a command and let it wait. A refused one uses up no sequence.

        Raises BufferFull, ProducerClosed or MetaMismatch.
        """
        size_bytes = COMMAND_OVERHEAD_BYTES + sum(map(len, fields.values()))
        with self._lock:
            self._await_room(size_bytes)
            if numbering is None:
                sequence = self._sequences.get(run) or self._sequences.setdefault(run, count(1))
                numbering = Numbering(self.producer_id, next(sequence))
            fields[b"producer"] = numbering.producer.encode()
            fields[b"seq"] = b"%d" % numbering.seq
            sent = Sent(run, numbering.producer, numbering.seq, kind)
            waiting = Waiting(sent, fields, size_bytes, next(self._serials))
            queue = self._queues.get(run)
            if queue is None:
                self._queues[run] = deque((waiting,))
            else:
                queue.append(waiting)
            self._add(waiting=1, waiting_bytes=size_bytes)
            self._arrived.notify()
        return sent

    def flush(self, timeout_s: float) -> int:
        """Wait until all that was put before is accepted; return how many of it still wait."""
        deadline = monotonic_s() + timeout_s
        with self._lock:
            serial = next(self._serials)
            # Within a run order is kept, so its last command is accepted after all others.
            tails = [queue[-1].sent for queue in self._queues.values()]
            while tails := [tail for tail in tails if tail.message_id is None]:
                remaining_s = deadline - monotonic_s()
                if self._stopped or remaining_s <= 0:
                    break
                self._moved.wait(remaining_s)
            return sum(
                waiting.serial < serial for queue in self._queues.values() for waiting in queue
            )

    def close(self) -> None:
        """Take nothing more. The sender goes on until the buffer is empty or stopped."""
        with self._lock:
            self._closed = True
            self._notify_everyone()

    def stop(self) -> None:
        """Tell the sender to end after what it has in hand."""
        with self._lock:
            self._stopped = True
            self._notify_everyone()

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._closed

    @property
    def levels(self) -> Levels:
        """How full it is now."""
        return self._levels

    # the sender's side

    def take(self, commands_max: int, bytes_max: int) -> Batch:
        """Wait for commands and return some, run by run; they stay here until accepted.

        Empty once the buffer is stopped, or closed and empty. However large, one command is in it.
        Of a run that Redis refused last time only the first one is tried.
        """
        with self._lock:
            while not self._queues and not self._closed and not self._stopped:
                self._arrived.wait()
            batch: Batch = []
            if self._stopped:
                return batch
            for run, queue in self._queues.items():
                chosen: list[Waiting] = []
                for waiting in queue:
                    bytes_max -= waiting.size_bytes
                    if commands_max <= 0 or (bytes_max < 0 and (batch or chosen)):
                        return [*batch, (run, chosen)] if chosen else batch
                    commands_max -= 1
                    chosen.append(waiting)
                    if run in self._failing:
                        break
                batch.append((run, chosen))
            return batch

    def accept(self, run: str, message_ids: Sequence[str]) -> None:
        """Redis has the run's first commands, under these message ids."""
        with self._lock:
            queue = self._queues[run]
            freed_bytes = 0
            for message_id in message_ids:
                waiting = queue.popleft()
                waiting.sent.message_id = message_id
                freed_bytes += waiting.size_bytes
            self._failing.discard(run)
            self._let_others_first(run)
            accepted = len(message_ids)
            self._add(accepted=accepted, waiting=-accepted, waiting_bytes=-freed_bytes)
            self._moved.notify_all()

    def refuse(self, run: str) -> None:
        """Redis refused the run's first command for now."""
        with self._lock:
            self._failing.add(run)
            self._let_others_first(run)

    @property
    def failing(self) -> bool:
        """Whether a run's first command was refused last time."""
        return bool(self._failing)

    def block(self, mismatch: str | None) -> None:
        """Refuse commands with MetaMismatch and this message from now on; None lifts it."""
        with self._lock:
            self._mismatch = mismatch
            self._moved.notify_all()

    def pause(self, wait_ms: int) -> None:
        """Wait, but no longer than until the buffer is closed or stopped."""
        with self._lock:
            if not self._stopped:
                self._halted.wait(wait_ms / 1_000)

    # with the lock held

    def _await_room(self, size_bytes: int) -> None:
        if size_bytes > self._bytes_max:
            raise BufferFull(
                f"The command's {size_bytes} bytes are more than buffer_bytes_max "
                f"({self._bytes_max}): it can never be buffered. Give a larger buffer_bytes_max."
            )
        deadline = None
        while True:
            if self._closed:
                raise ProducerClosed
            if self._mismatch is not None:
                raise MetaMismatch(self._mismatch)
            if self._levels.waiting_bytes + size_bytes <= self._bytes_max:
                return
            now_s = monotonic_s()
            if deadline is None:
                deadline = now_s + self._block_timeout_ms / 1_000
            if self._when_full == "raise" or now_s >= deadline:
                raise BufferFull
            self._moved.wait(deadline - now_s)

    def _add(self, *, accepted: int = 0, waiting: int = 0, waiting_bytes: int = 0) -> None:
        old = self._levels
        self._levels = Levels(
            old.accepted + accepted, old.waiting + waiting, old.waiting_bytes + waiting_bytes
        )

    def _let_others_first(self, run: str) -> None:
        queue = self._queues.pop(run)
        if queue:
            self._queues[run] = queue

    def _notify_everyone(self) -> None:
        for condition in (self._arrived, self._moved, self._halted):
            condition.notify_all()
