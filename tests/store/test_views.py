"""The views are the public read contract: their columns, and what stands in them."""

from __future__ import annotations

import sqlite3
from typing import Any

import orjson
import pytest

from tests.store.filling import Filling, auth, binding, claim, pi_run, plan_of

COLUMNS = {
    "v_runs": "run_id dialect workflow title tags test_case_status status status_detail "
    "current_node current_attempt error revision parent_run parent_relation source_type source_ref "
    "source_revision retention_seconds created_at updated_at finished_at lease_owner_type "
    "lease_owner_id lease_expires_at attempts entries session_events terminal",
    "v_trace": "run_id revision type scope node_id attempt_id payload recorded_at message_id "
    "producer producer_seq lease_generation trace_parent event_seq",
    "v_attempts": "run_id attempt_id node_id number node_type status outcome step started_at "
    "finished_at revision batch_id child_run",
    "v_work_items": "run_id kind position node_id attempt_id batch_id port items queue enqueued_at "
    "revision",
    "v_invocations": "run_id invocation_id position node_id number agent_node attempt_id status "
    "status_label subject_name iteration_id item_index parent_invocation queued_at started_at "
    "finished_at revision",
    "v_suspensions": "run_id position task_id node_id attempt_id item_index on_timeout timeout_at "
    "revision",
    "v_slots": "run_id node_id latest_attempt latest_terminal latest_running status attempts "
    "finished invocations",
    "v_transcript": "run_id capture_key session seq entry_id entry recorded_at",
    "v_session_events": "run_id capture_key session seq type at node_id attempt_id turn_id "
    "message_id tool_call_id payload event recorded_at",
    "v_rejections": "rejection_seq run_id message_id kind producer producer_seq reason detail "
    "fields_bytes recorded_at",
    "v_lag": "run_id incarnation message_id arrived_at applied duplicates rejected settled "
    "open_gaps missing quarantined",
}
"""Version 1. A column may be added at the end; nothing else changes."""


def test_the_contract_is_these_views_and_columns(filling: Filling) -> None:
    names = filling.rows("r", "SELECT name FROM sqlite_schema WHERE type = 'view' ORDER BY name")
    assert [row["name"] for row in names] == sorted(COLUMNS)
    for view, columns in COLUMNS.items():
        found = filling.rows("r", "SELECT name FROM pragma_table_info(?) ORDER BY cid", view)
        assert " ".join(row["name"] for row in found) == columns, view


def test_v_runs_shows_a_run_in_one_row(filling: Filling) -> None:
    pi_run(filling, "run-1")

    (row,) = filling.rows("run-1", "SELECT * FROM v_runs")

    assert row["run_id"] == "run-1"
    assert (row["dialect"], row["workflow"]) == ("pi_workflows", "flow")
    assert (row["status"], row["revision"]) == ("completed", 9)
    assert (row["parent_run"], row["parent_relation"]) == ("parent-1", "child")
    assert row["source_ref"] == "inline:flow"
    assert orjson.loads(row["tags"]) == {"team": "a"}
    assert (row["created_at"], row["finished_at"]) == (1001, row["updated_at"])
    assert (row["lease_owner_type"], row["lease_owner_id"]) == ("host", "host-1")
    assert row["lease_expires_at"] == row["updated_at"] + 60_000
    assert (row["attempts"], row["entries"], row["session_events"]) == (1, 2, 3)


def test_a_free_run_has_no_lease(filling: Filling) -> None:
    filling.apply("run-1", "run.create")
    filling.apply("run-1", "lease.claim", claim())
    filling.apply("run-1", "lease.release", auth=auth())

    (row,) = filling.rows("run-1", "SELECT * FROM v_runs")
    assert [row[f"lease_{name}"] for name in ("owner_type", "owner_id", "expires_at")] == [None] * 3


def test_v_trace_counts_revisions_and_names_messages(filling: Filling) -> None:
    pi_run(filling, "run-1")

    rows = filling.rows("run-1", "SELECT * FROM v_trace WHERE run_id = 'run-1' ORDER BY revision")

    assert [row["revision"] for row in rows] == list(range(1, 10))
    assert [row["type"] for row in rows] == [
        "run_created",
        "lease.claimed",
        "node_started",
        "update_published",
        "update_published",
        "session_bound",
        "session_bound",
        "run_annotated",
        "run_completed",
    ]
    started = rows[2]
    assert (started["scope"], started["node_id"], started["attempt_id"]) == ("node", "plan", "a1")
    assert orjson.loads(started["payload"]) == {"why": "first"}
    assert (started["message_id"], started["recorded_at"]) == ("1003-0", 1003)
    assert (started["producer"], started["producer_seq"]) == ("p", 3)
    assert (rows[0]["lease_generation"], started["lease_generation"]) == (0, 1)
    assert rows[8]["payload"] is None


