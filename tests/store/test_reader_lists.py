"""What is read over all partitions: lists of runs and rejections, the change feed, the status."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from producers.contract.keys import partition_of
from tests.store.filling import Filling, auth, pi_run, plan_of
from writer.errors import Usage
from writer.store.partition import partition_path
from writer.store.queries import named
from writer.store.reader import StateReader, rejections, runs
from writer.store.reader.query import QUERIES, ROWS_MAX


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Filling]:
    """Writers of a folder with three partitions."""
    made = Filling(tmp_path, partitions=3)
    yield made
    made.close()


@pytest.fixture
def reader3(three: Filling) -> Iterator[StateReader]:
    """A reader of the three."""
    with StateReader(three.data) as opened:
        yield opened


# --- runs ---


def test_runs_of_all_partitions_are_one_list_newest_first(
    three: Filling, reader3: StateReader
) -> None:
    names = [f"run-{number}" for number in range(20)]
    for name in names:
        three.apply(name, "run.create")

    page = reader3.list_runs()

    assert {partition_of(name, 3) for name in names} == {0, 1, 2}
    assert [run["run_id"] for run in page.runs] == names[::-1]
    assert page.next is None


@pytest.mark.parametrize("limit", [1, 3, 7, 20])
def test_pages_fit_together_while_runs_are_created(
    three: Filling, reader3: StateReader, limit: int
) -> None:
    names = [f"run-{number}" for number in range(20)]
    for name in names:
        three.apply(name, "run.create")

    seen: list[str] = []
    after = None
    while True:
        page = reader3.list_runs(after=after, limit=limit)
        seen += [run["run_id"] for run in page.runs]
        three.apply(f"newer-{len(seen)}", "run.create")
        if page.next is None:
            break
        after = page.next

    assert seen == names[::-1]


def test_runs_that_began_at_once_are_told_apart_by_name(
    filling: Filling, reader: StateReader
) -> None:
    batch = [filling.message(name, "run.create", {}) for name in ("b", "c", "a")]
    filling.settle([message._replace(id="5-0") for message in batch])

    first = reader.list_runs(limit=1)
    second = reader.list_runs(limit=1, after=first.next)
    third = reader.list_runs(limit=1, after=second.next)

    assert [page.runs[0]["run_id"] for page in (first, second, third)] == ["c", "b", "a"]
    assert third.next is None


def test_lists_are_filtered(three: Filling, reader3: StateReader) -> None:
    bodies: dict[str, dict[str, Any]] = {
        "a": {"workflow": "build"},
        "b": {"workflow": "build", "parent": {"run": "a"}, "tags": {"k": "v"}},
        "c": {"workflow": "test", "state": {"status": "failed"}},
        "d": {"dialect": "pi_workflows", "parent": {"run": "a"}},
    }
    for name, body in bodies.items():
        three.apply(name, "run.create", body)

    def listed(**filters: Any) -> list[str]:
        return [run["run_id"] for run in reader3.list_runs(**filters).runs]

    assert listed(workflow="build") == ["b", "a"]
    assert listed(status="failed") == ["c"]
    assert listed(dialect="pi_workflows") == ["d"]
    assert listed(parent="a") == ["d", "b"]
    assert listed(parent="a", dialect="generic", status="running", workflow="build") == ["b"]
    assert listed(status="no such status") == []
    assert reader3.list_runs(parent="a", limit=1).next is not None


def test_a_list_row_is_light(three: Filling, reader3: StateReader) -> None:
    pi_run(three, "run-1")
    (row,) = reader3.list_runs().runs
    assert row["tags"] == {"team": "a"}
    assert (row["lease_owner_id"], row["attempts"], row["entries"]) == ("host-1", 1, 2)
    assert not {"state", "input", "definition", "run_key"} & set(row)


@pytest.mark.parametrize("limit", [0, -1, ROWS_MAX + 1])
def test_no_list_is_without_bound(reader: StateReader, limit: int) -> None:
    for read in (
        lambda: reader.list_runs(limit=limit),
        lambda: reader.rejections(limit=limit),
        lambda: reader.trace("run-1", limit=limit),
        lambda: reader.transcript("run-1", limit=limit),
        lambda: reader.session_events("run-1", limit=limit),
        lambda: reader.attempts("run-1", limit=limit),
        lambda: reader.changes(limit=limit),
    ):
        with pytest.raises(Usage, match="limit"):
            read()


@pytest.mark.parametrize("token", ["", "x", "é", "bnVsbA", "W10", "WyJhIiwgMV0", "\ud800"])
def test_what_is_no_token_is_refused(reader: StateReader, token: str) -> None:
    for read in (reader.list_runs, reader.rejections):
        with pytest.raises(Usage, match="no token"):
            read(after=token)
    with pytest.raises(Usage, match="no token"):
        reader.changes(token)


# --- rejections ---


def test_rejections_of_all_partitions_are_one_list_newest_first(
    three: Filling, reader3: StateReader
) -> None:
    sent = [three.send(f"run-{number}", "run.reset") for number in range(10)]

    seen: list[dict[str, Any]] = []
    after = None
    while True:
        page = reader3.rejections(after=after, limit=3)
        seen += page.rejections
        if page.next is None:
            break
        after = page.next

    assert [row["message_id"] for row in seen] == [each.id for each in sent[::-1]]
    assert " ".join(seen[0]) == (
        "id run_id message_id kind producer producer_seq reason detail fields_bytes recorded_at"
    )
    assert len({row["id"] for row in seen}) == 10


def test_rejections_are_filtered(three: Filling, reader3: StateReader) -> None:
    three.apply("run-1", "run.create")
    first = three.send("run-1", "run.reset")
    second = three.send("run-1", "run.create", {"title": "other"})
    third = three.send("run-2", "run.reset")

    def listed(**filters: Any) -> list[str]:
        return [row["message_id"] for row in reader3.rejections(**filters).rejections]

    assert listed(run="run-1") == [second.id, first.id]
    assert listed(reason="run_unknown") == [third.id]
    assert listed(run="run-1", reason="run_conflict") == [second.id]
    assert listed(since=int(second.id.split("-")[0])) == [third.id, second.id]
    assert listed(run="run-3") == []


def test_one_rejection_has_its_bytes_and_no_token(three: Filling, reader3: StateReader) -> None:
    three.send("run-1", "run.reset", auth=auth(), raw={b"trace": b"\xff\0"})
    (light,) = reader3.rejections().rejections

    whole = reader3.rejection(light["id"])

    assert whole is not None
    assert {name: whole[name] for name in light} == light
    assert (whole["reason"], whole["detail"], whole["incarnation"]) == ("field_invalid", "trace", 1)
    assert whole["fields"]["kind"] == "run.reset"
    assert whole["fields"]["trace"] == {"hex": "ff00"}
    assert "open sesame" not in repr(whole)
    assert (whole["head"], len(whole["fields_sha256"])) == (None, 64)


@pytest.mark.parametrize(
    "name", ["", "0", "0:", ":1", "0:x", "0:999", "9:1", "-1:1", "0:" + "9" * 30]
)
def test_there_is_no_such_rejection(filling: Filling, reader: StateReader, name: str) -> None:
    filling.send("run-1", "run.reset")
    assert reader.rejection("0:1") is not None
    assert reader.rejection(name) is None


# --- the change feed ---


def test_changes_go_on_from_their_token(three: Filling, reader3: StateReader) -> None:
    for number in range(6):
        three.apply(f"run-{number}", "run.create")
    three.apply("run-0", "session.bind", {"session": "s", "capture_key": "k"})
    three.apply("run-0", "session.entry", {"capture_key": "k", "entry": {}})

    first = reader3.changes()
    three.apply("run-3", "run.annotate", {"title": "t"})
    second = reader3.changes(first.token)
    third = reader3.changes(second.token)

    assert (first.reset, second.reset, third.reset) == (False, False, False)
    assert {event["run_id"] for event in first.events} == {f"run-{number}" for number in range(6)}
    by_place = {(event["partition"], event["event_seq"]): event for event in first.events}
    assert len(by_place) == 8
    (entry,) = [event for event in first.events if event["segment"]]
    assert (entry["run_id"], entry["capture_key"], entry["revision"]) == ("run-0", "k", 2)
    assert (entry["type"], entry["producer"], entry["producer_seq"]) == ("session.entry", "p", 3)
    assert [(event["run_id"], event["type"]) for event in second.events] == [
        ("run-3", "run.annotate")
    ]
    assert third.events == []


@pytest.mark.parametrize("limit", [1, 4, 1000])
def test_a_feed_is_read_in_pages(three: Filling, reader3: StateReader, limit: int) -> None:
    for number in range(30):
        three.apply(f"run-{number}", "run.create")

    token, seen = None, []
    while True:
        page = reader3.changes(token, limit=limit)
        token = page.token
        if not page.events:
            break
        assert len(page.events) <= max(limit, three.partitions)
        seen += page.events

    assert sorted(event["run_id"] for event in seen) == sorted(f"run-{n}" for n in range(30))
    for partition in range(3):
        order = [each["event_seq"] for each in seen if each["partition"] == partition]
        assert order == sorted(order)


def test_a_deleted_run_shows_once_more(filling: Filling, reader: StateReader) -> None:
    filling.apply("run-1", "run.create")
    token = reader.changes().token
    filling.apply("run-1", "run.annotate", {"title": "t"})
    filling.apply("run-1", "run.delete")

    page = reader.changes(token)

    assert [(event["type"], event["revision"]) for event in page.events] == [("run.delete", 3)]
    assert reader.changes(page.token).events == []


def test_a_feed_starts_over_on_another_history(filling: Filling, reader: StateReader) -> None:
    filling.apply("run-1", "run.create")
    token = reader.changes().token
    filling.edit("run-1", "UPDATE file SET lineage = 'second'")

    page = reader.changes(token)

    assert page.reset
    assert [event["type"] for event in page.events] == ["run.create"]
    assert not reader.changes(page.token).reset


# --- status ---


def test_status_counts_by_partition_and_in_all(three: Filling, reader3: StateReader) -> None:
    pi_run(three, "run-1")
    three.apply("run-2", "run.create", {}, seq=4)
    three.send("run-2", "run.create", {}, seq=4)
    three.send("run-3", "run.reset")
    three.send("run-2", "run.annotate", {"title": "t"}, raw={b"v": b"7"})

    status = reader3.status()

    assert [each["partition"] for each in status["partitions"]] == [0, 1, 2]
    assert [each["file"] for each in status["partitions"]] == [
        "p00.sqlite",
        "p01.sqlite",
        "p02.sqlite",
    ]
    for each in status["partitions"]:
        assert (each["epoch"], each["lineage"]) == (1, "first")
        assert each["bytes"] > 0
    totals = status["totals"]
    assert totals["runs"] == {"completed": 1, "running": 1}
    assert (totals["streams"], totals["quarantined"]) == (3, 1)
    assert (totals["applied"], totals["duplicates"], totals["rejected"]) == (16, 1, 2)
    assert (totals["open_gaps"], totals["missing"]) == (2, 6)
    assert totals["last_event_at"] == 1017
    assert totals["wal_bytes"] > 0
    assert reader3.settled(["run-1", "run-2", "none"]) == {
        "run-1": (1, "1016-0"),
        "run-2": (1, "1018-0"),
    }


# --- how the queries are answered ---


def test_lists_are_read_in_the_order_of_an_index(filling: Filling) -> None:
    path = partition_path(filling.data, 0)
    place = (5, "run-1")
    for filters, expected in {
        runs.Filters(): "SEARCH r USING INDEX runs_created",
        runs.Filters(dialect="d"): "SEARCH r USING INDEX runs_dialect (dialect=?",
        runs.Filters(workflow="w"): "SEARCH r USING INDEX runs_workflow (workflow=?",
        runs.Filters(workflow="w", dialect="d"): "SEARCH r USING INDEX runs_workflow (workflow=?",
        runs.Filters(
            workflow="w", status="failed"
        ): "SEARCH r USING INDEX runs_workflow_status (workflow=? AND status=?",
        runs.Filters(status="failed", dialect="d"): "SEARCH r USING INDEX runs_status (status=?",
        runs.Filters(status="failed"): "SEARCH r USING INDEX runs_status (status=?",
        runs.Filters(parent="p"): "SEARCH r USING INDEX runs_parent",
    }.items():
        query, bindings = runs.list_query(filters, place)
        plan = plan_of(path, query, {**bindings, "limit": 50})
        assert plan[0].startswith(expected), plan
        assert not [step for step in plan if step.startswith("SCAN")]
        assert not [step for step in plan if "ORDER BY" in step], plan
    for shown, expected in {
        rejections.Filters(): "SEARCH j USING INTEGER PRIMARY KEY (rowid<?)",
        rejections.Filters(run_id="r"): "SEARCH c USING COVERING INDEX",
        rejections.Filters(reason="r"): "SEARCH j USING INDEX rejections_reason (reason=?",
        rejections.Filters(since=5): "SEARCH j USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
    }.items():
        query, bindings = rejections.list_query(shown, 7)
        plan = plan_of(path, query, {**bindings, "limit": 50})
        assert plan[0].startswith(expected), plan
        assert not [step for step in plan if step.startswith("SCAN")]


WALKS = ("SCAN CONSTANT ROW", "SCAN filled", "SCAN r VIRTUAL TABLE INDEX 1:")


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_no_query_reads_a_table_through(filling: Filling, name: str) -> None:
    """But those that count all of a file, and those that end after a page in the table's order."""
    numbers = ("run_key", "revision", "after", "last", "segment", "seq", "rejection_seq", "limit")
    names = ("run_id", "message_id", "producer", "capture_key", "after_message", "digest")
    bindings = dict.fromkeys(numbers, 1) | dict.fromkeys(names, "x")
    plan = plan_of(partition_path(filling.data, 0), QUERIES[name], bindings)
    scans = [step for step in plan if step.startswith("SCAN") and step != "SCAN newest"]
    if name in ("trace", "export_events"):
        # An event's own references are walked, one by one.
        scans = [step for step in scans if step not in WALKS]
    allowed = {
        "list_runs": ["SCAN r USING INDEX runs_created"],
        "list_rejections": ["SCAN j"],
        "last_event_seq": ["SCAN CONSTANT ROW", "SCAN sqlite_sequence"],
        "status_runs": ["SCAN runs USING COVERING INDEX runs_status"],
        "status_streams": ["SCAN cursors"],
        "status_gaps": ["SCAN gaps"],
        "status_quarantined": ["SCAN quarantines"],
        "status_last_event": ["SCAN events"],
    }
    assert scans == allowed.get(name, []), plan


FILES = ("troubles", "audit", "load", "engine", "retention")
OTHERS = {f"{file}:{name}": query for file in FILES for name, query in named(f"{file}.sql").items()}
SMALL = ("acts", "quarantines", "q", "gaps", "g", "newest", "j", "p", "json_each", "v_slots")
"""What is read whole: operator acts, troubles, what was asked for, what a run has."""


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_nor_does_any_other(filling: Filling, name: str) -> None:
    query = OTHERS[name]
    numbered = [int(number) for number in re.findall(r"\?(\d)", query)]
    bindings: Any = (1,) * max(numbered, default=query.count("?")) or dict.fromkeys(
        re.findall(r":(\w+)", query), 1
    )
    plan = plan_of(partition_path(filling.data, 0), query, bindings)
    scans = [step for step in plan if step.startswith("SCAN") and step.split()[1] not in SMALL]
    allowed = {
        "load:cursors": ["SCAN cursors"],
        "load:skips": ["SCAN a"],
        "retention:silent": ["SCAN r USING INDEX runs_open"],
    }
    assert scans == allowed.get(name, []), plan
