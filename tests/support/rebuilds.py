"""I10 and what else needs an archive: is a partition what its archive makes of it?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from producers.contract.envelope import decode
from tests.support.invariants import Broken, files, reading, rows
from writer.apply import Aggregates, Applier, Message
from writer.core.decide import RULES_VERSION
from writer.store.digest import digests
from writer.store.partition import PartitionFile, partition_path
from writer.streams.archive import Act, Position, archive_folder, read_archive


def digests_of(path: Path) -> dict[str, bytes]:
    """Each run's digest."""
    with closing(reading(path)) as file:
        return dict(digests(file))


def digests_differ(data: Path, into: Path, batch: int | None, partitions: int) -> Broken:
    """I10: runs that a replay of the archive, in batches of a size (None: one), makes otherwise."""
    broken = []
    for partition, path in files(data):
        folder = archive_folder(data, partition)
        rebuilt = rebuild(folder, into, batch, (partition, partitions), archived_in(path))
        live, again = digests_of(path), digests_of(rebuilt)
        broken += [
            f"{path.name} run {run}: in batches of {batch or 'all'} it becomes something else"
            for run in sorted(live.keys() | again.keys())
            if live.get(run) != again.get(run)
        ]
    return broken


def archived_in(path: Path) -> Position:
    """Where what a file holds ends in its archive. What a writer that lost its partition wrote
    behind that, no file may ever have.
    """
    with closing(reading(path)) as file:
        return Position.parse(rows(file, "SELECT archived FROM file")[0][0])


def rebuild(
    folder: Path, into: Path, batch: int | None, place: tuple[int, int], upto: Position
) -> Path:
    """A partition's file made of its archive alone, up to a position."""
    path = partition_path(into, place[0])
    file = PartitionFile.open(
        path, partition=place[0], partitions=place[1], lineage="rebuilt", now=0, synchronous="OFF"
    )
    try:
        file.take("rebuild", rules_version=RULES_VERSION, now=0)
        applier = Applier(file, *place, Aggregates(file))
        frames = [frame for frame in read_archive(folder) if frame[2] <= upto]
        messages = [
            Message(record.run, record.id, record.fields, record.incarnation)
            for records, _, _ in frames
            for record in records
        ]
        replay(applier, [act for _, acts, _ in frames for act in acts], messages, batch)
    finally:
        file.close()
    return path


def replay(
    applier: Applier, acts: Sequence[Act], messages: Sequence[Message], batch: int | None
) -> None:
    """Apply messages in batches of a size, by operators' acts that are known before."""
    applier.restore_acts(acts, now=0)
    for part in parts_of(messages, batch):
        applier.apply(part, now=0)
    for act in acts:
        # A lease that was broken before its incarnation's first message ends with its start.
        while act.act == "break" and act.message_id == "0-0":
            if applier.aggregates.get(act.run).cursor.incarnation >= act.incarnation:
                break
            applier.apply((), now=0, restarts=[act.run])


def parts_of(messages: Sequence[Message], batch: int | None) -> Iterator[Sequence[Message]]:
    """Batches of a size; one of all for None."""
    step = batch or max(len(messages), 1)
    return (messages[at : at + step] for at in range(0, len(messages), step))


def hashes_differ(folder: Path, path: Path) -> Broken:
    """I11 for events: an event names the hash of the message that the archive has."""
    hashes = {}
    for records, _, _ in read_archive(folder):
        for record in records:
            decoded = decode(record.run, record.id, record.fields)
            hashes.setdefault((record.run, record.id), set()).add(decoded.body_hash)
    with closing(reading(path)) as file:
        return [
            f"run {run}: the event of {message_id} was made of another message"
            for run, message_id, digest in rows(
                file,
                "SELECT run_id, message_id, body_hash FROM events JOIN cursors USING (run_key)",
            )
            if digest not in hashes.get((run, message_id), set())
        ]
