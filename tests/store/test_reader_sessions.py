"""A run's sessions read back: transcripts, events, captures, whether they are whole."""

from __future__ import annotations

from typing import Any

from tests.store.filling import Filling, binding, pi_run, pi_state, record
from writer.dialects.instant import iso
from writer.store.reader import StateReader
from writer.store.reader.query import PAGE_BYTES


def test_a_whole_run_has_the_hosts_shape(filling: Filling, reader: StateReader) -> None:
    pi_run(filling, "run-1")

    run = reader.read_run("run-1")

    assert run is not None
    assert list(run) == [
        "runId",
        "state",
        "snapshot",
        "traceEvents",
        "sessionBinding",
        "sessionEntries",
        "sessionEvents",
        "sessionCapture",
        "sessionIntegrity",
        "sessionSegments",
    ]
    assert run["runId"] == "run-1"
    assert run["state"] == reader.state("run-1")
    assert run["snapshot"] == {"name": "flow", "startAt": "plan", "nodes": {}, "edges": []}
    assert [event["seq"] for event in run["traceEvents"]] == list(range(1, 10))
    assert run["traceEvents"][2] == {
        "seq": 3,
        "at": iso(1003),
        "runId": "run-1",
        "scope": "node",
        "type": "node_started",
        "nodeId": "plan",
        "attemptId": "a1",
        "payload": {"why": "first"},
    }
    assert run["traceEvents"][8]["payload"] == {}
    assert run["sessionBinding"] == binding("run-1", "s-flat")
    assert run["sessionEntries"] == [
        {"seq": 1, "at": iso(1008), "entry": {"id": "e1", "text": "one\0"}},
        {"seq": 2, "at": iso(1009), "entry": {"text": "no id", "big": 2**53 + 1}},
    ]
    assert run["sessionEvents"] == [
        record(1),
        record(2, nodeId="plan", attemptId="a1", turnId="t1"),
    ]
    assert run["sessionCapture"] == {
        "schema": "pi-workflows.session-capture.v1",
        "eventSchema": "pi-workflows.session-event.v1",
        "status": "complete",
        "entryCount": 2,
        "eventCount": 2,
        "lastEventSeq": 2,
    }
    assert run["sessionIntegrity"] == {"status": "complete", "diagnostics": []}
    (segment,) = run["sessionSegments"]
    failure = {"code": "entry_write_failed", "message": "disk full"}
    assert segment["captureKey"] == "capture-b"
    assert segment["session"] == "s-b"
    assert segment["binding"] == binding("run-1", "s-b")
    assert (segment["entries"], segment["events"]) == ([], [record(1)])
    assert segment["capture"]["failure"] == failure
    assert segment["integrity"] == {"status": "failed", "diagnostics": ["disk full"]}

    light = reader.read_run("run-1", include_trace=False)
    assert light is not None
    assert "traceEvents" not in light


def test_a_run_without_a_session_says_so(filling: Filling, reader: StateReader) -> None:
    filling.apply("run-1", "run.create", {"state": {"x": 1}})

    run = reader.read_run("run-1")

    assert run is not None
    assert (run["state"], run["snapshot"]) == ({"x": 1}, None)
    assert (run["sessionBinding"], run["sessionCapture"]) == (None, None)
    assert (run["sessionEntries"], run["sessionEvents"], run["sessionSegments"]) == ([], [], [])
    assert run["sessionIntegrity"] == {"status": "unavailable", "diagnostics": []}


def recording(filling: Filling, **state: Any) -> None:
    state = pi_state("run-1", **state)
    filling.apply("run-1", "run.create", {"dialect": "pi_workflows", "state": state})
    filling.apply("run-1", "session.bind", {"session": "s"})
    filling.apply("run-1", "session.entry", {"entry": {"id": "e1"}})


def test_a_recording_of_a_running_run_is_recording(filling: Filling, reader: StateReader) -> None:
    recording(filling)
    run = reader.read_run("run-1")
    assert run is not None
    assert run["sessionIntegrity"] == {"status": "recording", "diagnostics": []}


def test_a_recording_that_outlives_its_run_is_invalid(
    filling: Filling, reader: StateReader
) -> None:
    recording(filling, status="completed")
    run = reader.read_run("run-1")
    assert run is not None
    assert run["sessionIntegrity"] == {
        "status": "invalid",
        "diagnostics": ["terminal run still reports recording capture"],
    }


def test_rows_that_went_missing_make_a_session_invalid(
    filling: Filling, reader: StateReader
) -> None:
    recording(filling)
    filling.edit("run-1", "DELETE FROM session_entries")
    run = reader.read_run("run-1")
    assert run is not None
    assert run["sessionIntegrity"] == {
        "status": "invalid",
        "diagnostics": ["session capture counts do not match durable rows"],
    }


def test_transcripts_are_read_page_by_page(filling: Filling, reader: StateReader) -> None:
    filling.apply("run-1", "run.create")
    for key in (None, "other"):
        where = {"capture_key": key} if key else {}
        filling.apply("run-1", "session.bind", {"session": f"s-{key}", **where})
        for number in range(1, 6):
            entry = {"id": f"e{number}", "of": key}
            filling.apply("run-1", "session.entry", {"entry": entry, **where})
            filling.apply("run-1", "session.events", {"events": [record(number)], **where})

    for key in (None, "other"):
        entries = reader.transcript("run-1", capture_key=key, after=2, limit=2)
        assert [(row["seq"], row["entry_id"]) for row in entries] == [(3, "e3"), (4, "e4")]
        assert entries[0]["entry"] == {"id": "e3", "of": key}
        events = reader.session_events("run-1", capture_key=key, after=4)
        assert [(row["seq"], row["event"]) for row in events] == [(5, record(5))]
        assert reader.session_counts("run-1", key) == {
            "entryCount": 5,
            "eventCount": 5,
            "lastEventSeq": 5,
        }
    assert reader.transcript("run-1", capture_key="none") == []
    assert reader.has_session_binding("run-1")
    assert reader.list_session_segments("run-1") == ["other"]


def test_a_page_of_large_documents_ends_early(filling: Filling, reader: StateReader) -> None:
    """Memory has a bound whatever the limit; reading on until nothing comes gives all."""
    filling.apply("run-1", "run.create")
    filling.apply("run-1", "session.bind", {"session": "s"})
    size = 3 * 1024 * 1024
    count = PAGE_BYTES // size + 3
    for number in range(count):
        filling.apply("run-1", "session.entry", {"entry": {"n": number, "text": "x" * size}})

    first = reader.transcript("run-1")
    rest = reader.transcript("run-1", after=first[-1]["seq"])

    assert 1 < len(first) < count
    assert [row["entry"]["n"] for row in (*first, *rest)] == list(range(count))
    assert reader.transcript("run-1", after=count) == []
    run = reader.read_run("run-1")
    assert run is not None
    assert len(run["sessionEntries"]) == count
