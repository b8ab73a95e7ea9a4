"""Typical agent runs per second, one partition, against a store with a transaction per operation.

A typical run is 483 commands, 1.3 MB of payload in its parts, about 2 MB on the wire, since each of
its 40 snapshots brings the whole state. Ours: the daemon as it ships (FULL, archive on), from a
preloaded Redis, timed from the moment when it takes the partition to the commit of the last
message: reading, decoding, deciding, archiving and trimming are inside. Theirs: a store of seed 0's
shape, called in process with parsed values (FULL, no Redis, nothing to decode): kinder to it than
to us. It prepares its SQL at each use, as seed 0 does; a row tells what it does with statements
that are kept. `applier in process` is our applier called with encoded messages, 500 in a
transaction: no Redis and no archive on either side. Processor time is what a busy machine leaves
comparable.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter, process_time
from typing import Any, NamedTuple

from tests.bench import stages
from tests.bench.peers.seed0 import Seed0
from tests.bench.room import Room
from tests.bench.table import Figure, at_least, compare
from tests.bench.workload import Packed, load, run_ids, typical_commands, typical_ops
from tests.bench.writing import applier, as_read, daemon
from tests.support.world import START_MS

RUNS = 40
PEER_RUNS = 2
PROFILED = 10
BATCH = 500


def measure(room: Room) -> Iterator[Figure]:
    """Rates, then processor time."""
    runs = run_ids(2 if room.quick else RUNS)
    room.log(f"runs: making the commands of {len(runs)} runs")
    spread = interleaved([each for run in runs for each in typical_commands(run)])
    peers = run_ids(1 if room.quick else PEER_RUNS)
    looped, alone, theirs, kept = [], [], [], []
    for _ in range(room.rounds):
        theirs.append(seed0(room, peers))
        kept.append(seed0(room, peers, prepared=True))
        looped.append(daemon_from_redis(room, spread, len(runs)))
        alone.append(applier_in_process(room, spread, len(runs)))
        shown = ", ".join(f"{last[-1].per_s:.2f}/s" for last in (looped, alone, theirs, kept))
        room.log(f"runs: daemon, applier, seed-0 store, the same with statements kept: {shown}")
    name, peer = "typical runs, daemon from Redis", "seed-0 store, FULL"
    yield compare(name, rates(looped), "runs/s", peer, rates(theirs), target=at_least(25))
    yield compare(name, rates(looped), "runs/s", f"{peer}, statements kept", rates(kept))
    yield compare("typical runs, applier", rates(alone), "runs/s", peer, rates(theirs))
    yield compare(
        f"{name}, processor",
        [each.cpu_ms for each in looped],
        "CPU ms/run",
        peer,
        [each.cpu_ms for each in theirs],
        less_is_better=True,
        note="Redis' own time not counted, nor the syncs that theirs waits for",
    )


class Took(NamedTuple):
    """Runs per second, and the processor milliseconds of each."""

    per_s: float
    cpu_ms: float


def interleaved(messages: list[Packed]) -> list[Packed]:
    """The runs' messages in turns, as hosts send that work at the same time."""
    by_run: dict[str, list[Packed]] = {}
    for each in messages:
        by_run.setdefault(each.run, []).append(each)
    longest = max(map(len, by_run.values()))
    return [own[at] for at in range(longest) for own in by_run.values() if at < len(own)]


def rates(samples: list[Took]) -> list[float]:
    """Runs per second of each round."""
    return [each.per_s for each in samples]


def seed0(room: Room, runs: list[str], *, prepared: bool = False) -> Took:
    """The peer; making the workload's values is not counted."""
    took = busy = 0.0
    with room.folder() as folder:
        store = Seed0(folder / "state.sqlite", prepared=prepared)
        for run in runs:
            state: Any = None
            for operation in typical_ops(run):
                state = operation.payload[1] if state is None else state
                started, used = perf_counter(), process_time()
                store.perform(run, state, operation)
                took += perf_counter() - started
                busy += process_time() - used
        store.close()
    return Took(len(runs) / took, busy / len(runs) * 1000)


def daemon_from_redis(room: Room, messages: list[Packed], runs: int) -> Took:
    """The daemon, from a preloaded Redis."""
    with room.folder() as folder, room.redis() as server:
        load(server, messages)
        with daemon(folder / "data", server.url) as running:
            took = running.settled_at(len(messages)) - running.taken_at()
            return Took(runs / took, running.cpu_s() / runs * 1000)


def applier_in_process(room: Room, messages: list[Packed], runs: int) -> Took:
    """The applier alone."""
    read = as_read(messages)
    with room.folder() as folder, applier(folder / "data") as applying:
        started, used = perf_counter(), process_time()
        for first in range(0, len(read), BATCH):
            applying.apply(read[first : first + BATCH], now=START_MS)
        took, busy = perf_counter() - started, process_time() - used
    return Took(runs / took, busy / runs * 1000)


def profile(room: Room) -> Iterator[str]:
    """Where the time of a typical run goes."""
    runs = run_ids(1 if room.quick else PROFILED)
    yield from stages.all_of(room, interleaved([m for run in runs for m in typical_commands(run)]))
