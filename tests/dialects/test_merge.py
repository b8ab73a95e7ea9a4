"""How stale saves of a workflow engine become one with what happened meanwhile."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine import Engine, at, call, items, node, pending
from tests.support.world import FileWorld
from writer.dialects.codemation import Codemation

RUN = "run-1"
Document = dict[str, Any]
merge = Codemation().merge


def entry(name: str, *values: Any, **more: Any) -> Document:
    return {"nodeId": name, "input": items(*values), "batchId": "b", **more}


def collect(**received: list[Document]) -> Document:
    waits = {"expectedInputs": ["a", "b", "c"], "received": received}
    return {"nodeId": "join", "input": [], "batchId": "b", "collect": waits}


@pytest.mark.parametrize(
    "base, theirs, latest, merged",
    [
        # Both took the first entry away; each added one.
        (["x", "y"], ["y", "t"], ["y", "l"], ["y", "l", "t"]),
        # The sender took one that the other left alone.
        (["x", "y"], ["y"], ["x", "y", "l"], ["y", "l"]),
        # The sender changed nothing.
        (["x"], ["x"], ["l"], ["l"]),
        # Only the sender changed something, the order included.
        (["x", "y"], ["y", "x", "t"], ["x", "y"], ["y", "x", "t"]),
        # One of two equal entries was taken.
        (["x", "x"], ["x"], ["x", "x", "l"], ["x", "l"]),
        (["x"], [], [], []),
    ],
    ids=str,
)
def test_queue_entries_are_known_by_what_they_are(
    base: list[str], theirs: list[str], latest: list[str], merged: list[str]
) -> None:
    queues = [{"queue": [entry(name) for name in each]} for each in (base, theirs, latest)]
    assert merge(*queues) == {"queue": [entry(name) for name in merged]}


def test_a_collect_takes_the_inputs_of_both() -> None:
    base = {"queue": [collect(a=items(1))]}
    theirs = {"queue": [collect(a=items(1), b=items(2))]}
    latest = {"queue": [collect(a=items(1), c=items(3)), entry("n")]}
    merged = [collect(a=items(1), c=items(3), b=items(2)), entry("n")]
    assert merge(base, theirs, latest) == {"queue": merged}


A, B = ("act-1", "running", 1), ("act-1", "running", 5)
DONE, DONE_LATER = ("act-1", "completed", 2), ("act-1", "failed", 6)
NEXT, NEXT_DONE = ("act-2", "queued", 0), ("act-2", "completed", 0)


@pytest.mark.parametrize(
    "base, theirs, latest, merged",
    [
        (A, B, A, B),
        (A, A, B, B),
        (A, B, DONE, DONE),
        (A, DONE, B, DONE),
        (A, DONE, DONE_LATER, DONE_LATER),
        (A, DONE_LATER, DONE, DONE_LATER),
        (None, A, B, B),
        (None, ("act-1", "running", 5), ("act-1", "queued", 5), ("act-1", "running", 5)),
        # The node has gone on to another activation: an end of the earlier one is history.
        (A, NEXT, DONE, NEXT),
        (A, DONE, NEXT, NEXT),
        (A, NEXT, ("act-3", "running", 0), NEXT),
        (A, NEXT_DONE, ("act-3", "running", 9), NEXT_DONE),
        # Taken away by one, changed by the other: the later in the stream.
        (A, None, DONE, None),
        (A, DONE, None, DONE),
    ],
    ids=str,
)
def test_of_two_node_snapshots_the_whole_of_one_counts(
    base: Any, theirs: Any, latest: Any, merged: Any
) -> None:
    def state(one: Any) -> Document:
        if one is None:
            return {"nodeSnapshotsByNodeId": {}}
        activation, status, second = one
        snapshot = node(RUN, "a", activation, status, updatedAt=at(second))
        return {"nodeSnapshotsByNodeId": {"a": snapshot}}

    assert merge(*map(state, (base, theirs, latest))) == state(merged)


def test_calls_of_both_are_kept_and_one_that_was_left_out_goes() -> None:
    old, gone = call(RUN, "old", status="running"), call(RUN, "gone")
    base = {"connectionInvocations": [old, gone]}
    theirs = {"connectionInvocations": [call(RUN, "old"), call(RUN, "t")]}
    latest = {"connectionInvocations": [old | {"statusLabel": "x"}, gone, call(RUN, "l")]}
    merged = merge(base, theirs, latest)["connectionInvocations"]
    assert merged == [call(RUN, "old"), call(RUN, "l"), call(RUN, "t")]


def test_two_activations_under_way_are_not_mixed() -> None:
    base = {"pending": pending(RUN, "a", "act-1")}
    theirs = {"pending": pending(RUN, "b", "act-2", queue="workers")}
    latest = {"pending": pending(RUN, "c", "act-3", "b3")}
    assert merge(base, theirs, latest) == theirs
    assert merge(base, base, {}) == {}
    changed = {"pending": pending(RUN, "a", "act-1", itemsIn=2)}
    labelled = {"pending": pending(RUN, "a", "act-1", queue="q")}
    both = {"pending": pending(RUN, "a", "act-1", itemsIn=2, queue="q")}
    assert merge(base, changed, labelled) == both


def test_objects_of_any_depth_are_merged_member_by_member() -> None:
    base = {"mutableState": {"nodesById": {"a": {"x": 1}, "b": {"x": 1}}}, "extra": {"deep": {}}}
    theirs = {"mutableState": {"nodesById": {"a": {"x": 2}, "b": {"x": 1}}}, "extra": {"deep": {}}}
    latest = {"mutableState": {"nodesById": {"a": {"x": 1, "y": 1}}}, "extra": {"deep": {"z": 1}}}
    assert merge(base, theirs, latest) == {
        "mutableState": {"nodesById": {"a": {"x": 2, "y": 1}}},
        "extra": {"deep": {"z": 1}},
    }


def test_two_workers_that_save_in_turn_lose_nothing_of_each_other(tmp_path: Path) -> None:
    """A worker goes on with its document while its own saves are the only ones, and loads again
    once a save made another revision than the next: so half of the saves are stale.
    """
    world = FileWorld(tmp_path)
    engine = Engine(world)
    engine.create()
    chance = random.Random(7)
    seen: list[Document | None] = [None, None]
    taken: list[str] = []
    added: list[str] = []
    merged = 0
    for step in range(150):
        worker = chance.randrange(2)
        state = seen[worker] or engine.load()
        name = f"{worker}-{step}"
        queue = [*state["queue"], entry(name)]
        # Each works on what it added itself, as engines share a run by claiming what they take.
        mine = [each for each in queue if each["nodeId"].startswith(f"{worker}-")]
        if chance.random() < 0.3:
            queue.remove(mine[0])
            taken.append(mine[0]["nodeId"])
        changed = state | {
            "nodeSnapshotsByNodeId": {
                **state["nodeSnapshotsByNodeId"],
                name: node(RUN, name, f"act-{name}"),
            },
            "outputsByNode": {**state["outputsByNode"], name: {"main": items(step)}},
            "queue": queue,
            "connectionInvocations": [
                *state.get("connectionInvocations", []),
                call(RUN, name),
            ],
        }
        outcome = engine.save(changed)
        assert outcome.kind == "applied"
        added.append(name)
        alone = outcome.revision == state["revision"] + 1
        merged += not alone
        seen[worker] = changed | {"revision": outcome.revision} if alone else engine.load()
    state = engine.load()
    assert merged > 30
    assert sorted(state["nodeSnapshotsByNodeId"]) == sorted(added)
    assert sorted(state["outputsByNode"]) == sorted(added)
    assert [each["invocationId"] for each in state["connectionInvocations"]] == added
    assert len(taken) == len(set(taken))
    left = [each["nodeId"] for each in state["queue"]]
    assert sorted(left) == sorted(set(added) - set(taken))
    world.close()
