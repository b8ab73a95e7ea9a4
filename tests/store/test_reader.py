"""One run read back: its state at every revision, its trace, its sessions, its messages' ends."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.store.filling import START_MS, Filling, auth, claim, pi_run, pi_state
from tests.support.engine import call, created, items, new_run, node, pending, workflow_snapshot
from writer.dialects.instant import iso
from writer.errors import FileCorrupt, Usage
from writer.store.reader import StateReader
from writer.store.reader.runs import SIDE_ROWS_MAX


def same(found: Any, expected: Any) -> bool:
    """Equal as JSON, where 1, 1.0 and true are three values."""
    options = orjson.OPT_SORT_KEYS
    return orjson.dumps(found, option=options) == orjson.dumps(expected, option=options)


# --- states ---


def test_every_revision_of_a_state_reads_back(filling: Filling, reader: StateReader) -> None:
    states: list[Any] = [
        {},
        {"a": 1, "big": ["x" * 700, "y" * 700]},
        {"a": 1.0, "big": ["y" * 700, "z" * 700]},
        {"a": True, "big": {"0": "x" * 1200}},
        {"a": None, "big": None},
        {"": {"/~": [[]]}, "big": [{"k": "v" * 2000}]},
    ]
    filling.apply("run-1", "run.create", {"state": states[0]})
    for state in states[1:]:
        filling.apply("run-1", "run.snapshot", {"state": state})

    for revision, state in enumerate(states, 1):
        assert same(reader.state("run-1", revision), state)
    assert same(reader.state("run-1"), states[-1])
    for revision in (0, -1, len(states) + 1):
        assert reader.state("run-1", revision) is None


def test_a_pi_state_is_stamped_with_the_revision_that_is_read(
    filling: Filling, reader: StateReader
) -> None:
    pi_run(filling, "run-1")

    first, third, last = (reader.state("run-1", revision) for revision in (1, 3, None))

    assert (first["traceSeq"], first["updatedAt"], first["updates"]) == (1, iso(1001), [])
    assert (third["traceSeq"], third["currentNode"]) == (3, "plan")
    assert (last["traceSeq"], last["status"]) == (9, "completed")
    (update,) = last["updates"]
    assert update.pop("updateId").startswith("upd_")
    assert update == {
        "seq": 5,
        "at": iso(1005),
        "runId": "run-1",
        "nodeId": "plan",
        "attemptId": "a1",
        "type": "progress",
        "key": "tests",
        "data": {
            "schema": "pi-workflows.progress.v1",
            "completed": 2,
            "total": 10,
            "unit": "files",
        },
    }
    before = reader.state("run-1", 4)["updates"]
    assert [(each["seq"], each["data"]["completed"]) for each in before] == [(4, 1)]


def test_current_updates_are_the_newest_of_each_pair(filling: Filling, reader: StateReader) -> None:
    filling.apply("run-1", "run.create")
    for key, value in (("a", 1), ("b", 2), ("a", 3)):
        filling.apply("run-1", "run.update", {"type": "note", "key": key, "data": {"v": value}})

    def shown(revision: int | None = None) -> list[tuple[int, str, int]]:
        rows = reader.updates("run-1", revision)
        return [(row["revision"], row["key"], row["data"]["v"]) for row in rows]

    assert shown() == [(3, "b", 2), (4, "a", 3)]
    assert shown(3) == [(2, "a", 1), (3, "b", 2)]
    assert shown(1) == []


def test_a_state_that_lost_a_part_is_not_shown(filling: Filling, reader: StateReader) -> None:
    state = {"a": ["x" * 700, "y" * 700]}
    filling.apply("run-1", "run.create", {"state": state})
    filling.edit("run-1", "DELETE FROM state_parts WHERE pointer = '/a/1'")
    with pytest.raises(FileCorrupt, match="run-1"):
        reader.state("run-1")
    assert len(reader.trace("run-1")) == 1


# --- the trace ---


def test_the_trace_is_read_page_by_page(filling: Filling, reader: StateReader) -> None:
    pi_run(filling, "run-1")

    whole = reader.trace("run-1")
    paged, after = [], 0
    while page := reader.trace("run-1", after=after, limit=4):
        paged += page
        after = page[-1]["revision"]

    assert paged == whole
    assert [row["revision"] for row in whole] == list(range(1, 10))
    assert " ".join(whole[0]) == (
        "run_id revision type scope node_id attempt_id payload recorded_at message_id producer "
        "producer_seq lease_generation trace_parent event_seq"
    )
    assert list(whole[3]["payload"]) == ["updateId", "type", "key", "data"]
    assert whole[8]["payload"] is None


def test_the_last_trace_event_has_the_hosts_shape(filling: Filling, reader: StateReader) -> None:
    filling.apply("run-1", "run.create")
    draft = {"type": "tick", "scope": "node", "node_id": "n", "payload": {"tick": 1}}
    filling.apply("run-1", "run.snapshot", {"state": {}, "event": draft})

    assert reader.last_trace_event("run-1") == {
        "seq": 2,
        "at": iso(START_MS + 2),
        "runId": "run-1",
        "scope": "node",
        "type": "tick",
        "nodeId": "n",
        "payload": {"tick": 1},
    }


def test_an_event_that_only_looks_like_an_update_stays_as_it_is(
    filling: Filling, reader: StateReader
) -> None:
    filling.apply("run-1", "run.create")
    draft = {"type": "run.update", "payload": {"type": "note", "key": "k"}}
    filling.apply("run-1", "run.snapshot", {"state": {}, "event": draft})

    assert reader.trace("run-1")[1]["payload"] == {"type": "note", "key": "k"}


# --- how messages ended ---


def test_every_end_of_a_message_can_be_looked_up(filling: Filling, reader: StateReader) -> None:
    def outcome(sent: Any) -> Any:
        return reader.outcome("run-1", sent.id, sent.producer, sent.seq)

    created = filling.apply("run-1", "run.create")
    bound = filling.apply("run-1", "session.bind", {"session": "s", "capture_key": "k"})
    entry = filling.apply("run-1", "session.entry", {"capture_key": "k", "entry": {"id": "e"}})
    refused = filling.send("run-1", "run.reset")
    again = filling.send("run-1", "session.bind", {"session": "s", "capture_key": "k"}, seq=2)
    refused_again = filling.send("run-1", "run.reset", seq=4)
    equal = filling.send("run-1", "session.bind", {"session": "s", "capture_key": "k"})
    filling.apply("run-1", "lease.claim", claim())
    renewed = filling.apply("run-1", "lease.renew", {"lease_ms": 5}, auth=auth())

    assert outcome(created) == {
        "outcome": "applied",
        "revision": 1,
        "segment": 0,
        "capture_key": None,
    }
    assert outcome(bound)["revision"] == 2
    assert outcome(entry) == {
        "outcome": "applied",
        "revision": 2,
        "segment": 1,
        "capture_key": "k",
    }
    assert outcome(refused) == {"outcome": "rejected", "reason": "run_not_terminal", "detail": ""}
    assert outcome(again) == {
        "outcome": "duplicate",
        "revision": 2,
        "segment": 0,
        "capture_key": None,
        "of": bound.id,
    }
    assert outcome(refused_again) == {
        "outcome": "duplicate",
        "reason": "run_not_terminal",
        "detail": "",
        "of": refused.id,
    }
    assert outcome(equal) == {"outcome": "settled"}
    assert outcome(renewed) == {"outcome": "settled"}
    assert reader.outcome("run-1", created.id) == {"outcome": "settled"}
    assert reader.outcome("run-1", "9999999-0", "p", 99) is None
    assert reader.outcome("run-2", "1-0", "p", 1) is None
    with pytest.raises(Usage, match="no message id"):
        reader.outcome("run-1", "yesterday")


def test_message_ids_are_compared_as_numbers(filling: Filling, reader: StateReader) -> None:
    message = filling.message("run-1", "run.create", {})
    filling.settle([message._replace(id="999-10")])

    assert reader.outcome("run-1", "1000-0", "p", 2) is None
    assert reader.outcome("run-1", "999-9", "p", 2) == {"outcome": "settled"}
    assert reader.outcome("run-1", "999-11", "p", 2) is None
    assert reader.settled(["run-1", "run-2"]) == {"run-1": (1, "999-10")}


# --- one run and what stands around it ---


def test_the_detail_of_a_run(filling: Filling, reader: StateReader) -> None:
    pi_run(filling, "run-1")

    run = reader.run("run-1")

    assert run is not None
    assert (run["run_id"], run["status"], run["title"]) == ("run-1", "completed", "later")
    assert run["tags"] == {"team": "a"}
    assert run["cursor"] == {
        "incarnation": 1,
        "message_id": "1016-0",
        "applied": 15,
        "duplicates": 0,
        "rejected": 1,
    }
    assert run["producers"] == [
        {"producer": "p", "last_seq": 14, "gaps": []},
        {"producer": "q", "last_seq": 5, "gaps": [[2, 4]]},
    ]
    assert (run["lease"]["owner_id"], run["lease"]["generation"]) == ("host-1", 1)
    assert run["lease"]["released_at"] is None
    assert "token" not in repr(run)
    assert [
        (each["capture_key"], each["status"], each["entry_count"], each["event_count"])
        for each in run["segments"]
    ] == [(None, "complete", 2, 2), ("capture-b", "failed", 0, 1)]
    assert run["segments"][1]["failure"]["message"] == "disk full"
    (effect,) = run["effects"]
    assert (effect["kind"], effect["occurrence"], effect["status"]) == ("run.settled", 1, "pending")
    assert (run["quarantine"], run["truncated"]) == (None, [])
    (attempt,) = reader.attempts("run-1")
    assert (attempt["attempt_id"], attempt["status"], attempt["revision"]) == ("a1", "completed", 9)


def test_a_stream_whose_run_was_never_created(filling: Filling, reader: StateReader) -> None:
    filling.send("run-1", "run.annotate", {"title": "too early"})

    run = reader.run("run-1")

    assert run is not None
    assert (run["run_id"], run["status"], run["cursor"]["rejected"]) == ("run-1", None, 1)
    assert "deleted" not in run
    assert reader.read_run("run-1") is None


def test_a_deleted_run_is_a_tombstone(filling: Filling, reader: StateReader) -> None:
    pi_run(filling, "run-1")
    filling.apply("run-1", "run.delete", {"reason": "old"}, auth=auth())
    filling.send("run-1", "run.annotate", {"title": "too late"})

    run = reader.run("run-1")

    assert run is not None
    assert (run["status"], run["cursor"]["rejected"]) == (None, 2)
    assert run["deleted"] == {
        "revision": 10,
        "events": 15,
        "segments": 2,
        "reason": "old",
        "message_id": "1017-0",
        "deleted_at": 1017,
    }
    assert reader.state("run-1") is None
    assert reader.trace("run-1") == []


def test_a_run_that_waits_says_what_for(filling: Filling, reader: StateReader) -> None:
    filling.apply("run-1", "run.create")
    filling.send("run-1", "run.annotate", {"title": "t"}, raw={b"v": b"7"})

    run = reader.run("run-1")

    assert run is not None
    assert run["quarantine"]["message_id"] == "1002-0"
    assert (run["quarantine"]["cause"], run["quarantine"]["version"]) == ("version_newer", 7)


def test_side_rows_are_bounded_and_say_so(filling: Filling, reader: StateReader) -> None:
    count = SIDE_ROWS_MAX + 1
    filling.settle(
        filling.message("run-1", "run.reset", {}, producer=f"p{number}", seq=2)
        for number in range(count)
    )
    run = reader.run("run-1")
    assert run is not None
    assert len(run["producers"]) == SIDE_ROWS_MAX
    assert run["truncated"] == ["producers", "gaps"]


def test_attempts_stand_in_the_order_of_their_start(filling: Filling, reader: StateReader) -> None:
    def step(name: str, started: int) -> dict[str, str]:
        return {"attemptId": name, "nodeId": "n", "outcome": "ok", "startedAt": iso(started)}

    steps = [step("c", 1), step("a", 3), step("b", 2)]
    state = pi_state("run-1", steps=steps)
    filling.apply("run-1", "run.create", {"dialect": "pi_workflows", "state": state})

    assert [row["attempt_id"] for row in reader.attempts("run-1")] == ["c", "b", "a"]
    assert [row["attempt_id"] for row in reader.attempts("run-1", limit=2)] == ["c", "b"]


# --- export ---


def test_an_export_holds_all_of_a_run_in_order(filling: Filling, reader: StateReader) -> None:
    pi_run(filling, "run-1")

    lines = list(reader.export_run("run-1"))

    kinds = [line["type"] for line in lines]
    assert list(dict.fromkeys(kinds)) == [
        "run",
        "event",
        "state",
        "update",
        "attempt",
        "effect",
        "lease",
        "producer",
        "segment",
        "entry",
        "session_event",
        "rejection",
    ]
    assert kinds.count("event") == 9 + 4 + 2
    run = lines[0]["run"]
    assert run["definition"]["name"] == "flow"
    assert (run["input"], run["tags"], run["reserved"]) == ({"n": 1}, {"team": "a"}, False)
    by_kind = {kind: [line[kind] for line in lines if line["type"] == kind] for kind in kinds}
    assert by_kind["state"] == [{"revision": 9, "document": reader.state("run-1")}]
    assert [update["data"]["completed"] for update in by_kind["update"]] == [1, 2]
    assert [entry["entry"].get("id") for entry in by_kind["entry"]] == ["e1", None]
    assert [(each["capture_key"], each["seq"]) for each in by_kind["session_event"]] == [
        (None, 1),
        (None, 2),
        ("capture-b", 1),
    ]
    (refused,) = by_kind["rejection"]
    assert refused["reason"] == "run_conflict"
    assert refused["fields"]["kind"] == "run.create"
    assert "token" not in repr(lines)
    assert all(orjson.dumps(line) for line in lines)
    assert list(reader.export_run("run-2")) == []


def test_an_export_holds_what_a_workflow_engine_saved(
    filling: Filling, reader: StateReader
) -> None:
    large = {"main": items("x" * 2_000)}
    state = {
        "queue": [{"nodeId": "b", "input": items(1)}],
        "pending": pending("run-1", "a", "act-1"),
        "suspension": [{"taskId": "t"}],
        "nodeSnapshotsByNodeId": {"a": node("run-1", "a", "act-1", outputs=large)},
        "connectionInvocations": [call("run-1", "i")],
    }
    filling.apply("run-1", "run.create", created("run-1", workflowSnapshot=workflow_snapshot()))
    event = {"type": "node_done", "scope": "node", "payload": {"outputs": large}}
    latest = new_run("run-1", workflowSnapshot=workflow_snapshot(5), **state)
    filling.apply("run-1", "run.snapshot", {"state": latest, "event": event})
    filling.send("run-1", "run.annotate", {"title": "late"}, seq=7)

    by_kind: dict[str, list[Any]] = {}
    for line in reader.export_run("run-1"):
        by_kind.setdefault(line["type"], []).append(line[line["type"]])
    assert by_kind["state"] == [{"revision": 3, "document": reader.load("run-1")}]
    assert [each["invocation_id"] for each in by_kind["invocation"]] == ["i"]
    assert [(each["kind"], each["node_id"]) for each in by_kind["work_item"]] == [
        ("claimed", "a"),
        ("queued", "b"),
    ]
    assert [each["task_id"] for each in by_kind["suspension"]] == ["t"]
    # An event that refers to the state has its payload whole, for earlier states are not here.
    assert by_kind["event"][1]["payload"] == {"outputs": large}
    assert by_kind["run"][0]["definition"] == workflow_snapshot(5)
    assert [each["definition"] for each in by_kind["definition"]] == [workflow_snapshot()]
    (producer,) = by_kind["producer"]
    assert (producer["last_seq"], producer["gaps"]) == (7, [[3, 6]])
