"""Patches: a state that travels as what changed, against the same state sent whole."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.contract.commands import Patch
from producers.contract.limits import BODY_BYTES_MAX
from tests.support.world import DUPLICATE, CoreWorld, StoredWorld, World
from writer.core.parts import Size, change, difference, digest, document, size
from writer.core.patch import Mismatch, patched
from writer.dialects import DIALECTS

RUN = "run-1"
GENERIC = DIALECTS["generic"]
BIG = "x" * 1_500


def steps(count: int) -> list[dict[str, Any]]:
    return [{"id": number, "output": f"{number} {BIG}"} for number in range(count)]


def appended(place: int, item: Any, name: str = "steps") -> dict[str, Any]:
    return {"path": [name], "length": place, "start": place, "delete": 0, "items": [item]}


def state_of(world: StoredWorld, run: str = RUN) -> Any:
    state = world.reader.state(run)
    assert state is not None
    return state


def test_a_patch_leaves_what_a_snapshot_would_have(stored: StoredWorld) -> None:
    stored.must(RUN, "run.create", {"state": {"status": "running", "steps": steps(3), "old": 1}})
    body = {
        "base": 1,
        "remove": [["old"]],
        "set": [
            {"path": ["status"], "value": "waiting"},
            {"path": ["steps", 1, "output"], "value": [BIG, None]},
            {"path": ["new"], "value": {"a": 1.0}},
        ],
        "splice": [appended(3, steps(4)[3])],
        "event": {"type": "step_done", "payload": {"n": 4}},
    }
    assert stored.must(RUN, "run.patch", body).revision == 2
    expected = {"status": "waiting", "steps": steps(4), "new": {"a": 1.0}}
    expected["steps"][1]["output"] = [BIG, None]
    assert state_of(stored) == expected
    assert stored.types(RUN) == ["run.create", "step_done"]
    run = stored.reader.run(RUN)
    assert run is not None
    assert run["status"] == "waiting"


def test_patches_build_on_each_other_and_rows_follow_what_changed(stored: StoredWorld) -> None:
    stored.must(RUN, "run.create", {"state": {"steps": steps(40)}})
    for place in range(40, 60):
        before = len(stored.all("state_parts", RUN))
        stored.must(RUN, "run.patch", {"base": place - 39, "splice": [appended(place, {"n": 1})]})
        # The array's row and the new step's.
        assert len(stored.all("state_parts", RUN)) == before + 2
    assert len(state_of(stored)["steps"]) == 60


@pytest.mark.parametrize(
    "between",
    [
        ("run.snapshot", {"state": {"other": 1}}, "q"),
        ("run.snapshot", {"state": {"later": 1}}, "p"),
        ("run.interrupt", {}, "q"),
    ],
    ids=["another producer's", "a later one of its own", "the writer's own"],
)
def test_only_the_latest_state_can_be_patched(world: World, between: Any) -> None:
    kind, body, producer = between
    world.must(RUN, "run.create", {"state": {"status": "running"}})
    world.must(RUN, kind, body, producer=producer)
    if kind == "run.interrupt":
        world.must(RUN, "run.reset", {}, producer=producer)
    patch = {"base": 1, "set": [{"path": ["a"], "value": 1}]}
    assert world.apply(RUN, "run.patch", patch).reason == "base_changed"


def test_what_does_not_touch_the_state_does_not_matter(world: World) -> None:
    world.must(RUN, "run.create", {"state": {"n": 1}})
    world.must(RUN, "run.update", {"type": "note", "key": "k", "data": {}}, producer="q")
    world.must(RUN, "run.annotate", {"title": "t"}, producer="q")
    world.must(RUN, "run.resume", {}, producer="q")
    world.must(RUN, "run.patch", {"base": 1, "set": [{"path": ["n"], "value": 2}]})


def test_a_merged_state_is_nobodys(world: World) -> None:
    world.must(RUN, "run.create", {"state": {"a": 1, "b": 1}})
    world.must(RUN, "run.snapshot", {"state": {"a": 2, "b": 1}}, producer="q")
    merged = {"state": {"a": 1, "b": 2}, "expected_revision": 1, "on_conflict": "merge"}
    world.must(RUN, "run.snapshot", merged)
    patch = {"base": 2, "set": [{"path": ["b"], "value": 3}]}
    assert world.apply(RUN, "run.patch", patch).reason == "base_changed"


def test_a_refused_patch_breaks_the_chain_and_a_snapshot_mends_it(world: World) -> None:
    world.must(RUN, "run.create", {"state": {"n": 0}})
    wrong = {"base": 1, "set": [{"path": ["none", "n"], "value": 1}]}
    outcome = world.apply(RUN, "run.patch", wrong)
    assert (outcome.reason, outcome.detail) == ("base_changed", "none.n")
    next_one = {"base": 2, "set": [{"path": ["n"], "value": 2}]}
    assert world.apply(RUN, "run.patch", next_one).reason == "base_changed"
    world.must(RUN, "run.snapshot", {"state": {"n": 3}})
    world.must(RUN, "run.patch", {"base": 4, "set": [{"path": ["n"], "value": 4}]})


def test_a_patch_sent_again_is_a_duplicate_and_a_late_one_is_superseded(world: World) -> None:
    world.must(RUN, "run.create", {"state": {"n": 0}})
    patch = {"base": 1, "set": [{"path": ["n"], "value": 1}]}
    sent = world.send(RUN, "run.patch", patch)
    world.settle()
    world.resend(sent)
    assert world.settle() == [DUPLICATE]
    world.must(RUN, "run.snapshot", {"state": {"n": 5}}, seq=4)
    assert world.apply(RUN, "run.patch", patch, seq=3).reason == "superseded"


@pytest.mark.parametrize(
    "edit",
    [
        {"remove": [["list", 0]]},
        {"remove": [["n", "deeper"]]},
        {"set": [{"path": ["list", 2], "value": 1}]},
        {"set": [{"path": ["list", "0"], "value": 1}]},
        {"set": [{"path": ["map", 0], "value": 1}]},
        {"set": [{"path": [0], "value": 1}]},
        {"splice": [{"path": ["map"], "length": 1, "start": 0, "delete": 0, "items": []}]},
        {"splice": [{"path": ["list"], "length": 3, "start": 0, "delete": 0, "items": []}]},
        {"splice": [{"path": ["list"], "length": 2, "start": 1, "delete": 2, "items": []}]},
    ],
    ids=str,
)
@pytest.mark.parametrize("large", [False, True], ids=["in one part", "in many"])
def test_an_edit_that_does_not_fit_refuses_the_whole(
    world: World, edit: dict[str, Any], large: bool
) -> None:
    state = {"n": 1, "list": [1, 2], "map": {"a": BIG if large else 1}, "text": BIG * large}
    world.must(RUN, "run.create", {"state": state})
    first = {"base": 1, "set": [{"path": ["seen"], "value": True}]}
    assert world.apply(RUN, "run.patch", first | edit).reason in ("base_changed", "field_invalid")
    world.must(RUN, "run.patch", {"base": 1, "set": [{"path": ["n"], "value": 2}]})


def test_a_finished_run_is_not_patched(world: World) -> None:
    world.must(RUN, "run.create", {"state": {}})
    world.must(RUN, "run.patch", {"base": 1, "set": [{"path": ["status"], "value": "completed"}]})
    patch = {"base": 2, "set": [{"path": ["status"], "value": "running"}]}
    assert world.apply(RUN, "run.patch", patch).reason == "run_terminal"


def test_a_state_does_not_grow_beyond_what_could_be_sent_whole(world: World) -> None:
    chunk = "y" * (BODY_BYTES_MAX // 4)
    world.must(RUN, "run.create", {"state": {}})
    for number in range(3):
        patch = {"base": number + 1, "set": [{"path": [f"k{number}"], "value": chunk}]}
        world.must(RUN, "run.patch", patch)
    more = {"base": 4, "set": [{"path": ["k3"], "value": chunk}]}
    assert world.apply(RUN, "run.patch", more).reason == "state_too_large"
    instead = {"base": 4, "set": [{"path": ["k1"], "value": 1}]}
    world.must(RUN, "run.patch", instead)


def test_the_pi_dialect_stamps_and_projects_a_patched_state(stored: StoredWorld) -> None:
    stored.create(RUN)
    started = {
        "base": 1,
        "remove": [["traceSeq"]],
        "set": [
            {"path": ["currentNode"], "value": "plan"},
            {"path": ["currentAttemptId"], "value": "a1"},
            {"path": ["updatedAt"], "value": "the writer's"},
        ],
    }
    stored.must(RUN, "run.patch", started)
    done = {"attemptId": "a1", "nodeId": "plan", "outcome": "ok", "output": BIG}
    finished = {
        "base": 2,
        "remove": [["currentNode"], ["currentAttemptId"]],
        "splice": [appended(0, done)],
    }
    stored.must(RUN, "run.patch", finished)
    state = state_of(stored)
    assert (state["steps"], state["traceSeq"]) == ([done], 3)
    assert state["updatedAt"] != "the writer's"
    assert [each["status"] for each in stored.reader.attempts(RUN)] == ["completed"]
    wrong = {"base": 3, "set": [{"path": ["status"], "value": "asleep"}]}
    assert stored.apply(RUN, "run.patch", wrong).reason == "state_invalid"


def call(name: str, status: str = "running", run: str = RUN) -> dict[str, Any]:
    return {"invocationId": name, "connectionNodeId": "m", "status": status, "runId": run}


def test_the_codemation_dialect_projects_a_patched_state(stored: StoredWorld) -> None:
    workflow = {"name": "w", "nodes": [{"id": "n1"}]}
    state = {
        "runId": RUN,
        "status": "running",
        "workflowSnapshot": workflow,
        "queue": [{"nodeId": f"n{n}", "input": []} for n in range(12)],
        "nodeSnapshotsByNodeId": {},
        "outputsByNode": {},
        "connectionInvocations": [call("c1")],
    }
    stored.must(RUN, "run.create", {"dialect": "codemation"})
    stored.must(RUN, "run.snapshot", {"state": state})
    node = {"nodeId": "n0", "activationId": "act", "status": "completed", "outputs": BIG}
    patch = {
        "base": 2,
        "set": [
            {"path": ["nodeSnapshotsByNodeId", "n0"], "value": node},
            {"path": ["connectionInvocations", 0, "status"], "value": "completed"},
        ],
        "splice": [{"path": ["queue"], "length": 12, "start": 0, "delete": 1, "items": []}],
    }
    stored.must(RUN, "run.patch", patch)
    expected = deepcopy(state) | {"revision": 3}
    expected["nodeSnapshotsByNodeId"]["n0"] = node
    expected["connectionInvocations"][0]["status"] = "completed"
    del expected["queue"][0]
    assert state_of(stored) == expected
    inside = {"base": 3, "set": [{"path": ["workflowSnapshot", "name"], "value": "v"}]}
    assert stored.apply(RUN, "run.patch", inside).reason == "base_changed"
    whole = {"base": 3, "set": [{"path": ["workflowSnapshot"], "value": {"name": "v"}}]}
    stored.must(RUN, "run.patch", whole)
    assert state_of(stored)["workflowSnapshot"] == {"name": "v"}


def test_a_state_that_was_folded_can_not_be_patched(world: World) -> None:
    """Places in its arrays are not those that the sender knows."""
    calls = [call("c0", run="run-2"), call("c1"), call("c2")]
    world.must(RUN, "run.create", {"dialect": "codemation"})
    world.must(RUN, "run.snapshot", {"state": {"connectionInvocations": calls}})
    patch = {"base": 2, "set": [{"path": ["connectionInvocations", 1, "status"], "value": "x"}]}
    assert world.apply(RUN, "run.patch", patch).reason == "base_changed"


def test_a_state_that_the_dialect_completed_can_not_be_patched(world: World) -> None:
    world.must(RUN, "run.create", {"dialect": "codemation", "state": {"status": "running"}})
    patch = {"base": 1, "set": [{"path": ["status"], "value": "pending"}]}
    assert world.apply(RUN, "run.patch", patch).reason == "base_changed"


# --- Any edits of any document: the tree is what the whole document would have made it.

SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3) | st.just(BIG)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab~/", max_size=2), inner),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(st.text("abc", min_size=1, max_size=1), VALUES, max_size=4)


def places(value: Any, path: list[str | int]) -> list[tuple[list[str | int], Any]]:
    found = [(path, value)]
    if isinstance(value, dict | list):
        for step, member in value.items() if isinstance(value, dict) else enumerate(value):
            found += places(member, [*path, step])
    return found


@st.composite
def edited(draw: st.DrawFn, before: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A patch that fits, and the document after it, changed in place by plain Python."""
    after = deepcopy(before)
    removes, sets, splices = [], [], []
    for path, value in draw(st.permutations(places(after, [])))[:2]:
        if isinstance(value, dict) and value and draw(st.booleans()):
            key = draw(st.sampled_from(sorted(value)))
            if not removes:
                del value[key]
                removes.append([*path, key])
    for path, value in draw(st.permutations(places(after, [])))[:2]:
        if isinstance(value, dict | list) and not sets:
            new = draw(VALUES)
            steps_ = range(len(value)) if isinstance(value, list) else [*value, "new"]
            if steps_:
                step_ = draw(st.sampled_from(list(steps_)))
                value[step_] = deepcopy(new)
                sets.append({"path": [*path, step_], "value": new})
    for path, value in draw(st.permutations(places(after, []))):
        if isinstance(value, list) and not splices:
            start = draw(st.integers(0, len(value)))
            gone = draw(st.integers(0, len(value) - start))
            items = draw(st.lists(VALUES, max_size=2))
            splices.append(
                {"path": path, "length": len(value), "start": start, "delete": gone, "items": items}
            )
            value[start : start + gone] = deepcopy(items)
    return {"base": 1, "remove": removes, "set": sets, "splice": splices}, after


