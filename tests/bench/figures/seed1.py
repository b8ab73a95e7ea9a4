"""Saves per second of a workflow engine's whole document when one node changes.

Documents of 5, 20 and 100 nodes, 1 KB of input and 1 KB of output each, with a workflow of 30
nodes. Theirs: a repository of seed 1's shape, which writes all rows of the run at each save, in a
transaction each (WAL, FULL), called with parsed documents. Ours: the applier, called with encoded
messages (FULL) that hold the whole document, or a patch of what changed: a commit for up to 50
saves, as a busy daemon has them, and one for each save. A whole document has to be parsed whole, so
ours can not be free of its size as long as the host sends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter, process_time
from typing import Any, NamedTuple

import orjson

from tests.bench import stages
from tests.bench.peers.seed1 import Seed1
from tests.bench.room import Room
from tests.bench.table import Figure, at_least, compare
from tests.bench.workload import Packed, Sent, packed
from tests.bench.writing import applier, apply, as_read
from tests.support.engine import created, items, node, workflow_snapshot

RUN = "run-1"
TARGETS = {5: at_least(5), 20: at_least(10), 100: at_least(20)}
BATCH = 50

Document = dict[str, Any]


class Way(NamedTuple):
    """One way for an engine to say what changed; the first command creates the run."""

    name: str
    commands: Callable[[int, int], Iterator[Sent]]


def whole_documents(nodes: int, saves: int) -> Iterator[Sent]:
    """The whole document each time."""
    yield Sent("run.create", created(RUN))
    for state in documents(nodes, saves):
        yield Sent("run.snapshot", {"state": state})


def patches(nodes: int, saves: int) -> Iterator[Sent]:
    """The node that changed each time."""
    whole = whole_documents(nodes, saves)
    yield next(whole)
    yield next(whole)
    for save, (_, body) in enumerate(whole, 1):
        name = f"node-{save % nodes}"
        path = ["nodeSnapshotsByNodeId", name]
        value = body["state"]["nodeSnapshotsByNodeId"][name]
        yield Sent("run.patch", {"set": [{"path": path, "value": value}]})


WAYS = (Way("whole documents", whole_documents), Way("patches", patches))


class Took(NamedTuple):
    """Saves per second, and the processor milliseconds of each."""

    per_s: float
    cpu_ms: float


def measure(room: Room) -> Iterator[Figure]:
    """A row for each size and way; two of ours."""
    for nodes, target in TARGETS.items():
        saves = 10 if room.quick else 500 if nodes < 100 else 200
        states = [orjson.loads(orjson.dumps(state)) for state in documents(nodes, saves)]
        for way in WAYS:
            messages = list(packed(RUN, way.commands(nodes, saves)))
            theirs, batched, alone = [], [], []
            for _ in range(room.rounds):
                theirs.append(rewritten(room, states))
                batched.append(applied(room, messages, BATCH))
                alone.append(applied(room, messages, 1))
            name, peer = f"{nodes} nodes, {way.name}", "full rewrite, FULL"
            room.log(f"seed1: {name} {batched[-1].per_s:.0f}/s against {theirs[-1].per_s:.0f}/s")
            rates = [each.per_s for each in theirs]
            ours = [each.per_s for each in batched]
            yield compare(name, ours, "saves/s", peer, rates, target=target)
            one = [each.per_s for each in alone]
            yield compare(f"{name}, a commit each", one, "saves/s", peer, rates)
            yield compare(
                f"{name}, processor",
                [each.cpu_ms for each in batched],
                "CPU ms/save",
                peer,
                [each.cpu_ms for each in theirs],
                less_is_better=True,
            )


def documents(nodes: int, saves: int) -> Iterator[Document]:
    """States that follow each other: each changes one node's output."""
    snapshots = {f"node-{number}": _snapshot(f"node-{number}", 0) for number in range(nodes)}
    state = created(RUN)["state"] | {
        "status": "running",
        "queue": [],
        "outputsByNode": {},
        "workflowSnapshot": workflow_snapshot(30),
    }
    for save in range(saves):
        name = f"node-{save % nodes}"
        snapshots = snapshots | {name: _snapshot(name, save + 1)}
        yield state | {"nodeSnapshotsByNodeId": snapshots}


def _snapshot(name: str, save: int) -> Document:
    output = f"out {save} " * 110
    return node(
        RUN,
        name,
        f"act-{name}",
        inputsByPort={"in": items("i" * 1_000)},
        outputs={"main": items(output)},
    )


def rewritten(room: Room, states: Sequence[Document]) -> Took:
    """The peer, from the second save on: the first has to write all."""
    first, *saves = states
    with room.folder() as folder:
        store = Seed1(folder / "runs.sqlite")
        store.create(RUN, first)
        store.save(RUN, first, 0)
        started, busy = perf_counter(), process_time()
        for revision, state in enumerate(saves, 1):
            store.save(RUN, state, revision)
        took, used = perf_counter() - started, process_time() - busy
        store.close()
    return Took(len(saves) / took, used / len(saves) * 1000)


def applied(room: Room, messages: Sequence[Packed], batch: int) -> Took:
    """Ours, from the second save on."""
    create, first, *saves = as_read(messages)
    with room.folder() as folder, applier(folder / "data") as applying:
        apply(applying, [create, first])
        started, busy = perf_counter(), process_time()
        for place in range(0, len(saves), batch):
            apply(applying, saves[place : place + batch])
        took, used = perf_counter() - started, process_time() - busy
    return Took(len(saves) / took, used / len(saves) * 1000)


def profile(room: Room) -> Iterator[str]:
    """Where the time of a patch goes, and of a whole document, at 20 nodes."""
    for way in reversed(WAYS):
        yield f"\n{way.name}"
        messages = list(packed(RUN, way.commands(20, 20 if room.quick else 500)))
        yield from stages.of_work(room, messages)
