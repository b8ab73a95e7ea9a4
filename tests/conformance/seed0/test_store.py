"""S: the store's own cases."""

# ruff: noqa: N802 - a case is named after its mark
from __future__ import annotations

from typing import Any

from tests.support.workload import base_state, binding, capture_body, event
from tests.support.workload import capture as capture_document
from tests.support.world import StoredWorld

RUN = "run-1"
MIB = 1024 * 1024


def draft(type: str, **more: Any) -> dict[str, Any]:
    return {"type": type, "scope": "node" if more else "run", **more}


def test_S1_one_agent_step_runs_to_the_end(stored: StoredWorld) -> None:
    state = base_state(RUN)
    node = {"node_id": "reply", "attempt_id": "a1"}
    stored.create(RUN, definition={"name": "echo", "startAt": "reply"}, state=state)
    stored.must(RUN, "run.snapshot", {"state": state, "event": draft("run_started")})
    state |= {"currentNode": "reply", "currentAttemptId": "a1"}
    for seen in ("node_started", "agent_prompt_sent"):
        stored.must(RUN, "run.snapshot", {"state": state, "event": draft(seen, **node)})
    del state["currentNode"], state["currentAttemptId"]
    output = {"reply": "done"}
    state["steps"] = [{"attemptId": "a1", "nodeId": "reply", "outcome": "ok", "output": output}]
    stored.must(RUN, "run.snapshot", {"state": state, "event": draft("node_finished", **node)})
    state |= {"status": "completed", "finalOutput": output}
    stored.must(RUN, "run.snapshot", {"state": state, "event": draft("run_completed")})

    run = stored.reader.read_run(RUN)
    assert run is not None
    assert run["state"]["status"] == "completed"
    assert run["state"]["finalOutput"] == output
    assert run["snapshot"]["name"] == "echo"
    assert [seen["type"] for seen in run["traceEvents"]] == [
        "run_created",
        "run_started",
        "node_started",
        "agent_prompt_sent",
        "node_finished",
        "run_completed",
    ]
    assert stored.only("attempts", RUN)["status"] == "completed"
    assert len(stored.all("events", RUN)) == 6
    assert stored.all("effects", RUN) == []


def test_S2_a_large_output_is_stored_once(stored: StoredWorld) -> None:
    output = "o" * MIB
    state = base_state(RUN)
    stored.create(RUN, state=state)
    state["steps"] = [{"attemptId": "a1", "nodeId": "work", "outcome": "ok", "output": output}]
    for number in range(10):
        state["statusDetail"] = f"tick {number}"
        stored.must(RUN, "run.snapshot", {"state": state, "event": draft("tick")})

    sizes = stored.rows(
        "SELECT length(value) AS size FROM state_parts UNION ALL SELECT length(payload) FROM events"
    )
    sizes_known = [row["size"] or 0 for row in sizes]
    assert max(sizes_known) <= MIB + 1_000
    assert sum(sizes_known) < MIB + 100_000
    assert all(stored.state(RUN, revision)["steps"] == state["steps"] for revision in (2, 11))


def test_S3_an_update_during_a_step_is_in_the_state_and_in_the_trace(stored: StoredWorld) -> None:
    state = base_state(RUN) | {"currentNode": "work", "currentAttemptId": "a1"}
    stored.create(RUN, state=state)
    data = {"done": 1}
    published = {"type": "note", "key": "k", "data": data}
    stored.must(RUN, "run.update", published | {"node_id": "work", "attempt_id": "a1"})

    (current,) = stored.state(RUN)["updates"]
    assert (current["type"], current["key"], current["data"]) == ("note", "k", data)
    assert (current["nodeId"], current["attemptId"], current["seq"]) == ("work", "a1", 2)
    run = stored.reader.read_run(RUN)
    assert run is not None
    (published_event,) = [seen for seen in run["traceEvents"] if seen["type"] == "update_published"]
    assert published_event["payload"] == published | {"updateId": current["updateId"]}
    assert len(stored.all("updates", RUN)) == 1


def test_S4_a_session_is_recorded_on_a_completed_run(stored: StoredWorld) -> None:
    stored.create(RUN, state=base_state(RUN) | {"status": "completed"})
    document = binding(RUN)
    stored.must(RUN, "session.bind", {"session": "session-1", "binding": document})
    entry = {"type": "message", "id": "e1"}
    stored.must(RUN, "session.entry", {"entry": entry})
    stored.must(RUN, "session.events", {"events": [event(1, "a1")]})
    stored.must(RUN, "session.capture", capture_body(capture_document(1, 1)))

    run = stored.reader.read_run(RUN)
    assert run is not None
    assert run["sessionBinding"] == document
    assert [kept["entry"] for kept in run["sessionEntries"]] == [entry]
    assert run["sessionEvents"] == [event(1, "a1")]
    assert run["sessionIntegrity"] == {"status": "complete", "diagnostics": []}


def test_S5_all_runs_are_listed(stored: StoredWorld) -> None:
    stored.create("run-1")
    stored.create("run-2")
    listed = stored.reader.list_runs().runs
    assert [run["run_id"] for run in listed] == ["run-2", "run-1"]


def test_S6_a_missing_run_reads_as_none_and_stays_missing(stored: StoredWorld) -> None:
    stored.create(RUN)
    assert stored.reader.read_run("missing") is None
    assert stored.rows("SELECT run_id FROM cursors") == [{"run_id": RUN}]
