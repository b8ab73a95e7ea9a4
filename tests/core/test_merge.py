"""Three-way merge: who changed a value alone wins; where both did, the one who comes later."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.world import CoreWorld
from writer.core.merge import merge
from writer.core.parts import document

RUN = "run-1"


@pytest.mark.parametrize(
    "base, theirs, latest, merged",
    [
        ({"a": 1}, {"a": 2}, {"a": 1}, {"a": 2}),
        ({"a": 1}, {"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": 1}, {"a": 2}, {"a": 3}, {"a": 2}),
        ({}, {"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": 1, "b": 1}, {"a": 1}, {"a": 1, "b": 1}, {"a": 1}),
        ({"a": 1, "b": 1}, {"a": 1, "b": 1}, {"a": 1}, {"a": 1}),
        ({"a": 1}, {}, {"a": 2}, {}),
        ({"a": 1}, {"a": 2}, {}, {"a": 2}),
        (
            {"a": {"x": 1, "y": 1}},
            {"a": {"x": 2, "y": 1}},
            {"a": {"x": 1, "y": 2}},
            {"a": {"x": 2, "y": 2}},
        ),
        ({"a": [1]}, {"a": [1, 2]}, {"a": [1, 3]}, {"a": [1, 2]}),
        ({"a": [1]}, {"a": [1]}, {"a": [1, 3]}, {"a": [1, 3]}),
        ({"a": 1}, {"a": 1}, {"a": {"x": 1}}, {"a": {"x": 1}}),
        ({"a": 1}, {"a": {"x": 1}}, {"a": {"y": 1}}, {"a": {"x": 1, "y": 1}}),
        ({"a": 1}, {"a": 1.0}, {"a": 1}, {"a": 1.0}),
        ({"a": None}, {}, {"a": None}, {}),
        ({}, {"a": None}, {}, {"a": None}),
    ],
    ids=str,
)
def test_member_by_member(base: Any, theirs: Any, latest: Any, merged: Any) -> None:
    assert canonical(merge(base, theirs, latest)) == canonical(merged)


def canonical(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


documents: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([None, True, 1, 1.0, "a", []]),
    lambda inner: (
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3) | st.lists(inner, max_size=2)
    ),
    max_leaves=8,
).filter(lambda value: isinstance(value, dict))


@given(documents, documents)
def test_who_changes_alone_wins_whole(base: Any, changed: Any) -> None:
    assert canonical(merge(base, changed, base)) == canonical(changed)
    assert canonical(merge(base, base, changed)) == canonical(changed)


@given(documents, documents)
def test_an_equal_change_is_no_conflict(base: Any, changed: Any) -> None:
    assert canonical(merge(base, changed, changed)) == canonical(changed)


@given(documents, documents, documents)
def test_nothing_given_is_changed(base: Any, theirs: Any, latest: Any) -> None:
    before = canonical([base, theirs, latest])
    merge(base, theirs, latest)
    assert canonical([base, theirs, latest]) == before


@pytest.fixture
def world() -> CoreWorld:
    world = CoreWorld()
    world.must(RUN, "run.create", {"state": {"a": 1, "b": 1}})
    return world


def state(world: CoreWorld) -> Any:
    node = world.run(RUN).state
    assert node is not None
    return document(node)


def snapshot(changed: dict[str, Any], expected: int, on_conflict: str = "merge") -> dict[str, Any]:
    return {"state": changed, "expected_revision": expected, "on_conflict": on_conflict}


def test_a_snapshot_on_an_older_revision_is_merged_if_it_asks_to_be(world: CoreWorld) -> None:
    world.must(RUN, "run.snapshot", {"state": {"a": 2, "b": 1}})
    stale = {"a": 1, "b": 2}
    refused = world.apply(RUN, "run.snapshot", snapshot(stale, 1, "reject"))
    assert (refused.reason, refused.detail) == ("revision_conflict", "expected 1, is at 2")
    world.must(RUN, "run.snapshot", snapshot(stale, 1))
    assert state(world) == {"a": 2, "b": 2}


def test_the_base_may_be_a_revision_that_did_not_change_the_state(world: CoreWorld) -> None:
    world.must(RUN, "run.snapshot", {"state": {"a": 2, "b": 1}})
    world.must(RUN, "run.annotate", {"title": "t"})
    world.must(RUN, "run.snapshot", {"state": {"a": 3, "b": 1}})
    world.must(RUN, "run.snapshot", snapshot({"a": 2, "b": 5}, 3))
    assert state(world) == {"a": 3, "b": 5}


def test_a_revision_that_never_was_is_a_conflict(world: CoreWorld) -> None:
    assert world.apply(RUN, "run.snapshot", snapshot({}, 9)).reason == "revision_conflict"


def test_without_an_expected_revision_it_is_a_replacement(world: CoreWorld) -> None:
    world.must(RUN, "run.snapshot", {"state": {"c": 1}, "on_conflict": "merge"})
    assert state(world) == {"c": 1}
