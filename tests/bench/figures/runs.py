"""Typical agent runs per second, one partition, against a store with a transaction per operation.

A typical run is 483 commands, 1.3 MB of payload in its parts, about 2 MB on the wire, since each of
its 40 snapshots brings the whole state. Ours: the daemon as it ships (FULL, archive on), from a
preloaded Redis, timed from the moment when it takes the partition to the commit of the last
message: reading, decoding, deciding, archiving and trimming are inside. Theirs: a store of seed 0's
shape, called in process with parsed values (FULL, no Redis, nothing to decode): kinder to it than
to us. The second row is our applier called in process with encoded messages, 500 in a transaction:
no Redis and no archive on either side.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

from tests.bench.peers.seed0 import Seed0
from tests.bench.room import Room
from tests.bench.table import Figure, at_least, compare
from tests.bench.workload import Packed, load, run_ids, typical_commands, typical_ops
from tests.bench.writing import applier, as_read, daemon
from tests.support.world import START_MS

RUNS = 40
PEER_RUNS = 3
BATCH = 500


def measure(room: Room) -> Iterator[Figure]:
    """Both rows."""
    runs = run_ids(2 if room.quick else RUNS)
    room.log(f"runs: making the commands of {len(runs)} runs")
    messages = [each for run in runs for each in typical_commands(run)]
    spread = interleaved(messages)
    peers = run_ids(1 if room.quick else PEER_RUNS)
    loops, alone, theirs = [], [], []
    for _ in range(room.rounds):
        theirs.append(seed0_rate(room, peers))
        loops.append(daemon_rate(room, spread, len(runs)))
        alone.append(applier_rate(room, spread, len(runs)))
        room.log(
            f"runs: {loops[-1]:.1f} and {alone[-1]:.1f}/s, a store like seed 0 {theirs[-1]:.2f}"
        )
    peer = "seed-0 tables, a transaction per operation, FULL"
    yield compare(
        "typical runs, daemon from Redis", loops, "runs/s", peer, theirs, target=at_least(25)
    )
    yield compare("typical runs, applier in process", alone, "runs/s", peer, theirs)


def interleaved(messages: list[Packed]) -> list[Packed]:
    """The runs' messages in turns, as hosts send that work at the same time."""
    by_run: dict[str, list[Packed]] = {}
    for each in messages:
        by_run.setdefault(each.run, []).append(each)
    longest = max(map(len, by_run.values()))
    return [own[at] for at in range(longest) for own in by_run.values() if at < len(own)]


def seed0_rate(room: Room, runs: list[str]) -> float:
    """Runs per second of the peer; making the workload's values is not counted."""
    took = 0.0
    with room.folder() as folder:
        store = Seed0(folder / "state.sqlite")
        for run in runs:
            operations = typical_ops(run)
            first = next(operations)
            state = first.payload[1]
            started = perf_counter()
            store.perform(run, state, first)
            took += perf_counter() - started
            for operation in operations:
                started = perf_counter()
                store.perform(run, state, operation)
                took += perf_counter() - started
        store.close()
    return len(runs) / took


def daemon_rate(room: Room, messages: list[Packed], runs: int) -> float:
    """Runs per second of the daemon."""
    with room.folder() as folder, room.redis() as server:
        load(server, messages)
        with daemon(folder / "data", server.url) as running:
            took = running.settled_at(len(messages)) - running.taken_at()
    return runs / took


def applier_rate(room: Room, messages: list[Packed], runs: int) -> float:
    """Runs per second of the applier alone."""
    read = as_read(messages)
    with room.folder() as folder, applier(folder / "data") as applying:
        started = perf_counter()
        for first in range(0, len(read), BATCH):
            applying.apply(read[first : first + BATCH], now=START_MS)
        return runs / (perf_counter() - started)
