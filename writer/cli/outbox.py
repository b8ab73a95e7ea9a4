"""Commands on their way out: numbered, sent in batches, and followed until they are settled."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from producers.contract.keys import Keys
from writer.cli.commands import Command
from writer.clock import monotonic, sleep
from writer.streams.backlog import existing, last_sequence
from writer.streams.publish import Outgoing, Publisher

if TYPE_CHECKING:
    from writer.store.reader import StateReader
    from writer.streams.link import Client

BATCH_COMMANDS = 500
BATCH_BYTES = 4 * 1024 * 1024
FOLLOWED_MAX = 20_000
"""Commands that are followed at once: above it, sending waits for the writer."""
HEAD = 2_000
"""How many of those are looked at in one poll."""
POLL_S = 0.01
POLL_S_MAX = 0.2
HELD_AFTER_S = 0.3
"""After so long without a move the front is looked at more closely."""


class Ended(NamedTuple):
    """A command and how it ended: as `StateReader.outcome`, or `{"outcome": "held"}` (its run is
    quarantined) or `{"outcome": "pending"}` (not settled in time).
    """

    command: Command
    outcome: dict[str, Any]


class Outbox:
    """Sends commands in order. Those without a producer of their own get `producer`."""

    def __init__(
        self, client: Client, keys: Keys, partitions: int, producer: str, reader: StateReader
    ) -> None:
        self.producer = producer
        self.sent = 0
        self._client = client
        self._keys = keys
        self._partitions = partitions
        self._publisher = Publisher(client, keys, partitions)
        self._reader = reader
        self._last: dict[tuple[str, str], int] = {}
        self._batch: list[Command] = []
        self._batch_bytes = 0

    def put(self, command: Command) -> list[Command]:
        """Take a command; returns those that were sent, if this filled a batch."""
        if not command.whole:
            self._number(command)
        self._batch.append(command)
        self._batch_bytes += command.size_bytes
        if len(self._batch) >= BATCH_COMMANDS or self._batch_bytes >= BATCH_BYTES:
            return self.flush()
        return []

    def flush(self) -> list[Command]:
        """Send what waits; returns it, with message ids. Raises RedisUnavailable."""
        batch, self._batch, self._batch_bytes = self._batch, [], 0
        if batch:
            ids = self._publisher.publish([Outgoing(each.run, each.fields) for each in batch])
            for command, message_id in zip(batch, ids, strict=True):
                command.message_id = message_id
                # From here on only its names are needed.
                command.fields = {}
            self.sent += len(batch)
        return batch

    def _number(self, command: Command) -> None:
        """Fill in producer and sequence where they are left to us."""
        fields = command.fields
        if b"producer" not in fields:
            command.producer = self.producer
            fields[b"producer"] = self.producer.encode()
        place = (command.run, fields[b"producer"].decode(errors="replace"))
        if b"seq" not in fields:
            command.seq = self._last_of(*place) + 1
            fields[b"seq"] = b"%d" % command.seq
        if command.seq is not None:
            self._last[place] = max(self._last.get(place, 0), command.seq)

    def _last_of(self, run: str, producer: str) -> int:
        """A producer's last sequence in a run: in the file, or still waiting in Redis."""
        known = self._last.get((run, producer))
        if known is not None or producer == self.producer:
            return known or 0
        found = self._reader.run(run)
        stored = (each for each in (found or {}).get("producers", ()))
        last = next((each["last_seq"] for each in stored if each["producer"] == producer), 0)
        waiting = last_sequence(self._client, self._keys, self._partitions, run, producer)
        return int(max(last, waiting))


