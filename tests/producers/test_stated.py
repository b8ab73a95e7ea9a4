"""What changed between two states: a patch that leaves the second one, and is as small as that."""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict
from copy import deepcopy
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from producers import InvalidCommand
from producers.contract.commands import Patch
from producers.contract.limits import PATH_STEPS_MAX
from producers.stated import Arr, Obj, Step, Unfit, difference, size_of, text_of, tree_of
from producers.validation import encode_body
from tests.producers.test_validation import BAD_DOCUMENTS
from writer.core.parts import change, document
from writer.core.patch import patched
from writer.dialects import DIALECTS

BIG = "x" * 1_100


def canonical(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def edits_of(step: Step) -> dict[str, Any]:
    edits: dict[str, Any] = orjson.loads(b"{%b}" % step.edits)
    return edits


def applied(before: Any, edits: dict[str, Any]) -> Any:
    """The document that the writer makes of it."""
    sent = orjson.loads(orjson.dumps(before))
    patch = Patch.model_validate({"base": 1, **edits})
    tree, after = patched(change(None, sent).root, sent, patch, DIALECTS["generic"])
    assert document(tree) == after
    return after


def changes(before: dict[str, Any], after: Any) -> dict[str, Any]:
    """The edits between two documents, proved."""
    root = tree_of(orjson.loads(orjson.dumps(before)))
    step = difference(root, after)
    assert canonical(orjson.loads(text_of(step.root))) == canonical(after)
    assert size_of(step.root) == len(text_of(step.root))
    assert canonical(orjson.loads(text_of(root))) == canonical(before)
    edits = edits_of(step)
    assert canonical(applied(before, edits)) == canonical(after)
    return edits


def steps(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"id": number, "output": BIG} for number in range(first, first + count)]


def test_nothing_changed_makes_no_edits_and_no_new_tree() -> None:
    state = {"steps": steps(3), "n": [1.0, None, True], "at": {}, "big": {"a": [BIG]}}
    root = tree_of(deepcopy(state))
    step = difference(root, state)
    assert step.root is root
    assert step.edits == b""


def test_members_are_removed_set_and_reached_into() -> None:
    before = {"old": BIG, "plan": {"notes": BIG, "done": False, "x": 1}, "status": "running"}
    after = {"plan": {"notes": BIG, "done": True}, "status": "waiting", "new": {"a": 1}}
    assert changes(before, after) == {
        "remove": [["plan", "x"], ["old"]],
        "set": [
            {"path": ["plan", "done"], "value": True},
            {"path": ["status"], "value": "waiting"},
            {"path": ["new"], "value": {"a": 1}},
        ],
    }


def test_an_array_that_grows_is_spliced_at_its_end_and_what_changed_in_it_is_set() -> None:
    after = steps(11)
    after[2]["id"] = "two"
    assert changes({"steps": steps(10)}, {"steps": after}) == {
        "set": [{"path": ["steps", 2, "id"], "value": "two"}],
        "splice": [
            {"path": ["steps"], "length": 10, "start": 10, "delete": 0, "items": steps(1, 10)}
        ],
    }


def test_the_latest_of_many_lose_one_at_the_front_and_get_one_at_the_end() -> None:
    assert changes({"steps": steps(50)}, {"steps": steps(50, 1)})["splice"] == [
        {"path": ["steps"], "length": 50, "start": 50, "delete": 0, "items": steps(1, 50)},
        {"path": ["steps"], "length": 51, "start": 0, "delete": 1, "items": []},
    ]
    (first,) = changes({"steps": steps(50)}, {"steps": steps(49, 1)})["splice"]
    assert (first["start"], first["delete"], first["items"]) == (0, 1, [])


def test_members_that_were_replaced_side_by_side_are_one_splice() -> None:
    before = [f"{number} {BIG}" for number in range(9)]
    after = [*before[:3], "a", "b", *before[5:8], "c", "d"]
    assert changes({"texts": before}, {"texts": after})["splice"] == [
        {"path": ["texts"], "length": 9, "start": 3, "delete": 2, "items": ["a", "b"]},
        {"path": ["texts"], "length": 9, "start": 8, "delete": 1, "items": ["c", "d"]},
    ]


@pytest.mark.parametrize(
    "before, after",
    [(1, True), (1, 1.0), (0.0, -0.0), (None, False), ("1", 1), ([], {}), ({"a": 1}, {"a": 1.0})],
)
def test_what_python_takes_for_equal_and_json_does_not_is_a_change(before: Any, after: Any) -> None:
    assert changes({"a": before, "b": BIG}, {"a": after, "b": BIG})["set"] == [
        {"path": ["a"], "value": after}
    ]


def test_subclasses_tuples_and_what_only_json_says_are_followed() -> None:
    at = datetime(2026, 1, 31, tzinfo=UTC)
    plan: Any = OrderedDict(b=1, a=(BIG, [at]))
    before = {"at": at, "plan": plan, "seen": defaultdict(list, a=[BIG, BIG])}
    after = deepcopy(before)
    after["seen"]["a"].append(3)
    root = difference(tree_of({"b": BIG}), before).root
    assert set(edits_of(difference(root, after))) == {"splice"}
    changes(before, after)
    assert difference(root, before).root is root


