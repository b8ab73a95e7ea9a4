"""Segments: entries by id, events by seq, and how a capture ends."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.world import DUPLICATE, CoreWorld
from writer.core.run import Segment

RUN = "run-1"


@pytest.fixture
def world() -> CoreWorld:
    world = CoreWorld()
    world.must(RUN, "run.create", {"state": {}})
    world.must(RUN, "session.bind", {"session": "s"})
    return world


def segment(world: CoreWorld, key: str = "") -> Segment:
    return world.run(RUN).segments[key]


def event(seq: int, **more: Any) -> dict[str, Any]:
    return {"seq": seq, "at": "t", "type": "x", "payload": {}} | more


def entry(world: CoreWorld, document: dict[str, Any], **how: Any) -> Any:
    return world.apply(RUN, "session.entry", {"entry": document}, **how)


def events(world: CoreWorld, *records: dict[str, Any], **how: Any) -> Any:
    return world.apply(RUN, "session.events", {"events": list(records)}, **how)


def test_a_bind_is_an_event_of_the_run_and_the_segment_begins_at_1(world: CoreWorld) -> None:
    assert segment(world).revision == 1
    bound = world.must(RUN, "session.bind", {"session": "s", "capture_key": "k"})
    assert (bound.revision, bound.segment) == (3, 0)
    assert (segment(world, "k").no, segment(world, "k").revision) == (2, 1)


def test_appends_revise_their_segment_only(world: CoreWorld) -> None:
    world.must(RUN, "session.bind", {"session": "s", "capture_key": "k"})
    assert entry(world, {"id": "a"})[1:3] == (2, 1)
    assert events(world, event(1))[1:3] == (3, 1)
    assert world.must(RUN, "session.capture", {"status": "complete"})[1:3] == (4, 1)
    head = world.run(RUN).head
    assert head is not None
    assert head.revision == 3
    assert segment(world, "k").revision == 1


@pytest.mark.parametrize(
    "body",
    [
        {"entry": {"id": "own"}, "entry_id": "given"},
        {"entry": {"id": "given"}},
    ],
    ids=["given", "own"],
)
def test_an_entrys_id_is_the_given_one_else_its_own(world: CoreWorld, body: dict[str, Any]) -> None:
    world.must(RUN, "session.entry", body)
    assert world.apply(RUN, "session.entry", body, producer="q") == DUPLICATE
    other = {"entry": {"id": "given", "text": "other"}}
    assert world.apply(RUN, "session.entry", other, producer="q").reason == "entry_conflict"


@pytest.mark.parametrize("own", [None, 7, "", ["a"]])
def test_what_is_no_text_is_no_id(world: CoreWorld, own: Any) -> None:
    for producer in "pq":
        assert entry(world, {"id": own}, producer=producer).kind == "applied"
    assert segment(world).entry_count == 2


def test_an_own_id_with_nul_is_refused(world: CoreWorld) -> None:
    refused = entry(world, {"id": "a\0b"})
    assert (refused.reason, refused.detail) == ("field_invalid", "entry.id")


def test_the_same_id_may_stand_in_two_segments(world: CoreWorld) -> None:
    world.must(RUN, "session.bind", {"session": "s", "capture_key": "k"})
    world.must(RUN, "session.entry", {"entry": {"id": "a", "n": 1}})
    world.must(RUN, "session.entry", {"entry": {"id": "a", "n": 2}, "capture_key": "k"})


def test_entries_are_equal_by_their_sorted_bytes(world: CoreWorld) -> None:
    assert entry(world, {"id": "a", "n": 1}).kind == "applied"
    assert entry(world, {"n": 1, "id": "a"}, producer="q") == DUPLICATE
    assert entry(world, {"id": "a", "n": 1.0}, producer="q").reason == "entry_conflict"


def test_a_stored_entry_is_still_a_duplicate_after_the_end(world: CoreWorld) -> None:
    entry(world, {"id": "a"})
    world.must(RUN, "session.capture", {"status": "complete"})
    assert entry(world, {"id": "a"}, producer="q") == DUPLICATE
    assert entry(world, {"id": "b"}, producer="q").reason == "capture_terminal"


@pytest.mark.parametrize(
    "seqs, kind, count",
    [
        ([1, 2, 3], "duplicate", 3),
        ([3], "duplicate", 3),
        ([2, 3, 4, 5], "applied", 5),
        ([4], "applied", 4),
        ([4, 5, 4], "applied", 5),
    ],
    ids=str,
)
def test_stored_events_are_skipped_if_equal(
    world: CoreWorld, seqs: list[int], kind: str, count: int
) -> None:
    events(world, event(1), event(2), event(3))
    assert events(world, *map(event, seqs), producer="q").kind == kind
    assert segment(world).event_count == count


@pytest.mark.parametrize(
    "records, reason, detail",
    [
        ([event(5)], "event_seq_gap", "expected seq 4, got 5"),
        ([event(4), event(6)], "event_seq_gap", "expected seq 5, got 6"),
        ([event(2, type="y")], "event_conflict", "seq 2"),
        ([event(4), event(4, type="y")], "event_conflict", "seq 4"),
        ([event(3), event(4), event(2, type="y")], "event_conflict", "seq 2"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_one_bad_event_refuses_its_batch(
    world: CoreWorld, records: list[dict[str, Any]], reason: str, detail: str
) -> None:
    events(world, event(1), event(2), event(3))
    refused = events(world, *records, producer="q")
    assert (refused.reason, refused.detail) == (reason, detail)
    assert segment(world).event_count == 3


def test_an_event_is_a_document_beyond_its_known_fields(world: CoreWorld) -> None:
    assert events(world, event(1, color="red")).kind == "applied"
    assert events(world, event(1, color="blue"), producer="q").reason == "event_conflict"


@pytest.mark.parametrize(
    "record, detail",
    [
        ({"seq": 1, "type": "x", "payload": {}}, "events.0.at"),
        (event(0), "events.0.seq"),
        (event(1, payload=[]), "events.0.payload"),
        (event(1, nodeId=""), "events.0.nodeId"),
        (event(1, turnId="a\0b"), "events.0.turnId"),
        (event(1) | {"seq": "1"}, "events.0.seq"),
        (event(1) | {"seq": 1.0}, "events.0.seq"),
        (event(1) | {"seq": True}, "events.0.seq"),
    ],
    ids=str,
)
def test_an_events_known_fields_have_a_form(
    world: CoreWorld, record: dict[str, Any], detail: str
) -> None:
    refused = events(world, record)
    assert refused.detail == detail
    assert refused.reason in ("field_missing", "field_invalid")


def test_an_empty_batch_is_refused(world: CoreWorld) -> None:
    assert events(world).reason == "field_invalid"


FAILED = {"status": "failed", "failure": {"code": "x", "message": "y"}}


@pytest.mark.parametrize(
    "before, after, expected",
    [
        ({"status": "recording"}, {"status": "recording"}, "duplicate"),
        ({"status": "recording"}, {"status": "recording", "entry_count": 0}, "applied"),
        ({"status": "recording"}, {"status": "complete"}, "applied"),
        ({"status": "recording"}, FAILED, "applied"),
        ({"status": "complete"}, {"status": "complete"}, "duplicate"),
        ({"status": "complete"}, {"status": "complete", "entry_count": 0}, "capture_terminal"),
        ({"status": "complete"}, {"status": "recording"}, "capture_terminal"),
        ({"status": "complete"}, FAILED, "capture_terminal"),
        (FAILED, FAILED, "duplicate"),
        (FAILED, {"status": "complete"}, "capture_terminal"),
        (FAILED, {"status": "recording"}, "capture_terminal"),
    ],
)
def test_a_capture_ends_once(
    world: CoreWorld, before: dict[str, Any], after: dict[str, Any], expected: str
) -> None:
    world.must(RUN, "session.capture", before)
    outcome = world.apply(RUN, "session.capture", after, producer="q")
    assert (outcome.reason or outcome.kind) == expected


@pytest.mark.parametrize(
    "body",
    [{"status": "failed"}, FAILED | {"status": "complete"}, FAILED | {"status": "recording"}],
)
def test_a_failure_belongs_to_a_failed_capture(world: CoreWorld, body: dict[str, Any]) -> None:
    assert world.apply(RUN, "session.capture", body).reason == "capture_failure"


@pytest.mark.parametrize("count", ["entry_count", "event_count", "last_event_seq"])
def test_each_count_that_is_told_is_checked(world: CoreWorld, count: str) -> None:
    entry(world, {"id": "a"})
    events(world, event(1))
    wrong = world.apply(RUN, "session.capture", {"status": "complete", count: 2})
    assert (wrong.reason, wrong.detail) == ("capture_counts", "2 told, 1 stored")
    world.must(RUN, "session.capture", {"status": "complete", count: 1})


def test_an_interrupt_fails_what_records_and_leaves_what_has_ended(world: CoreWorld) -> None:
    world.must(RUN, "session.bind", {"session": "s", "capture_key": "done"})
    world.must(RUN, "session.capture", {"status": "complete", "capture_key": "done"})
    world.must(RUN, "run.interrupt", {"reason": "gone"})
    assert segment(world).status == "failed"
    assert segment(world).failure == '{"code":"host_interrupted","message":"gone"}'
    assert segment(world).revision == 1, "its end is part of the run's own event"
    assert segment(world, "done").status == "complete"


def test_an_unknown_segment_takes_nothing(world: CoreWorld) -> None:
    for kind, body in (
        ("session.entry", {"entry": {}}),
        ("session.events", {"events": [event(1)]}),
        ("session.capture", {"status": "complete"}),
    ):
        refused = world.apply(RUN, kind, body | {"capture_key": "nobody's"})
        assert refused.reason == "segment_unknown"
