"""How the time and the bytes of a snapshot grow with the state when one step changes in it.

A run gains a step of about 1 KB with each snapshot. The applier is called in process with one
encoded message a transaction, a whole snapshot or a patch of what changed. Times are the
processor's, and the median of a window around so many steps: a sync, which costs the same at every
size, would only flatter the ratio. A full snapshot crosses the wire whole, so reading it can not be
free of the state's size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median
from time import process_time
from typing import NamedTuple

from tests.bench import stages
from tests.bench.figures.bytes import settled_size
from tests.bench.peers.seed0 import Seed0
from tests.bench.room import Room
from tests.bench.table import Figure, Target, at_most, compare
from tests.bench.workload import (
    Op,
    Sent,
    base_state,
    command,
    growth_states,
    packed,
    patch,
    workflow,
)
from tests.bench.writing import applier, apply, as_read
from tests.support.workload import canonical
from writer.store.partition import partition_path

RUN = "run-1"
FEW, MANY = 50, 800
WINDOW = 20
PEER_STEPS = 200


class Way(NamedTuple):
    """One way for a host to say what changed; the first command creates the run."""

    name: str
    commands: Callable[[int], Iterator[Sent]]
    target: Target


def full_snapshots(steps: int) -> Iterator[Sent]:
    """The whole state each time."""
    yield command(Op("init", (workflow(), base_state(RUN))))
    for state, draft in growth_states(RUN, steps):
        yield command(Op("snapshot", (state, draft)))


def patches(steps: int) -> Iterator[Sent]:
    """What changed each time."""
    yield command(Op("init", (workflow(), base_state(RUN))))
    for state, draft in growth_states(RUN, steps):
        yield patch(Op("snapshot", (state, draft)))


WAYS = (
    Way("full snapshots", full_snapshots, at_most(8)),
    Way("patches", patches, at_most(1.3)),
)


def measure(room: Room) -> Iterator[Figure]:
    """Time and bytes of each way."""
    few, many = (10, 30) if room.quick else (FEW, MANY)
    said = sum(len(canonical(state["steps"][-1])) for state, _ in growth_states(RUN, many))
    for way in WAYS:
        at_few, at_many, sizes = [], [], []
        for _ in range(room.rounds):
            times, size = apply_all(room, way, many)
            at_few.append(around(times, few))
            at_many.append(around(times, many))
            sizes.append(size)
            room.log(
                f"growth: {way.name} {at_many[-1]:.2f} ms at {many}, {at_few[-1]:.2f} at {few}"
            )
        yield compare(
            f"growth, {way.name}, at {many} steps",
            at_many,
            "CPU ms/snapshot",
            f"at {few} steps",
            at_few,
            target=way.target,
        )
        yield compare(
            f"growth, {way.name}, stored at {many} steps",
            sizes,
            "bytes",
            "payload of the steps",
            [said] * len(sizes),
        )
    yield from against_seed0(room)


def around(times: list[float], step: int) -> float:
    """The median of a window that ends at a step; ms."""
    return median(times[max(step - WINDOW, 0) : step]) * 1000


def apply_all(room: Room, way: Way, steps: int) -> tuple[list[float], float]:
    """Processor seconds of each snapshot, and the bytes of the file in the end."""
    times = []
    with room.folder() as folder:
        path = partition_path(folder / "data", 0)
        with applier(folder / "data") as applying:
            empty = settled_size(path)
            for place, message in enumerate(packed(RUN, way.commands(steps))):
                (read,) = as_read([message], first=place)
                started = process_time()
                apply(applying, [read])
                times.append(process_time() - started)
        return times[1:], settled_size(path) - empty


def against_seed0(room: Room) -> Iterator[Figure]:
    """The same growth in a store that keeps each state whole: fewer steps, it is quadratic."""
    steps = 20 if room.quick else PEER_STEPS
    _, ours = apply_all(room, WAYS[0], steps)
    with room.folder() as folder:
        path = folder / "state.sqlite"
        store = Seed0(path, prepared=True)
        empty = settled_size(path)
        state = base_state(RUN)
        store.perform(RUN, state, Op("init", (workflow(), state)))
        for state, draft in growth_states(RUN, steps):
            store.perform(RUN, state, Op("snapshot", (state, draft)))
        store.close()
        theirs = settled_size(path) - empty
    yield compare(
        f"growth, {WAYS[0].name}, stored at {steps} steps",
        [ours],
        "bytes",
        "seed-0 store",
        [theirs],
        less_is_better=True,
    )


def profile(room: Room) -> Iterator[str]:
    """Where the time of a patch goes, and of a whole snapshot."""
    for way in reversed(WAYS):
        yield f"\n{way.name}"
        yield from stages.of_work(room, list(packed(RUN, way.commands(20 if room.quick else 200))))
