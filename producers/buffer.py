"""What was said and is not yet accepted by Redis: numbered, bounded in bytes, in order per run.

Callers put, one sender takes. A command stays here until Redis has answered for it, so whatever
happens to the connection the sender takes the same commands again, in the same order. What waits
for long may be moved to disk meanwhile; it keeps its place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from threading import Condition, RLock

from producers.clock import monotonic_s
from producers.errors import BufferFull, MetaMismatch, ProducerClosed
from producers.handle import Numbering, Sent
from producers.settings import WhenFull
from producers.spool import Place, Spool
from producers.waiting import (
    COMMAND_OVERHEAD_BYTES,
    SPOOLED_BYTES,
    Batch,
    Fresh,
    Levels,
    Waiting,
)

LINGER_S = 0.001
"""From one batch to the next, at least, unless one is full: at a high rate this saves most of the
wake-ups, which callers pay for; at a low one it delays nothing.
"""


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
        self._listeners: list[Callable[[], None]] = []
        self.may_block = True
        self.reset(producer_id, None)

    def reset(self, producer_id: str, spool: Spool | None) -> None:
        """Begin empty under another producer id. For a forked child: the parent keeps its own.

        The locks are new as well, since a thread that the child does not have may hold them.
        """
        self.producer_id = producer_id
        self._spool = spool
        # Reentrant: a signal handler that speaks or closes may have interrupted a call.
        self._lock = RLock()
        self._arrived = Condition(self._lock)
        self._moved = Condition(self._lock)
        self._halted = Condition(self._lock)
        self._pressed = Condition(self._lock)
        self._stopped = False
        self._queues: dict[str, deque[Waiting]] = {}
        self._fresh = Fresh()
        self._take_idle = self._spill_idle = False
        self._taken_s = 0.0
        self._spool_fault: str | None = None
        self._troubled = False
        self._failing: set[str] = set()
        self._sequences: dict[str, count[int]] = {}
        self._serials = count(1)
        self._accepted = self._dropped = 0
        # Of those that wait: how many, how many on disk, their bytes of memory.
        self._waiting = self._spooled = self._bytes = 0
        self._listeners = []

    # the callers' side

    def put(
        self,
        run: str,
        kind: str,
        fields: dict[bytes, bytes],
        numbering: Numbering | None = None,
        *,
        wait: bool = True,
    ) -> Sent:
        """Number a command and let it wait: at once without `wait`. One that is refused uses up no
        sequence, a dropped one does. Raises BufferFull, ProducerClosed or MetaMismatch.
        """
        size_bytes = COMMAND_OVERHEAD_BYTES + sum(map(len, fields.values()))
        with self._lock:
            has_room = self._await_room(size_bytes, wait and self.may_block)
            if numbering is None:
                sequence = self._sequences.get(run) or self._sequences.setdefault(run, count(1))
                producer, seq = self.producer_id, next(sequence)
            else:
                producer, seq = numbering
            if not has_room:
                self._dropped += 1
                return Sent(run, producer, seq, kind, dropped=True)
            fields[b"producer"] = producer.encode()
            fields[b"seq"] = b"%d" % seq
            sent = Sent(run, producer, seq, kind, None, None, False, False, fields)
            waiting = Waiting(sent, size_bytes, next(self._serials), monotonic_s())
            queue = self._queues.get(run)
            if queue is None:
                self._queues[run] = deque((waiting,))
            else:
                queue.append(waiting)
            self._waiting += 1
            self._bytes += size_bytes
            if self._take_idle:
                # Waking a thread costs more than all else in here.
                self._take_idle = False
                self._arrived.notify()
            if self._spool is not None:
                self._fresh.add(waiting)
                if self._spill_idle or self._is_pressed():
                    self._pressed.notify()
        return sent

    def flush(self, timeout_s: float, *, or_spooled: bool = False) -> int:
        """Wait until all that was put before is accepted; return how many of it still wait.

        With `or_spooled` it also ends when Redis is in trouble and all of it is on disk.
        """
        deadline = monotonic_s() + timeout_s
        with self._lock:
            serial = next(self._serials)
            tails: list[Sent] = []
            # Within a run order is kept. What was adopted meanwhile goes before all others, too.
            while tails := [each for each in tails if not (each.message_id or each.dropped)] or [
                queue[-1].sent for queue in self._queues.values() if queue[0].serial < serial
            ]:
                remaining_s = deadline - monotonic_s()
                if self._stopped or remaining_s <= 0:
                    break
                if or_spooled and self._troubled and all(tail.spooled for tail in tails):
                    break
                self._moved.wait(remaining_s)
            return self.waiting_before(serial)

    def mark(self) -> int:
        """A point in time, for `waiting_before`."""
        with self._lock:
            return next(self._serials)

    def waiting_before(self, mark: int) -> int:
        """How many of the commands put before the mark still wait."""
        with self._lock:
            return sum(
                waiting.serial < mark for queue in self._queues.values() for waiting in queue
            )

    def await_movement(self, ready: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until something is accepted or answered for and `ready` says yes; whether it did."""
        with self._lock:
            return self._moved.wait_for(ready, timeout_s)

    def announce(self) -> None:
        """Something moved: look again, whoever waits for anything."""
        with self._lock:
            self._moved.notify_all()
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call this whenever something moves, from another thread. It must not wait."""
        with self._lock:
            if listener not in self._listeners:
                self._listeners.append(listener)

    def has_room(self) -> bool:
        """Whether a call would find room: the buffer is at most half full."""
        return self._bytes * 2 <= self._bytes_max

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
        self.announce()

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._closed

    @property
    def levels(self) -> Levels:
        """How full it is now."""
        with self._lock:
            return Levels(self._accepted, self._waiting, self._bytes, self._spooled, self._dropped)

    # the sender's side

    def adopt(self, found: Sequence[tuple[Sent, Place]]) -> None:
        """Commands that an earlier process left on disk: each goes before all others of its run."""
        with self._lock:
            by_run: dict[str, list[Waiting]] = {}
            for sent, place in found:
                waiting = Waiting(sent, COMMAND_OVERHEAD_BYTES + place.length, 0, monotonic_s())
                waiting.place = place
                by_run.setdefault(sent.run, []).append(waiting)
            adopted: dict[str, deque[Waiting]] = {}
            for run, commands in by_run.items():
                adopted[run] = deque([*commands, *self._queues.pop(run, ())])
            self._queues = adopted | self._queues
            self._waiting += len(found)
            self._spooled += len(found)
            self._bytes += len(found) * SPOOLED_BYTES

    def take(self, commands_max: int, bytes_max: int) -> Batch:
        """Wait for commands and return some, run by run; they stay here until accepted.

        Empty once the buffer is stopped, or closed and empty. However large, one command is in it.
        Of a run that Redis refused last time only the first one is tried.
        """
        with self._lock:
            self._await_batch(commands_max, bytes_max)
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
        places: list[Place] = []
        with self._lock:
            for message_id in message_ids:
                waiting = self._pop(run, places)
                waiting.sent.message_id = message_id
                # It may have gone to disk while it was on its way.
                waiting.sent.fields = waiting.loaded
            self._accepted += len(message_ids)
            self._failing.discard(run)
            self._let_others_first(run)
            self._fresh.tidy(self._waiting)
        self._settle(places)

    def lose(self, run: str) -> None:
        """The run's first command can not be read from disk any more: it counts as dropped."""
        places: list[Place] = []
        with self._lock:
            self._pop(run, places).sent.dropped = True
            self._dropped += 1
            self._let_others_first(run)
        self._settle(places)

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

    def trouble(self, troubled: bool) -> None:
        """Whether nothing goes through at present."""
        with self._lock:
            self._troubled = troubled
            self._moved.notify_all()
            self._pressed.notify_all()

    def pause(self, wait_ms: int) -> None:
        """Wait, but no longer than until the buffer is closed or stopped."""
        with self._lock:
            if not self._stopped:
                self._halted.wait(wait_ms / 1_000)

    # the spiller's side

    def overdue(self, after_s: float) -> list[Waiting]:
        """Wait for commands that have waited so long, or for the memory to be half full.

        Empty once the buffer is stopped.
        """
        with self._lock:
            while not self._stopped:
                self._fresh.tidy(self._waiting)
                born_s = self._fresh.born_s
                if born_s is None:
                    self._spill_idle = True
                    self._pressed.wait()
                    self._spill_idle = False
                    continue
                wait_s = born_s + after_s - monotonic_s()
                if wait_s <= 0 or self._is_pressed() or (self._closed and self._troubled):
                    return self.oldest()
                self._pressed.wait(wait_s)
            return []

    def oldest(self) -> list[Waiting]:
        """The first commands that are in memory only."""
        with self._lock:
            return self._fresh.oldest()

    def spilled(self, commands: Sequence[Waiting], places: Sequence[Place]) -> None:
        """These lie on disk now, and leave the memory."""
        too_late: list[Place] = []
        with self._lock:
            self._spool_fault = None
            for waiting, place in zip(commands, places, strict=True):
                if waiting.sent.message_id is not None:
                    too_late.append(place)
                    continue
                waiting.place = place
                waiting.sent.spooled = True
                waiting.sent.fields = None
                self._spooled += 1
                self._bytes += SPOOLED_BYTES - waiting.size_bytes
            self._fresh.tidy(self._waiting)
        self._settle(too_late)

    def spill_failed(self, text: str, wait_s: float) -> None:
        """The disk takes nothing: a full buffer says so at once. Returns after a while."""
        with self._lock:
            self._spool_fault = text
            self._moved.notify_all()
            if not self._stopped:
                self._halted.wait(wait_s)

    def _settle(self, places: Sequence[Place]) -> None:
        if places and self._spool is not None:
            self._spool.settle(places)
        self.announce()

    # with the lock held

    def _await_batch(self, commands_max: int, bytes_max: int) -> None:
        """Wait for a command; right after another batch, for those that follow it closely."""
        while not self._stopped and not (self._closed and not self._queues):
            if not self._queues:
                self._take_idle = True
                self._arrived.wait()
                self._take_idle = False
                continue
            left_s = self._taken_s + LINGER_S - monotonic_s()
            full = self._waiting >= commands_max or self._bytes >= bytes_max
            if left_s <= 0 or full or self._closed:
                break
            self._arrived.wait(left_s)
        self._taken_s = monotonic_s()

    def _is_pressed(self) -> bool:
        return self._bytes * 2 > self._bytes_max

    def _await_room(self, size_bytes: int, may_block: bool) -> bool:
        """Whether there is room, waiting for it if told so. False: drop it."""
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
            if self._bytes + size_bytes <= self._bytes_max:
                return True
            if self._when_full == "drop":
                return False
            if self._when_full == "spool" and self._spool_fault is not None:
                raise BufferFull(f"{BufferFull.__doc__} The spool: {self._spool_fault}.")
            now_s = monotonic_s()
            if deadline is None:
                deadline = now_s + self._block_timeout_ms / 1_000
            if self._when_full == "raise" or not may_block or now_s >= deadline:
                raise BufferFull
            self._pressed.notify()
            self._moved.wait(deadline - now_s)

    def _pop(self, run: str, places: list[Place]) -> Waiting:
        waiting = self._queues[run].popleft()
        self._waiting -= 1
        self._bytes -= waiting.memory_bytes
        if waiting.place is not None:
            self._spooled -= 1
            places.append(waiting.place)
        return waiting

    def _let_others_first(self, run: str) -> None:
        queue = self._queues.pop(run)
        if queue:
            self._queues[run] = queue

    def _notify_everyone(self) -> None:
        for condition in (self._arrived, self._moved, self._halted, self._pressed):
            condition.notify_all()