def test_v_trace_joins_the_data_of_an_update(filling: Filling) -> None:
    """Data that SQLite's JSON functions pass on must come out as it went in."""
    data: dict[str, Any] = {
        "nul": "a\0b",
        "numbers": [1, 1.0, 1e300, -0.0, 2**63 - 1, -(2**63), 2**64 - 1, True, None],
        "deep": {"/~": ["é", "\U0001f600", ""]},
        "$.data": 0,
    }
    nested: Any = data["deep"]
    for _ in range(120):
        nested["in"] = {}
        nested = nested["in"]
    filling.apply("run-1", "run.create")
    filling.apply("run-1", "run.update", {"type": "note", "key": "k", "data": data})

    (row,) = filling.rows("run-1", "SELECT payload FROM v_trace WHERE revision = 2")

    payload = orjson.loads(row["payload"])
    assert orjson.dumps(payload) == orjson.dumps({"type": "note", "key": "k", "data": data})


def test_v_attempts_shows_what_was_tried(filling: Filling) -> None:
    pi_run(filling, "run-1")

    (row,) = filling.rows("run-1", "SELECT * FROM v_attempts")

    assert (row["run_id"], row["attempt_id"], row["node_id"]) == ("run-1", "a1", "plan")
    assert (row["number"], row["status"], row["outcome"]) == (1, "completed", "ok")
    assert row["revision"] == 9


def test_v_transcript_and_v_session_events_hold_whole_records(filling: Filling) -> None:
    pi_run(filling, "run-1")

    entries = filling.rows("run-1", "SELECT * FROM v_transcript ORDER BY capture_key, seq")
    assert [(row["capture_key"], row["session"], row["seq"]) for row in entries] == [
        (None, "s-flat", 1),
        (None, "s-flat", 2),
    ]
    assert orjson.loads(entries[0]["entry"]) == {"id": "e1", "text": "one\0"}
    assert [row["entry_id"] for row in entries] == ["e1", None]

    events = filling.rows("run-1", "SELECT * FROM v_session_events ORDER BY capture_key, seq")
    assert [(row["capture_key"], row["seq"]) for row in events] == [
        (None, 1),
        (None, 2),
        ("capture-b", 1),
    ]
    assert (events[1]["type"], events[1]["at"]) == ("assistant_event", "2026-08-23T00:00:00.000Z")
    assert (events[1]["node_id"], events[1]["attempt_id"], events[1]["turn_id"]) == (
        "plan",
        "a1",
        "t1",
    )
    assert (events[1]["message_id"], events[1]["tool_call_id"]) == (None, None)
    assert orjson.loads(events[1]["payload"]) == {"delta": "d2"}
    assert orjson.loads(events[1]["event"])["turnId"] == "t1"


def test_v_rejections_and_v_lag_tell_how_messages_ended(filling: Filling) -> None:
    filling.send("run-1", "run.annotate", {"title": "too early"})
    filling.apply("run-1", "run.create", {}, seq=5)
    filling.send("run-1", "run.create", {}, producer="q")

    (refused,) = filling.rows("run-1", "SELECT * FROM v_rejections")
    assert refused["run_id"] == "run-1"
    assert (refused["kind"], refused["reason"]) == ("run.annotate", "run_unknown")
    assert (refused["producer"], refused["producer_seq"]) == ("p", 1)
    assert (refused["message_id"], refused["recorded_at"]) == ("1001-0", 1001)
    assert refused["fields_bytes"] > 50

    (lag,) = filling.rows("run-1", "SELECT * FROM v_lag")
    assert (lag["incarnation"], lag["message_id"], lag["arrived_at"]) == (1, "1003-0", 1003)
    assert (lag["applied"], lag["duplicates"], lag["rejected"], lag["settled"]) == (1, 1, 1, 3)
    assert (lag["open_gaps"], lag["missing"], lag["quarantined"]) == (1, 3, None)


