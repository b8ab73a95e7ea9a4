"""Typical agent runs per second, one partition, against a store with a transaction per operation.

A typical run is 483 commands with 1.3 MB of payload in their parts; on the wire about 2.3 MB if its
40 snapshots bring the whole state, as here unless a row says "patches": then they bring what
changed, as our producers send it. Ours: `statewriter daemon` as it ships (FULL, archive on), from a
preloaded Redis, timed from the moment when it takes the partition to the commit of the last
message: reading, decoding, deciding, archiving and trimming are inside. Theirs: a store of seed 0's
shape, called in process with parsed values (FULL, no Redis, nothing to decode): kinder to it than
to us. It prepares its SQL at each use, as seed 0 does; a row tells what it does with statements
that are kept. `applier` is ours called in process with encoded messages, 500 in a transaction: no
Redis and no archive on either side. Processor time is what a busy machine leaves comparable.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from time import perf_counter, process_time

from tests.bench import stages
from tests.bench.peers.seed0 import Took, timed
from tests.bench.room import Room, Skip
from tests.bench.table import Figure, at_least, compare, skipped
from tests.bench.workload import Packed, load, run_ids, typical_commands
from tests.bench.writing import applier, apply, as_read, daemon
from tests.support.processes import TOP

RUNS = 40
PEER_RUNS = 2
PROFILED = 10
BATCH = 500


def measure(room: Room) -> Iterator[Figure]:
    """Each way of ours beside the peer, then the kinder peer, the applier, processor time."""
    runs = run_ids(2 if room.quick else RUNS)
    room.log(f"runs: making the commands of {len(runs)} runs, twice")
    whole = interleaved([each for run in runs for each in typical_commands(run)])
    patched = interleaved([each for run in runs for each in typical_commands(run, patches=True)])
    peers = run_ids(1 if room.quick else PEER_RUNS)
    took: dict[str, list[Took]] = {}
    for _ in range(room.rounds):
        for name, one in {
            "seed 0": seed0(room, peers),
            "seed 0, statements kept": seed0(room, peers, prepared=True),
            "whole": daemon_from_redis(room, whole, len(runs)),
            "patches": daemon_from_redis(room, patched, len(runs)),
            "applier": applier_in_process(room, whole, len(runs)),
        }.items():
            took.setdefault(name, []).append(one)
        said = ", ".join(f"{name} {last[-1].per_s:.2f}/s" for name, last in took.items())
        room.log(f"runs: {said}")
    yield from told(took)
    yield slowed(room, whole, runs, peers)


def told(took: dict[str, list[Took]]) -> Iterator[Figure]:
    """The rows of what was measured."""
    rates = {name: [each.per_s for each in samples] for name, samples in took.items()}
    peer, unit, theirs = "seed-0 store, FULL", "runs/s", rates["seed 0"]
    kinder = rates["seed 0, statements kept"]
    target = at_least(25)
    yield compare("typical runs", rates["whole"], unit, peer, theirs, target=target)
    yield compare("typical runs, patches", rates["patches"], unit, peer, theirs, target=target)
    yield compare("typical runs", rates["whole"], unit, f"{peer}, statements kept", kinder)
    yield compare("typical runs, applier", rates["applier"], unit, peer, theirs)
    for name, way in (("typical runs", "whole"), ("typical runs, patches", "patches")):
        yield compare(
            f"{name}, processor",
            [each.cpu_ms for each in took[way]],
            "CPU ms/run",
            peer,
            [each.cpu_ms for each in took["seed 0"]],
            less_is_better=True,
            note="Redis' own time not counted, nor the syncs that theirs waits for",
        )


def slowed(room: Room, messages: list[Packed], runs: list[str], peers: list[str]) -> Figure:
    """Both on a disk whose every sync takes 2 ms longer."""
    name = "typical runs, +2 ms"
    try:
        environment = room.slow_sync()
    except Skip as why:
        return skipped(name, str(why))
    ours, theirs = [], []
    for _ in range(room.rounds):
        theirs.append(seed0_slowed(room, peers, environment))
        ours.append(daemon_from_redis(room, messages, len(runs), environment).per_s)
    return compare(name, ours, "runs/s", "seed-0 store, FULL, +2 ms", theirs)


def interleaved(messages: list[Packed]) -> list[Packed]:
    """The runs' messages in turns, as hosts send that work at the same time."""
    by_run: dict[str, list[Packed]] = {}
    for each in messages:
        by_run.setdefault(each.run, []).append(each)
    longest = max(map(len, by_run.values()))
    return [own[at] for at in range(longest) for own in by_run.values() if at < len(own)]


def seed0(room: Room, runs: list[str], *, prepared: bool = False) -> Took:
    """The peer."""
    with room.folder() as folder:
        return timed(folder / "state.sqlite", runs, prepared=prepared)


def seed0_slowed(room: Room, runs: list[str], environment: dict[str, str]) -> float:
    """The peer in a process of its own, on a slower disk."""
    with room.folder() as folder:
        command = [
            sys.executable,
            "-m",
            "tests.bench.peers.seed0",
            str(folder / "state.sqlite"),
            *runs,
        ]
        done = subprocess.run(command, env=environment, cwd=TOP, capture_output=True, check=True)
        return float(done.stdout)


def daemon_from_redis(
    room: Room,
    messages: list[Packed],
    runs: int,
    environment: dict[str, str] | None = None,
) -> Took:
    """The daemon, from a preloaded Redis."""
    with room.folder() as folder, room.redis() as server:
        load(server, messages)
        with daemon(folder / "data", server.url, environment=environment) as running:
            took = running.settled_at(len(messages)) - running.taken_at()
            return Took(runs / took, running.cpu_s() / runs * 1000)


def applier_in_process(room: Room, messages: list[Packed], runs: int) -> Took:
    """The applier alone."""
    read = as_read(messages)
    with room.folder() as folder, applier(folder / "data") as applying:
        started, used = perf_counter(), process_time()
        for first in range(0, len(read), BATCH):
            apply(applying, read[first : first + BATCH])
        took, busy = perf_counter() - started, process_time() - used
    return Took(runs / took, busy / runs * 1000)


def profile(room: Room) -> Iterator[str]:
    """Where the time of a typical run goes."""
    runs = run_ids(1 if room.quick else PROFILED)
    yield from stages.all_of(room, interleaved([m for run in runs for m in typical_commands(run)]))