@dataclass(slots=True)
class Following:
    """Commands that were sent, in order, until each is settled.

    `check` raises what ended the daemon, if it runs in this process. `stall_s` bounds how long
    nothing at all may move.
    """

    client: Client
    keys: Keys
    partitions: int
    reader: StateReader
    check: Callable[[], None]
    stall_s: float
    _waiting: deque[Command] = field(default_factory=deque)
    _moved_at: float = field(default_factory=monotonic)
    _cursors: dict[str, tuple[int, str]] = field(default_factory=dict)
    _graves: dict[str, str | None] = field(default_factory=dict)
    """Runs that were looked at during one poll: by which message they were deleted, if any."""

    @property
    def waiting(self) -> int:
        """How many are not settled, as far as known."""
        return len(self._waiting)

    def add(self, commands: list[Command]) -> None:
        """Follow commands that were sent after all that are followed."""
        if not self._waiting:
            self._moved_at = monotonic()
        self._waiting.extend(commands)

    def poll(self) -> Iterator[Ended]:
        """Those from the front that are settled now."""
        self.check()
        head = list(islice(self._waiting, HEAD))
        cursors = self.reader.settled(dict.fromkeys(command.run for command in head))
        if cursors != self._cursors:
            self._cursors = cursors
            self._moved_at = monotonic()
        self._graves.clear()
        for command in self._settled(head, cursors):
            self._waiting.popleft()
            yield Ended(command, self._outcome(command))

    def drain(self, down_to: int = 0) -> Iterator[Ended]:
        """Wait until no more than so many are left; what does not move ends as held or pending."""
        while len(self._waiting) > down_to:
            before = len(self._waiting)
            yield from self.poll()
            if len(self._waiting) < before:
                self._moved_at = monotonic()
                continue
            idle_s = monotonic() - self._moved_at
            if idle_s > HELD_AFTER_S and self._front_is_held():
                yield Ended(self._waiting.popleft(), {"outcome": "held"})
            elif idle_s > self.stall_s:
                yield from self._give_up()
            else:
                sleep(min(POLL_S + idle_s / 50, POLL_S_MAX))

    def _settled(
        self, head: list[Command], cursors: dict[str, tuple[int, str]]
    ) -> Iterator[Command]:
        gone: dict[str, bool] = {}
        for command in head:
            message_id = cursors.get(command.run, (0, "0-0"))[1]
            if order_of(message_id) >= order_of(command.message_id):
                yield command
                continue
            # A run that ended loses its stream, and its cursor starts over: then all is settled.
            if message_id != "0-0" or command.run not in cursors:
                return
            if command.run not in gone:
                found = existing(self.client, self.keys, self.partitions, [command.run])
                gone[command.run] = command.run not in found
            if not gone[command.run]:
                return
            yield command

    def _outcome(self, command: Command) -> dict[str, Any]:
        outcome = self.reader.outcome(
            command.run, command.message_id, command.producer, command.seq
        )
        if outcome is None or outcome["outcome"] == "settled":
            return self._without_a_trace(command)
        return outcome

    def _without_a_trace(self, command: Command) -> dict[str, Any]:
        """Neither event nor rejection: a lease renewal, a run deleted since, else a duplicate."""
        if command.kind == "lease.renew":
            return {"outcome": "applied", "revision": None}
        if command.run not in self._graves:
            found = self.reader.run(command.run)
            grave = found.get("deleted") if found is not None else None
            self._graves[command.run] = grave["message_id"] if grave else None
        deleted_by = self._graves[command.run]
        if deleted_by and order_of(command.message_id) < order_of(deleted_by):
            return {"outcome": "applied", "revision": None, "deleted": True}
        return {"outcome": "duplicate"}

    def _front_is_held(self) -> bool:
        found = self.reader.run(self._waiting[0].run)
        return found is not None and found["quarantine"] is not None

    def _give_up(self) -> Iterator[Ended]:
        while self._waiting:
            yield Ended(self._waiting.popleft(), {"outcome": "pending"})


def order_of(message_id: str) -> tuple[int, int]:
    """A message id as what it is compared by."""
    ms, _, n = message_id.partition("-")
    return int(ms), int(n or 0)