def test_trees_share_what_did_not_change() -> None:
    one = tree_of({"a": steps(4), "b": {"c": BIG}})
    two = difference(one, {"a": [*steps(4), 5], "b": {"c": BIG}}).root
    assert two.members["b"] is one.members["b"]
    known, now = one.members["a"], two.members["a"]
    assert isinstance(known, Arr)
    assert isinstance(now, Arr)
    assert all(before is after for before, after in zip(known.items, now.items[:4], strict=True))


def test_nothing_deeper_than_a_path_may_reach_is_split() -> None:
    def deep(leaf: Any) -> dict[str, Any]:
        value = leaf
        for _ in range(PATH_STEPS_MAX + 5):
            value = {"k": value, "pad": BIG}
        return {"k": value}

    (edit,) = changes(deep(1), deep(2))["set"]
    assert len(edit["path"]) == PATH_STEPS_MAX


def remembered(state: dict[str, Any]) -> Obj:
    """The tree of what was sent of a state: NaN was null."""
    return tree_of(orjson.loads(orjson.dumps(state)))


@pytest.mark.parametrize("name", [name for name in BAD_DOCUMENTS if name != "too large"])
def test_what_a_whole_snapshot_refuses_is_refused(name: str) -> None:
    bad = BAD_DOCUMENTS[name][0]
    known = {"pad": BIG, "list": [BIG, 1]}
    for after in (bad, {**known, "new": bad}, {**known, "list": [BIG, bad]}):
        refuses = True
        try:
            encode_body("run.snapshot", {"state": after})
        except InvalidCommand:
            refuses = False
        if not refuses:
            with pytest.raises(Unfit):
                difference(tree_of(known), after)


class Hidden(Enum):
    NAN = math.nan


@pytest.mark.parametrize("bad", [math.nan, math.inf, Hidden.NAN, (math.nan,)])
@pytest.mark.parametrize("pad", ["", BIG])
def test_what_reads_as_null_is_not_taken_for_the_null_that_was_there(bad: Any, pad: str) -> None:
    for state in ({"a": bad, "pad": pad}, {"a": {"b": [bad, pad]}}, {"a": [pad, bad]}):
        with pytest.raises(Unfit):
            difference(remembered(state), state)


def test_a_value_may_not_nest_deeper_than_in_a_whole_snapshot() -> None:
    def state(levels: int) -> dict[str, Any]:
        value: Any = []
        for _ in range(levels - 1):
            value = [value]
        return {"pad": BIG, "a": {"pad": BIG, "b": value}}

    known = tree_of({"pad": BIG, "a": {"pad": BIG, "b": 1}})
    encode_body("run.snapshot", {"state": state(125)})
    difference(known, state(124))
    with pytest.raises(InvalidCommand):
        encode_body("run.snapshot", {"state": state(126)})
    with pytest.raises(Unfit):
        difference(known, state(126))
    # A patch has more around a value than a snapshot has around one that lies near its top.
    shallow = {"pad": BIG, "b": 1, "steps": [BIG, BIG]}
    deepest = state(126)["a"]["b"]
    encode_body("run.snapshot", {"state": shallow | {"b": deepest}})
    for near in ({"b": deepest}, {"steps": [BIG, BIG, deepest]}):
        with pytest.raises(Unfit):
            difference(tree_of(shallow), shallow | near)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2**64)
    | st.floats(allow_nan=True)
    | st.sampled_from(["", BIG, 'é"\\', "\ud800"])
    | st.just(datetime(2026, 1, 31, tzinfo=UTC))
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.tuples(inner, inner)
        | st.dictionaries(st.sampled_from(["a", "b", "~/", "é", "\ud800", 1]), inner, max_size=4)
    ),
    max_leaves=20,
)


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Documents of which each has much of the one before, rearranged."""
    pool = draw(st.lists(VALUES, min_size=1, max_size=6))
    members = st.sampled_from(pool) | st.lists(st.sampled_from(pool), max_size=8)
    nested = members | st.dictionaries(st.sampled_from("abc"), members, max_size=3)
    states = st.dictionaries(st.sampled_from("abc"), nested, max_size=3)
    return draw(st.lists(states, min_size=2, max_size=4))


@given(histories())
@example([{"a": [0, 1, 2]}, {"a": [1, 2, BIG]}])
def test_any_state_after_any_other_is_what_the_whole_would_have_been(
    history: list[dict[str, Any]],
) -> None:
    kept: dict[str, Any] = {}
    root = tree_of(kept)
    for state in history:
        text = None
        try:
            text = encode_body("run.snapshot", {"state": state})
        except InvalidCommand:
            with pytest.raises(Unfit):
                difference(root, state)
            continue
        before = text_of(root)
        step = difference(root, state)
        assert text_of(root) == before
        sent = orjson.loads(text)["state"]
        assert canonical(orjson.loads(text_of(step.root))) == canonical(sent)
        assert size_of(step.root) == len(text_of(step.root))
        assert canonical(applied(kept, edits_of(step))) == canonical(sent)
        assert (step.edits == b"") == (step.root is root)
        root, kept = step.root, sent
