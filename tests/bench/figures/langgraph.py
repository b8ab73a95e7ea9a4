"""States of an agent's graph, against langgraph-checkpoint-sqlite's saver.

The same documents go to both, one after the other, from one thread of one process.

- *growing*: a thread of messages, each state longer by one of 0.9 KB, 500 states.
- *flat*: states of 4 KB of which everything but the keys is new each time, so that nothing of a
  state can be left out as known.

Theirs: `SqliteSaver.put` in the same process, a transaction each, WAL, synchronous FULL (SQLite's
default, which it does not change). Ours: `run.snapshot` of a producer, through a Redis with its AOF
on, a daemon in another process, synchronous FULL. The clock starts before the first call and stops
when the last state is *committed*, as seen in the file by a third party: not when it is accepted.
Our daemon also writes its archive meanwhile. Bytes are those of the database files with their logs
folded in; the archive (compressed, for replay) stands in the note.

What the host itself waits for is another figure: the sum of its calls.

What is not the same: each put of theirs is on disk before the next one begins, ours follow by some
milliseconds. That is what ours is for; a host that must wait calls with `confirm=True`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter, time
from typing import Any, NamedTuple

from producers import Producer
from tests.bench.outside import stored_bytes
from tests.bench.peers.saver import saver
from tests.bench.room import Room
from tests.bench.table import Figure, at_least, compare
from tests.bench.writing import daemon
from tests.support.workload import text
from writer.store.partition import partition_path

GROWING = 500
FLAT = 3_000
MESSAGE_CHARS = 820
FLAT_CHARS = 960

State = dict[str, Any]
States = Callable[[], Iterator[State]]


class Took(NamedTuple):
    """Seconds until all is committed, seconds within calls, bytes of database and archive."""

    whole_s: float
    calls_s: float
    stored: int
    archived: int = 0


def growing(count: int) -> Iterator[State]:
    """A list that gains a message per state: each a list of its own, as a graph makes them."""
    messages: list[State] = []
    for number in range(count):
        said = {"id": f"m{number}", "type": "ai", "content": text(number, MESSAGE_CHARS)}
        messages = [*messages, said]
        yield {"messages": messages}


def flat(count: int) -> Iterator[State]:
    """Four texts of a kilobyte, new in each state."""
    for number in range(count):
        yield {f"part-{part}": text(4 * number + part, FLAT_CHARS) for part in range(4)}


def theirs(room: Room, states: list[State]) -> Took:
    """Put them all."""
    with room.folder() as folder:
        path = folder / "saver.sqlite"
        with saver(path) as put:
            started = perf_counter()
            for number, state in enumerate(states):
                put(number, state)
            took = perf_counter() - started
        return Took(took, took, stored_bytes(path))


def ours(room: Room, states: list[State]) -> Took:
    """Say them all, and wait until the last one is committed."""
    with room.folder() as folder, room.redis() as server:
        data = folder / "data"
        spool = folder / "spool"
        with daemon(data, server.url) as writer, Producer(server.url, spool=spool) as producer:
            run = producer.create_run("bench", run_id="bench")
            writer.settled_at(1)
            started = time()
            for state in states:
                run.snapshot(state)
            called = time() - started
            whole = writer.settled_at(1 + len(states)) - started
        return Took(whole, called, stored_bytes(partition_path(data, 0)), _size(data / "archive"))


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measure(room: Room) -> Iterator[Figure]:
    """Time and bytes of growing states, rate of flat ones, and what the host waits for."""
    peer = "langgraph-checkpoint-sqlite put"
    states = list(growing(50 if room.quick else GROWING))
    room.log(f"langgraph: {len(states)} growing states, in turns")
    pairs = [(ours(room, states), theirs(room, states)) for _ in range(room.rounds)]
    kept = f"our archive beside it: {pairs[0][0].archived / 1e6:.1f} MB"
    mine, other = [a for a, _ in pairs], [b for _, b in pairs]
    yield compare(
        f"growing state, {len(states)} snapshots: until committed",
        [each.whole_s for each in mine],
        "s",
        peer,
        [each.whole_s for each in other],
        less_is_better=True,
        target=at_least(10),
    )
    yield compare(
        f"growing state, {len(states)} snapshots: the host's calls",
        [each.calls_s for each in mine],
        "s",
        peer,
        [each.calls_s for each in other],
        less_is_better=True,
        note="ours: accepted into the producer's buffer",
    )
    yield compare(
        f"growing state, {len(states)} snapshots: stored",
        [each.stored / 1e6 for each in mine],
        "MB",
        peer,
        [each.stored / 1e6 for each in other],
        less_is_better=True,
        target=at_least(50),
        note=kept,
    )
    states = list(flat(300 if room.quick else FLAT))
    room.log(f"langgraph: {len(states)} flat states of 4 KB, in turns")
    pairs = [(ours(room, states), theirs(room, states)) for _ in range(room.rounds)]
    yield compare(
        "flat 4 KB states: committed",
        [len(states) / mine.whole_s for mine, _ in pairs],
        "states/s",
        peer,
        [len(states) / other.whole_s for _, other in pairs],
        target=at_least(3),
    )
