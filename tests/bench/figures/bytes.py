"""Bytes in the partition file for each byte that the hosts of a typical run have to say.

Payload: each transcript entry, session event, step and update's data once, as sorted JSON without
spaces. Ours: the file after ten runs, its WAL moved into it, less an empty file. Theirs: the same
of a store of seed 0's shape. What the archive keeps besides (compressed, for replay) is a row of
its own: it is on by default and can be switched off.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

from tests.bench.peers.seed0 import Seed0
from tests.bench.room import Room
from tests.bench.table import Figure, at_most, compare
from tests.bench.workload import Op, load, run_ids, typical_commands, typical_ops
from tests.bench.writing import loop
from tests.support.workload import canonical
from writer.store.database import open_reader
from writer.store.partition import partition_path
from writer.streams.archive import archive_folder

RUNS = 10


def measure(room: Room) -> Iterator[Figure]:
    """Our bytes against the payload's, against seed 0's, and what the archive adds."""
    runs = run_ids(1 if room.quick else RUNS)
    said = sum(payload_bytes(op) for run in runs for op in typical_ops(run)) / len(runs)
    ours, archive = stored(room, runs)
    theirs = seed0_stored(room, runs)
    name, unit = "stored, typical run", "bytes/run"
    yield compare(name, [ours], unit, "its payload", [said], target=at_most(1.2))
    yield compare(
        "stored, typical run", [ours], unit, "seed-0 store", [theirs], less_is_better=True
    )
    yield compare("archived, typical run", [archive], unit, "its payload", [said])


def payload_bytes(op: Op) -> int:
    """What an operation says that was not said before."""
    match op:
        case Op("events", events):
            return sum(len(canonical(event)) for event in events)
        case Op("entry", entry):
            return len(canonical(entry))
        case Op("update", (_, _, published)):
            return len(canonical(published["data"]))
        case Op("snapshot", (state, _)):
            return len(canonical(state["steps"][-1]))
    return 0


def stored(room: Room, runs: list[str]) -> tuple[float, float]:
    """Bytes a run of our file, and of the archive beside it."""
    with room.folder() as folder:
        empty = write(room, folder, runs)
        size = settled_size(partition_path(folder / "data", 0))
        archive = archive_folder(folder / "data", 0)
        archived = sum(each.stat().st_size for each in archive.iterdir())
        return (size - empty) / len(runs), archived / len(runs)


def write(room: Room, folder: Path, runs: list[str]) -> int:
    """Have the loop write runs into `folder/data`; returns the bytes of the empty file."""
    messages = [each for run in runs for each in typical_commands(run)]
    with room.redis() as server, loop(folder / "data", server.url) as stepping:
        empty = settled_size(partition_path(folder / "data", 0))
        load(server, messages)
        left = len(messages)
        while left:
            left -= stepping.step()
    return empty


def seed0_stored(room: Room, runs: list[str]) -> float:
    """The same of the peer."""
    with room.folder() as folder:
        path = folder / "state.sqlite"
        store = Seed0(path, prepared=True)
        empty = settled_size(path)
        for run in runs:
            store.perform_all(run, typical_ops(run))
        store.close()
        return (settled_size(path) - empty) / len(runs)


def settled_size(path: Path) -> int:
    """Bytes of a file with nothing left in its WAL."""
    connection = apsw.Connection(str(path))
    try:
        # A connection that has read nothing does not know of the WAL, and moves nothing.
        connection.pragma("schema_version")
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        connection.close()
    return path.stat().st_size


def profile(room: Room) -> Iterator[str]:
    """Bytes of each table and index, and how much of that is payload."""
    runs = run_ids(1 if room.quick else RUNS)
    with room.folder() as folder:
        write(room, folder, runs)
        connection = open_reader(partition_path(folder / "data", 0))
        rows: list[tuple[Any, ...]] = connection.execute(
            "SELECT name, sum(pgsize), sum(payload), sum(ncell) FROM dbstat GROUP BY name"
            " ORDER BY sum(pgsize) DESC"
        ).fetchall()
        connection.close()
    yield f"{'table or index':<32}{'bytes/run':>12}{'in cells':>12}{'cells/run':>12}"
    for name, *sums in rows:
        yield f"{name:<32}" + "".join(f"{value / len(runs):>12,.0f}" for value in sums)