@given(data=st.data())
def test_any_patch_is_its_document(data: st.DataObject) -> None:
    now = data.draw(DOCUMENTS)
    root = change(None, now).root
    total, held = digest(root), size(root)
    for _ in range(3):
        body, expected = data.draw(edited(now))
        text = orjson.dumps(now)
        tree, after = patched(root, now, Patch.model_validate(body), GENERIC)
        assert orjson.dumps(now) == text, "what was before is never changed in place"
        assert orjson.dumps(after, option=orjson.OPT_SORT_KEYS) == orjson.dumps(
            expected, option=orjson.OPT_SORT_KEYS
        )
        assert document(tree) == expected
        step = difference(root, tree)
        total = (total + step.delta) % 2**256
        held = Size(held.rows + step.grown.rows, held.bytes + step.grown.bytes)
        assert total == digest(tree)
        assert held == size(tree)
        root, now = tree, expected


def test_an_edit_of_what_is_not_there_names_its_place() -> None:
    root = change(None, {"a": [1]}).root
    body = Patch.model_validate({"base": 1, "set": [{"path": ["a", 3], "value": 1}]})
    with pytest.raises(Mismatch, match=r"^a\.3$"):
        patched(root, {"a": [1]}, body, GENERIC)


def test_decisions_do_not_depend_on_what_is_cached() -> None:
    one, other = CoreWorld(), CoreWorld()
    for world in (one, other):
        world.must(RUN, "run.create", {"state": {"steps": steps(5)}})
        for number in range(4):
            if world is other:
                world.run(RUN).document = None
            world.must(
                RUN,
                "run.patch",
                {"base": number + 1, "set": [{"path": ["steps", number, "id"], "value": BIG}]},
            )
    assert one.run(RUN).state is not None
    heads = [world.run(RUN).head for world in (one, other)]
    assert heads[0] == heads[1]