def test_v_lag_names_what_a_run_waits_at(filling: Filling) -> None:
    filling.apply("run-1", "run.create")
    filling.send("run-1", "run.annotate", {"title": "t"}, raw={b"v": b"999"})

    (lag,) = filling.rows("run-1", "SELECT * FROM v_lag")
    assert (lag["message_id"], lag["quarantined"]) == ("1001-0", "1002-0")


def test_v_lag_bounds_an_arrival_that_no_calendar_holds(filling: Filling) -> None:
    message = filling.message("run-1", "run.create", {})
    filling.settle([message._replace(id=f"{2**64 - 1}-7")])

    (lag,) = filling.rows("run-1", "SELECT * FROM v_lag")
    assert lag["arrived_at"] == 2**53 - 1


def test_of_a_deleted_run_only_its_end_is_left(filling: Filling) -> None:
    pi_run(filling, "run-1")
    filling.apply("run-1", "run.delete", {"reason": "old"}, auth=auth())

    left = {view: filling.rows("run-1", f"SELECT * FROM {view}") for view in COLUMNS}

    assert [view for view, rows in left.items() if rows] == ["v_trace", "v_lag"]
    (end,) = left["v_trace"]
    assert (end["type"], end["revision"]) == ("run_deleted", 10)


CALLS = {
    "newest runs": "SELECT * FROM v_runs ORDER BY created_at DESC, run_id DESC LIMIT 50",
    "runs of a status": "SELECT * FROM v_runs WHERE status = 'failed' "
    "ORDER BY created_at DESC, run_id DESC LIMIT 50",
    "children": "SELECT * FROM v_runs WHERE parent_run = 'run-1'",
    "one run": "SELECT * FROM v_runs WHERE run_id = 'run-1'",
    "trace": "SELECT * FROM v_trace WHERE run_id = 'run-1' AND revision > 7 ORDER BY revision",
    "feed": "SELECT * FROM v_trace WHERE event_seq > 7 ORDER BY event_seq LIMIT 50",
    "attempts": "SELECT * FROM v_attempts WHERE run_id = 'run-1'",
    "transcript": "SELECT * FROM v_transcript WHERE run_id = 'run-1' AND seq > 7",
    "session": "SELECT * FROM v_session_events WHERE run_id = 'run-1' AND seq > 7",
    "refusals": "SELECT * FROM v_rejections ORDER BY rejection_seq DESC LIMIT 50",
    "refusals of a run": "SELECT * FROM v_rejections WHERE run_id = 'run-1'",
    "lag": "SELECT * FROM v_lag WHERE run_id = 'run-1'",
}


@pytest.mark.parametrize("call", CALLS)
def test_what_a_dashboard_asks_is_looked_up(filling: Filling, call: str) -> None:
    """No table is read through, but one that is read in the order of the page and left early."""
    plan = plan_of(filling.path("run-1"), CALLS[call], ())
    # An event's own references are walked, one by one.
    walks = ("SCAN CONSTANT ROW", "SCAN filled", "SCAN r VIRTUAL TABLE INDEX 1:")
    scans = [step for step in plan if step.startswith("SCAN") and step not in walks]
    in_order = {
        "newest runs": ["SCAN r USING INDEX runs_created"],
        "refusals": ["SCAN j"],
    }
    assert scans == in_order.get(call, [])
    if call in ("transcript", "session"):
        assert any("segment=? AND seq>?" in step for step in plan), plan


def test_any_sqlite_client_can_read_the_views(filling: Filling) -> None:
    """Python's own module has the system's SQLite, which may be years older than ours."""
    pi_run(filling, "run-1")
    filling.apply("run-2", "run.create")
    filling.apply("run-2", "session.bind", {"session": "s", "binding": binding("run-2", "s")})
    with sqlite3.connect(f"file:{filling.path('run-1')}?mode=ro", uri=True) as client:
        counts = {
            view: client.execute(f"SELECT count(*) FROM (SELECT * FROM {view})").fetchone()[0]
            for view in COLUMNS
        }
    client.close()
    assert counts == {
        "v_runs": 2,
        "v_trace": 11,
        "v_attempts": 1,
        "v_work_items": 0,
        "v_invocations": 0,
        "v_suspensions": 0,
        "v_slots": 1,
        "v_transcript": 2,
        "v_session_events": 3,
        "v_rejections": 1,
        "v_lag": 2,
    }
