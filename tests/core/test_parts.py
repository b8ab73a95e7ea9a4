"""State in parts: what a history of documents writes, and that every revision reads back equal."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from writer.apply import ROW_BYTES
from writer.core.parts import (
    DIGEST_MODULUS,
    NOTHING,
    SPLIT_BYTES,
    Arr,
    Change,
    Node,
    Obj,
    Part,
    PartsCorrupt,
    build,
    change,
    digest,
    document,
    encode,
    size,
)

Rows = dict[str, tuple[str, str]]

LARGE = "x" * (SPLIT_BYTES + 1)


def canonical(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def decoded(value: Any) -> Any:
    """The value as it comes in from the wire: every container is another object."""
    return orjson.loads(orjson.dumps(value))


class Revision(NamedTuple):
    document: Any
    change: Change
    rows: Rows


def play(documents: Iterable[Any]) -> list[Revision]:
    """The revisions of a history, each with the rows that are live after it."""
    revisions: list[Revision] = []
    root: Node | None = None
    rows: Rows = {}
    for each in documents:
        made = change(root, decoded(each))
        root = made.root
        rows = dict(rows)
        for part in made.parts:
            if part.value is None:
                del rows[part.pointer]
            else:
                rows[part.pointer] = (part.shape, part.value)
        revisions.append(Revision(each, made, rows))
    return revisions


def last(*documents: Any) -> Revision:
    return play(documents)[-1]


def rebuilt(rows: Rows) -> Node:
    return build((pointer, shape, value) for pointer, (shape, value) in rows.items())


# --- Histories.

keys = st.sampled_from(
    ["a", "b", "c", "", "/", "~", "~1", "a/b", "0", "1", "-1", "a\0", "é", "\U0001f600", '"']
)
scalars = st.one_of(
    st.sampled_from([None, True, False, 0, 1, -1, 0.0, -0.0, 1.0, "", "1", "null", 2**64 - 1]),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
)
big_texts = st.builds(
    lambda letter, length: letter * length,
    st.sampled_from(["p", "q", "é", "\n"]),
    st.sampled_from([200, 400, 700, SPLIT_BYTES - 4, SPLIT_BYTES, 2000]),
)
records = st.fixed_dictionaries({"a": scalars}, optional={"b": big_texts, "c": big_texts})
values = st.recursive(
    scalars | big_texts | records,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=8,
)
containers = st.lists(values, max_size=4) | st.dictionaries(keys, values, max_size=4)


def edits_of_array(draw: st.DrawFn, old: list[Any]) -> Any:
    place = draw(st.integers(0, max(len(old) - 1, 0)))
    edits: dict[str, Any] = {
        "append": [*old, draw(values)],
        "slide": [*old[place + 1 :], draw(values)],
        "prepend": [*draw(st.lists(values, min_size=1, max_size=2)), *old],
        "remove": old[:place] + old[place + 1 :],
        "rotate": old[place:] + old[:place],
        "empty": [],
        "turn": {str(key): item for key, item in enumerate(old, -1)},
    }
    return edits[draw(st.sampled_from(list(edits)))]


def edits_of_object(draw: st.DrawFn, old: dict[str, Any]) -> Any:
    gone = draw(st.sampled_from(sorted(old) or [""]))
    edits: dict[str, Any] = {
        "put": {**old, draw(keys): draw(values)},
        "remove": {key: item for key, item in old.items() if key != gone},
        "empty": {},
        "turn": list(old.values()),
    }
    return edits[draw(st.sampled_from(list(edits)))]


@st.composite
def edited(draw: st.DrawFn, old: Any) -> Any:
    """A document that differs from another in one place, at any depth, or not at all."""
    if isinstance(old, list | dict) and old and draw(st.booleans()):
        place: Any = draw(
            st.sampled_from(sorted(old) if isinstance(old, dict) else range(len(old)))
        )
        new = old.copy()
        new[place] = draw(edited(old[place]))
        return new
    kind = draw(st.sampled_from(["edit", "edit", "edit", "replace", "keep"]))
    if kind == "keep":
        return old
    if kind == "edit" and isinstance(old, list):
        return edits_of_array(draw, old)
    if kind == "edit" and isinstance(old, dict):
        return edits_of_object(draw, old)
    return draw(values)


@st.composite
def histories(draw: st.DrawFn) -> list[Any]:
    documents = [draw(containers)]
    for _ in range(draw(st.integers(1, 6))):
        earlier = draw(st.sampled_from([documents[-1], documents[-1], documents[0]]))
        documents.append(draw(edited(earlier)))
    return documents


# --- The rules once more, over rows and without regard to cost.


def escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def moved_base(base: int, old: list[Any], new: list[Any]) -> int:
    before, after = [canonical(item) for item in old], [canonical(item) for item in new]
    if before and after:
        if after[0] in before:
            return base + before.index(after[0])
        if before[0] in after:
            return base - after.index(before[0])
    return base


def expected_rows(live: Rows, pointer: str, old: Any, new: Any) -> Rows:
    """The rows of a value at a key, from the live rows and the value that the key held."""
    shape = "object" if isinstance(new, dict) else "array" if isinstance(new, list) else "value"
    stays = shape != "value" and live.get(pointer, ("",))[0] == shape
    if not stays and (shape == "value" or len(canonical(new)) <= SPLIT_BYTES):
        return {pointer: ("value", canonical(new).decode())}
    if not stays:
        live, old = {}, type(new)()
    rows: Rows = {}
    if isinstance(new, dict):
        rows[pointer] = ("object", "{}")
        for key, item in new.items():
            rows |= expected_rows(live, f"{pointer}/{escaped(key)}", old.get(key), item)
        return rows
    base_before = orjson.loads(live[pointer][1])[0] if stays else 0
    base = moved_base(base_before, old, new)
    rows[pointer] = ("array", f"[{base},{len(new)}]")
    held = dict(enumerate(old, base_before))
    for index, item in enumerate(new, base):
        rows |= expected_rows(live, f"{pointer}/{index}", held.get(index), item)
    return rows


# --- Properties of every history.


@given(histories())
def test_rows_are_those_that_the_rules_give(documents: list[Any]) -> None:
    rows: Rows = {}
    before = None
    for revision in play(documents):
        rows = expected_rows(rows, "", before, revision.document)
        before = revision.document
        assert revision.rows == rows


@given(histories())
def test_each_tree_holds_the_document_that_it_was_given(documents: list[Any]) -> None:
    for revision in play(documents):
        assert encode(revision.change.root) == canonical(revision.document)
        assert canonical(document(revision.change.root)) == canonical(revision.document)


@given(histories(), st.randoms(use_true_random=False))
def test_every_revision_reads_back_from_the_latest_rows_up_to_it(
    documents: list[Any], random: Any
) -> None:
    revisions = play(documents)
    stored = [(number, part) for number, each in enumerate(revisions) for part in each.change.parts]
    for number, revision in enumerate(revisions):
        latest: dict[str, Part] = {part.pointer: part for at, part in stored if at <= number}
        live = [Part(*part) for part in latest.values() if part.value is not None]
        random.shuffle(live)
        root = build((pointer, shape, value or "") for pointer, shape, value in live)
        assert encode(root) == canonical(revision.document)
        assert digest(root) == digest(revision.change.root)


@given(histories())
def test_a_rebuilt_tree_goes_on_as_the_one_in_memory(documents: list[Any]) -> None:
    for before, after in pairwise(play(documents)):
        again = change(rebuilt(before.rows), decoded(after.document))
        assert again.parts == after.change.parts
        assert again.delta == after.change.delta


@given(histories())
def test_the_delta_leads_from_one_digest_to_the_next(documents: list[Any]) -> None:
    total = 0
    for revision in play(documents):
        assert 0 <= revision.change.delta < DIGEST_MODULUS
        total = (total + revision.change.delta) % DIGEST_MODULUS
        assert digest(revision.change.root) == total


@given(histories())
def test_digests_are_equal_just_if_the_rows_are(documents: list[Any]) -> None:
    revisions = play(documents)
    for one in revisions:
        for other in revisions:
            same = digest(one.change.root) == digest(other.change.root)
            assert same == (one.rows == other.rows)


@given(histories())
def test_what_did_not_change_is_the_same_object(documents: list[Any]) -> None:
    for before, after in pairwise(play(documents)):
        assert_shared(before.change.root, after.change.root)


def assert_shared(old: Node, new: Node) -> None:
    if encode(old) == encode(new):
        assert old is new
    elif isinstance(old, Obj) and isinstance(new, Obj):
        for key in old.members.keys() & new.members.keys():
            assert_shared(old.members[key], new.members[key])
    elif isinstance(old, Arr) and isinstance(new, Arr):
        held = dict(enumerate(old.items, old.base))
        for place, item in enumerate(new.items, new.base):
            assert_shared(held.get(place, item), item)


@given(histories())
def test_an_equal_document_writes_nothing(documents: list[Any]) -> None:
    root = last(*documents).change.root
    assert change(root, decoded(documents[-1])) == Change(root, [], 0, NOTHING)
    assert change(root, document(root)).root is root


@given(histories())
def test_parts_are_few_and_in_order(documents: list[Any]) -> None:
    live: Rows = {}
    for revision in play(documents):
        seen: list[str] = []
        for pointer, shape, value in revision.change.parts:
            assert pointer not in seen
            assert not any(other.startswith(f"{pointer}/") for other in seen)
            if value is None:
                assert live[pointer][0] == shape
            else:
                assert live.get(pointer) != (shape, value)
            seen.append(pointer)
        live = revision.rows


def with_keys_reversed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: with_keys_reversed(value[key]) for key in reversed(value)}
    return [with_keys_reversed(item) for item in value] if isinstance(value, list) else value


@given(histories())
def test_key_order_does_not_show(documents: list[Any]) -> None:
    reversed_keys = play([with_keys_reversed(each) for each in documents])
    for one, other in zip(play(documents), reversed_keys, strict=True):
        assert one.change.parts == other.change.parts
        assert one.change.delta == other.change.delta


@pytest.mark.parametrize(
    "one, other",
    [
        pytest.param([{"a": 11, "z": LARGE}], [{"a1": 1, "z": LARGE}], id="pointer, value"),
        pytest.param(
            [{"a": [LARGE]}, {"a": []}],
            [[LARGE], {"a": [0, 0], "z": LARGE}, {"a": [0, 0]}],
            id="array, value",
        ),
        pytest.param(
            [{"a": {"b": LARGE}}, {"a": {}}], [{"a": {}, "z": LARGE}, {"a": {}}], id="object, value"
        ),
    ],
)
def test_no_two_different_parts_have_the_same_hash(one: list[Any], other: list[Any]) -> None:
    assert digest(last(*one).change.root) != digest(last(*other).change.root)


# --- When a container is split.


@pytest.mark.parametrize("text", ["x" * (SPLIT_BYTES - 8), "é" * (SPLIT_BYTES // 2 - 4)])
def test_a_container_is_split_once_its_json_is_larger_than_the_limit(text: str) -> None:
    fits, larger = {"k": text}, {"k": text + "y"}
    assert len(canonical(fits)) == SPLIT_BYTES
    assert last(fits).rows == {"": ("value", canonical(fits).decode())}
    assert last(larger).rows == {
        "": ("object", "{}"),
        "/k": ("value", canonical(text + "y").decode()),
    }


def test_a_large_scalar_is_one_row() -> None:
    assert last(LARGE).rows == {"": ("value", f'"{LARGE}"')}


def test_the_layout_depends_on_the_history() -> None:
    shrunk = last({"a": {"b": LARGE}}, {"a": {"b": 1}})
    assert shrunk.rows == {"": ("object", "{}"), "/a": ("object", "{}"), "/a/b": ("value", "1")}
    assert last({"a": {"b": 1}}).rows == {"": ("value", '{"a":{"b":1}}')}


def test_a_split_container_may_be_empty() -> None:
    emptied = last({"a": {"b": LARGE}, "c": [LARGE]}, {"a": {}, "c": []})
    assert emptied.rows == {
        "": ("object", "{}"),
        "/a": ("object", "{}"),
        "/c": ("array", "[0,0]"),
    }
    assert encode(rebuilt(emptied.rows)) == b'{"a":{},"c":[]}'


@pytest.mark.parametrize("between", [{}, {"a": None}, {"a": 1}, {"a": []}])
def test_a_container_that_went_comes_back_as_a_new_one(between: Any) -> None:
    back = last({"a": {"b": LARGE}}, between, {"a": {"b": 1}})
    assert back.rows == {"": ("object", "{}"), "/a": ("value", '{"b":1}')}


def test_null_one_and_true_are_values_of_their_own() -> None:
    for old, new in [(1, 1.0), (1, True), (0, False), (0.0, -0.0), (None, False)]:
        parts = last({"a": LARGE, "b": old}, {"a": LARGE, "b": new}).change.parts
        assert parts == [Part("/b", "value", canonical(new).decode())]


def test_null_is_not_absence() -> None:
    assert last({"a": LARGE}, {"a": LARGE, "b": None}).change.parts == [Part("/b", "value", "null")]
    assert last({"a": LARGE, "b": None}, {"a": LARGE}).change.parts == [Part("/b", "value", None)]


# --- What a change writes.


def test_what_lies_beneath_a_key_that_went_is_tombstoned() -> None:
    parts = last({"a": {"b": {"c": LARGE}}, "z": 1}, {"z": 1}).change.parts
    assert parts == [
        Part("/a", "object", None),
        Part("/a/b", "object", None),
        Part("/a/b/c", "value", None),
    ]


def test_a_key_that_holds_a_new_value_is_rewritten_and_not_tombstoned() -> None:
    parts = last({"a": {"b": LARGE}}, {"a": 1}).change.parts
    assert parts == [Part("/a", "value", "1"), Part("/a/b", "value", None)]


def test_an_array_may_own_the_pointers_of_the_object_before_it() -> None:
    parts = last({"0": LARGE, "1": {"a": LARGE}, "x": 1}, [LARGE, 2]).change.parts
    assert parts == [
        Part("", "array", "[0,2]"),
        Part("/1", "value", "2"),
        Part("/1/a", "value", None),
        Part("/x", "value", None),
    ]


def test_keys_are_escaped_in_pointers() -> None:
    rows = last({"a/b~": LARGE, "": 1, "~1": 2}).rows
    assert rows.keys() == {"", "/a~1b~0", "/", "/~01"}
    assert encode(rebuilt(rows)) == canonical({"a/b~": LARGE, "": 1, "~1": 2})


def test_prepending_takes_from_the_base() -> None:
    prepended = last([LARGE, 1], ["new", "newer", LARGE, 1])
    assert prepended.change.parts == [
        Part("", "array", "[-2,4]"),
        Part("/-2", "value", '"new"'),
        Part("/-1", "value", '"newer"'),
    ]
    assert encode(rebuilt(prepended.rows)) == canonical(["new", "newer", LARGE, 1])


def test_a_removal_in_the_middle_rewrites_what_follows() -> None:
    parts = last([LARGE, 1, 2, 3, 4], [LARGE, 1, 3, 4]).change.parts
    assert parts == [
        Part("", "array", "[0,4]"),
        Part("/2", "value", "3"),
        Part("/3", "value", "4"),
        Part("/4", "value", None),
    ]


def test_the_least_move_forward_is_taken_before_any_backward() -> None:
    parts = last([LARGE, "a", "b", "a"], ["a", "b", LARGE]).change.parts
    assert parts[0] == Part("", "array", "[1,3]")


def test_a_split_member_is_recognized_wherever_it_moved() -> None:
    first, second = {"id": 1, "text": LARGE}, {"id": 2, "texts": [LARGE, {"a": LARGE}]}
    parts = last([first, second], [second]).change.parts
    assert parts[0] == Part("", "array", "[1,1]")
    assert {part.value for part in parts[1:]} == {None}
    assert last([second], [first, second]).change.parts == [
        Part("", "array", "[-1,2]"),
        Part("/-1", "object", "{}"),
        Part("/-1/id", "value", "1"),
        Part("/-1/text", "value", f'"{LARGE}"'),
    ]


def test_a_longer_array_is_not_the_one_that_it_starts_with() -> None:
    for old, new in [([LARGE], [LARGE, 1]), ([LARGE, 1], [LARGE])]:
        assert last([1, old], [new]).rows[""] == ("array", "[0,1]")


def test_the_least_move_backward_is_taken() -> None:
    assert last([LARGE, 1], [2, LARGE, LARGE]).rows[""] == ("array", "[-1,3]")


def test_a_member_that_came_before_the_others_is_new() -> None:
    rows = last([1, {"a": LARGE}], [{"a": 2}, 1, {"a": LARGE}]).rows
    assert rows["/-1"] == ("value", '{"a":2}')


def test_an_array_that_was_emptied_keeps_its_base() -> None:
    assert last([LARGE, 1], [1], [], [2]).rows == {"": ("array", "[1,1]"), "/1": ("value", "2")}


def step(number: int) -> dict[str, Any]:
    return {"id": number, "status": "done", "output": f"{number} " * (950 // len(f"{number} "))}


def written_bytes(parts: Iterable[Part]) -> int:
    return sum(len(part.pointer) + len(part.shape) + len(part.value or "") for part in parts)


def test_growth_writes_what_was_added() -> None:
    steps: list[Any] = []
    root = change(None, {"status": "running", "steps": []}).root
    written = 0
    for number in range(800):
        steps.append(step(number))
        root, parts, *_ = change(root, {"status": "running", "steps": steps})
        assert len(parts) == 2 or number < 2
        written += written_bytes(parts)
    assert written <= 1.5 * len(encode(root))


def test_a_sliding_window_writes_the_new_member_the_array_and_a_tombstone() -> None:
    window = [step(number) for number in range(100)]
    root = change(None, {"messages": window}).root
    for number in range(100, 600):
        window = [*window[1:], step(number)]
        root, parts, *_ = change(root, {"messages": window})
        assert parts == [
            Part("/messages", "array", f"[{number - 99},100]"),
            Part(f"/messages/{number - 100}", "value", None),
            Part(f"/messages/{number}", "value", canonical(step(number)).decode()),
        ]


@pytest.mark.parametrize(
    "wrap", [lambda inner: [inner], lambda inner: {"k": inner, "n": 1}], ids=["array", "object"]
)
def test_the_deepest_documents_are_kept(wrap: Any) -> None:
    old: Any = {"text": LARGE, "n": 1}
    new: Any = {"text": LARGE, "n": 2}
    for _ in range(127):
        old, new = wrap(old), wrap(new)
    changed = last(old, new)
    assert [part.value for part in changed.change.parts] == ["2"]
    assert encode(rebuilt(changed.rows)) == canonical(new)


def test_the_size_of_a_state_is_about_the_memory_held() -> None:
    rows = last({"steps": [{**step(i), "more": [LARGE, i]} for i in range(200)]}).rows
    tracemalloc.start()
    try:
        root = rebuilt(rows)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    rows_, bytes_ = size(root)
    assert 0.5 * held <= rows_ * ROW_BYTES + bytes_ <= 2 * held


def test_so_is_that_of_a_tree_made_of_a_document() -> None:
    value = {f"key-{number}": {"n": number} for number in range(2_000)}
    tracemalloc.start()
    try:
        root = change(None, value).root
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    rows_, bytes_ = size(root)
    assert held <= 2 * (rows_ * ROW_BYTES + bytes_)


# --- Rows that are no tree.

WHOLE = [
    ("", "object", "{}"),
    ("/a", "array", "[4,2]"),
    ("/a/4", "value", "1"),
    ("/a/5", "object", "{}"),
    ("/a/5/x~1y", "value", "2"),
]


def test_rows_that_form_a_tree_are_built() -> None:
    assert encode(build(WHOLE)) == b'{"a":[1,{"x/y":2}]}'


@pytest.mark.parametrize("lost", [0, 1, 2, 3])
def test_a_lost_row_is_noticed(lost: int) -> None:
    with pytest.raises(PartsCorrupt):
        build(WHOLE[:lost] + WHOLE[lost + 1 :])


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(("/a/4", "value", "3"), id="twice"),
        pytest.param(("/a/6", "value", "3"), id="beyond the array's end"),
        pytest.param(("/a/04", "value", "3"), id="beside the array's keys"),
        pytest.param(("/a/4/b", "value", "3"), id="beneath a value"),
        pytest.param(("/b/c", "value", "3"), id="beneath nothing"),
        pytest.param(("b", "value", "3"), id="no pointer"),
        pytest.param(("/~2", "value", "3"), id="bad escape"),
        pytest.param(("/b", "tree", "3"), id="unknown shape"),
        pytest.param(("/b", "object", "[]"), id="object with another value"),
        pytest.param(("/b", "array", "[0,1]"), id="array that is longer than its members"),
        pytest.param(("/b", "array", "[0]"), id="array without a length"),
        pytest.param(("/b", "array", "[0, 0]"), id="array not in canonical JSON"),
        pytest.param(("/b", "array", "[null,0]"), id="array without a base"),
        pytest.param(("/b", "array", "{}"), id="array with another value"),
    ],
)
def test_a_row_that_does_not_fit_is_noticed(row: tuple[str, str, str]) -> None:
    with pytest.raises(PartsCorrupt):
        build([*WHOLE, row])


def test_no_rows_are_no_tree() -> None:
    with pytest.raises(PartsCorrupt):
        build([])
