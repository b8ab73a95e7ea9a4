"""R, U and C: resume, updates, and what a recorder sends."""

# ruff: noqa: N802 - a case is named after its mark
from __future__ import annotations

import pytest

from tests.support.workload import base_state, binding, capture_body, entry, event
from tests.support.workload import capture as capture_document
from tests.support.world import DUPLICATE, StoredWorld, World

RUN = "run-1"


def bound(world: World) -> None:
    world.create(RUN)
    world.must(RUN, "session.bind", {"session": "session-1", "binding": binding(RUN)})


def test_R2_only_a_running_run_is_resumed(world: World) -> None:
    assert world.apply("missing", "run.resume").reason == "run_unknown"
    world.create(RUN, state=base_state(RUN) | {"status": "completed"})
    assert world.apply(RUN, "run.resume").reason == "run_terminal"
    world.create("run-2", state=base_state("run-2") | {"status": "waiting"})
    parked = world.apply("run-2", "run.resume")
    assert (parked.reason, parked.detail) == ("run_not_running", "waiting")


def test_R2_resume_interrupts_the_attempt_that_was_active(stored: StoredWorld) -> None:
    state = base_state(RUN) | {"currentNode": "work", "currentAttemptId": "a1"}
    stored.create(RUN, state=state)
    stored.must(RUN, "run.resume")
    assert stored.only("attempts", RUN)["status"] == "interrupted"
    stored.must(RUN, "run.snapshot", {"state": state})
    assert stored.only("attempts", RUN)["status"] == "running"


def test_U1_the_last_update_of_a_key_is_current(stored: StoredWorld) -> None:
    stored.create(RUN)
    for value in (1, 2):
        stored.must(RUN, "run.update", {"type": "note", "key": "k", "data": {"value": value}})
    (current,) = stored.state(RUN)["updates"]
    assert current["data"] == {"value": 2}
    published = [seen for seen in stored.events(RUN) if seen["type"] == "update_published"]
    assert [seen["revision"] for seen in published] == [2, 3]
    (first,) = stored.state(RUN, 2)["updates"]
    assert first["data"] == {"value": 1}


def test_U3_an_update_has_a_type_and_its_data_a_shape(world: World) -> None:
    world.create(RUN)
    bad = world.apply(RUN, "run.update", {"type": "Bad", "key": "k", "data": {}})
    assert (bad.reason, bad.detail) == ("field_invalid", "type")
    data = {"schema": "pi-workflows.progress.v1", "completed": 3, "total": 2, "unit": "rows"}
    less = world.apply(RUN, "run.update", {"type": "progress", "key": "k", "data": data})
    assert less.reason == "update_invalid"
    assert "at least completed" in less.detail


@pytest.mark.parametrize(
    "wrong",
    [
        {"color": "red"},
        {"schema": "other"},
        {"status": "done"},
        {"label": ""},
        {"label": "l" * 201},
        {"phase": "line\nbreak"},
        {"completed": -1, "unit": "rows"},
        {"completed": True, "unit": "rows"},
        {"total": 0, "unit": "rows"},
        {"completed": 1},
        {"sourceUpdatedAt": "2026-08-23T00:00:00"},
        {"sourceEstimatedFinishAt": "tomorrow"},
    ],
    ids=str,
)
def test_U3_progress_follows_its_schema(world: World, wrong: dict[str, object]) -> None:
    world.create(RUN)
    data = {"schema": "pi-workflows.progress.v1", "status": "running"} | wrong
    refused = world.apply(RUN, "run.update", {"type": "progress", "key": "k", "data": data})
    assert refused.reason == "update_invalid"


def test_C1_entries_are_kept_verbatim_in_order(stored: StoredWorld) -> None:
    bound(stored)
    sent = [entry("e-", number) for number in range(3)]
    for each in sent:
        stored.must(RUN, "session.entry", {"entry": each})
    kept = stored.reader.transcript(RUN)
    assert [(row["seq"], row["entry"]) for row in kept] == list(enumerate(sent, 1))
    again = stored.apply(RUN, "session.entry", {"entry": sent[2]}, producer="other")
    assert again == DUPLICATE
    assert stored.only("segments", RUN)["revision"] == 4


def test_C2_what_comes_after_the_end_of_a_recording_is_refused(stored: StoredWorld) -> None:
    bound(stored)
    stored.must(RUN, "session.entry", {"entry": entry("e-", 0)})
    stored.must(RUN, "session.capture", {"status": "complete"})
    late = stored.apply(RUN, "session.entry", {"entry": entry("e-", 1)})
    assert late.reason == "capture_terminal"
    assert len(stored.reader.transcript(RUN)) == 1


def test_C3_events_keep_their_node_and_attempt_and_follow_each_other(stored: StoredWorld) -> None:
    bound(stored)
    sent = [event(seq, "a1") for seq in range(1, 8)]
    for first in (0, 3):
        stored.must(RUN, "session.events", {"events": sent[first : first + 4]})
    stored.must(RUN, "session.capture", capture_body(capture_document(0, 7)))

    run = stored.reader.read_run(RUN)
    assert run is not None
    assert run["sessionEvents"] == sent
    assert run["sessionIntegrity"]["status"] == "complete"
    assert stored.reader.session_counts(RUN) == {
        "entryCount": 0,
        "eventCount": 7,
        "lastEventSeq": 7,
    }
