"""Messages out of the archive, decided again: to catch up, or to build a partition anew."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from writer.apply import Aggregates, Applier, Message, order_of
from writer.core.acts import acted_at
from writer.core.decide import RULES_VERSION
from writer.core.outcome import Held
from writer.errors import FileTooNew, WriterError
from writer.store.commit import Hook, no_hook
from writer.store.partition import PartitionFile, partition_path
from writer.streams.archive import (
    START,
    Act,
    Position,
    Record,
    about,
    archive_folder,
    read_archive,
    segment_size,
    segments,
)
from writer.streams.read import Reader

BATCH_MESSAGES = 500
BATCH_BYTES = 4 * 1024 * 1024
STREAMS_MAX = 64
"""Streams in one read of what waits in Redis."""

Until = tuple[int, int] | None
"""Stop before messages past this id (ms, n)."""


class Bounds(NamedTuple):
    """How far a replay goes: messages up to an id, what stands in the archive up to a position."""

    until: Until = None
    end: Position | None = None

    def include(self, message_id: str) -> bool:
        """Whether a message lies within."""
        return self.until is None or order_of(message_id) <= self.until


ALL = Bounds()


def catch_up(
    applier: Applier,
    folder: Path,
    *,
    now: int,
    until: Until = None,
    beat: Callable[[], None] = lambda: None,
    hook: Hook = no_hook,
) -> int:
    """Apply what the archive holds past the file's own position; returns how many messages that
    was.

    Operator acts first: those that messages are decided by. Messages that are settled already, or
    stand in the archive twice, are passed over. Dying in between only repeats it. `beat` is called
    before each batch, to keep a lease alive. Raises FileTooNew for a message that a newer
    statewriter settled, ArchiveDamaged.
    """
    since = Position.parse(applier.file.identity().archived)
    acts = [act for _, found, _ in read_archive(folder, since) for act in found]
    if acts:
        applier.restore_acts(acts, now=now, hook=hook)
    applied = 0
    for messages, position in _batches(folder, since, Bounds(until)):
        beat()
        settled, _ = applier.apply(
            messages,
            now=now,
            archived=(position if until is None else since).text(),
            hook=hook,
        )
        for each in settled:
            if isinstance(each.outcome, Held):
                raise _too_new(each.message, each.outcome)
        applied += len(settled)
    _begin_where_broken(applier, acts, now, until, hook)
    return applied


def _begin_where_broken(
    applier: Applier, acts: Iterable[Act], now: int, until: Until, hook: Hook = no_hook
) -> None:
    """Begin the incarnations of streams in which a lease was broken before any message came."""
    for act in acts:
        if act.act != "break" or act.message_id != "0-0":
            continue
        if until is not None and acted_at(act.id) > until[0]:
            continue
        while applier.aggregates.get(act.run).cursor.incarnation < act.incarnation:
            applier.apply((), now=now, restarts=[act.run], hook=hook)


def _too_new(message: Message, held: Held) -> FileTooNew:
    return FileTooNew(
        f"the archive holds what a newer statewriter settled: run {message.run}, "
        f"{_waits(message, held.version)}",
        hint="upgrade statewriter; nothing was lost",
    )


def _batches(
    folder: Path, since: Position, bounds: Bounds
) -> Iterator[tuple[list[Message], Position]]:
    batch: list[Message] = []
    size = 0
    position = since
    for records, _, found in read_archive(folder, since):
        if bounds.end is not None and found > bounds.end:
            break
        position = found
        batch.extend(_message(record) for record in records if bounds.include(record.id))
        size += sum(len(value) for record in records for value in record.fields.values())
        if len(batch) >= BATCH_MESSAGES or size >= BATCH_BYTES:
            yield batch, position
            batch, size = [], 0
    if position != since:
        yield batch, position


def _message(record: Record) -> Message:
    return Message(record.run, record.id, record.fields, record.incarnation)


Told = Callable[[int, int], None]
"""Is told now and then how many messages were replayed, and how many bytes of the archive read."""


def archive_bytes(folder: Path) -> int:
    """How many bytes a replay of an archive reads."""
    return sum(size for _, size in _sizes(folder))


def _sizes(folder: Path) -> list[tuple[tuple[int, int], int]]:
    return [(segment[:2], segment_size(segment)) for segment in segments(folder)]


@dataclass(slots=True)
class Replay:
    """Builds one partition anew. `held`: runs that could not go on, each with the cause."""

    applier: Applier
    folder: Path
    now: int
    bounds: Bounds = ALL
    told: Told = lambda messages, read: None
    messages: int = 0
    held: dict[str, str] = field(default_factory=dict)
    _place: Position = START
    _seen: list[tuple[tuple[int, int], int]] = field(default_factory=list)

    def archive(self) -> None:
        """Apply what the archive holds past what was read of it before. Raises ArchiveDamaged."""
        sizes = _sizes(self.folder)
        if sizes == self._seen:
            return
        self._seen = sizes
        acts = [act for found in self._acts() for act in found]
        if acts:
            self.applier.restore_acts(acts, now=self.now)
        for messages, position in _batches(self.folder, self._place, self.bounds):
            self._apply(messages, position if self.bounds == ALL else START)
            self._place = position
            before = sum(size for place, size in sizes if place < position[:2])
            self.told(self.messages, before + position.offset)
        _begin_where_broken(self.applier, acts, self.now, self.bounds.until)

    def _acts(self) -> Iterator[list[Act]]:
        end = self.bounds.end
        for _, acts, position in read_archive(self.folder, self._place):
            if end is not None and position > end:
                return
            yield acts

    def streams(self, reader: Reader, runs: Iterable[Sequence[str]]) -> int:
        """Apply what waits in streams past the archive; returns how many messages that was.

        Reads only: nothing is trimmed or marked. A writer may be at work: what it settles and trims
        meanwhile stands in the archive by then, which is looked at again after each read. Raises
        RedisUnavailable.
        """
        before = self.messages
        for step in runs:
            waiting = list(step)
            while waiting:
                names, waiting = waiting[:STREAMS_MAX], waiting[STREAMS_MAX:]
                waiting += self._read(reader, names)
        return self.messages - before

    def _read(self, reader: Reader, runs: Sequence[str]) -> list[str]:
        """Apply a part of what some streams hold; returns those that may hold more."""
        cursors = [(run, self._cursor(run)) for run in runs]
        reading = reader.read(cursors, reader.batch_messages_max)
        last = {run: state.last_id for run, state in reader.inspect(runs).items()}
        self.archive()
        again = [
            run
            for run, cursor in cursors
            if run in last
            and cursor == self._cursor(run)
            and order_of(last[run]) < order_of(cursor)
        ]
        if again:
            # Replaced by streams whose ids run behind: read from their start, as the writer does.
            self.applier.apply((), now=self.now, restarts=again)
        within = [item for item in reading.items if self.bounds.include(item.id)]
        past = {item.run for item in reading.items} - {item.run for item in within}
        self._apply([Message(*item) for item in within], None)
        self.told(self.messages, 0)
        more = [run for run in reading.more if run not in past]
        return [run for run in (*more, *again) if run not in self.held]

    def _cursor(self, run: str) -> str:
        return self.applier.aggregates.get(run).cursor.message_id

    def _apply(self, messages: Sequence[Message], position: Position | None) -> None:
        """Apply a batch; after an unexpected failure in halves, down to the run at fault.

        `position` is where the messages end in the archive, None if they are not from there.
        """
        messages = [message for message in messages if message.run not in self.held]
        archived = None if position is None else position.text()
        try:
            settled, _ = self.applier.apply(messages, now=self.now, archived=archived)
        except WriterError:
            raise
        except Exception as error:
            # One message that can not be applied must not hide what became of the other runs.
            if not messages:
                raise
            if len(messages) == 1:
                self._hold(messages[0], f"{type(error).__name__}: {error}")
                return
            middle = len(messages) // 2
            self._apply(messages[:middle], None if position is None else self._place)
            self._apply(messages[middle:], position)
            return
        for each in settled:
            if isinstance(each.outcome, Held):
                self.held[each.message.run] = _waits(each.message, each.outcome.version)
        self.messages += sum(not isinstance(each.outcome, Held) for each in settled)

    def _hold(self, message: Message, cause: str) -> None:
        self.held[message.run] = f"message {message.id} can not be applied: {cause}"[:500]
        self.applier.quarantine(message, "unexpected", cause[:500], self.now)


@contextmanager
def rebuilding(
    data: Path,
    into: Path,
    place: tuple[int, int],
    *,
    now: int,
    bounds: Bounds = ALL,
    synchronous: str = "NORMAL",
) -> Iterator[Replay]:
    """A new file of a partition (`place`: which of how many) in `into`, to replay `data` into.

    It is closed at the end. Raises what opening a partition file raises.
    """
    partition, partitions = place
    file = PartitionFile.open(
        partition_path(into, partition),
        partition=partition,
        partitions=partitions,
        lineage=secrets.token_hex(8),
        now=now,
        synchronous=synchronous,
    )
    try:
        file.take("replay", rules_version=RULES_VERSION, now=now)
        applier = Applier(file, partition, partitions, Aggregates(file))
        yield Replay(applier, archive_folder(data, partition), now, bounds)
    finally:
        file.close()


def archived_partitions(data: Path) -> int | None:
    """For how many partitions a data folder's archive was made; None without one."""
    for folder in sorted((data / "archive").glob("p*")):
        told = about(folder)
        if told is not None:
            return int(told["partitions"])
    return None


def _waits(message: Message, version: int) -> str:
    return f"message {message.id} is of contract version {version}, newer than this statewriter"
