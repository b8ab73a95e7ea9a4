"""a to q: what was seen to go wrong in the first seed, each with the better outcome."""

from __future__ import annotations

from threading import Event, Thread
from typing import Any

import pytest

from tests.support.host import Host
from tests.support.workload import (
    base_state,
    binding,
    capture,
    capture_body,
    entry,
    event,
    event_draft,
    growth_states,
    iso,
    workflow,
)
from tests.support.world import DUPLICATE, START_MS, FileWorld, StoredWorld, World
from writer.store.reader import StateReader

RUN = "run-1"
UPDATES_MAX = 1_024


def bound(world: World) -> None:
    world.create(RUN)
    world.must(RUN, "session.bind", {"session": "session-1", "binding": binding(RUN)})


def at_work(attempt: str = "a1", **more: Any) -> dict[str, Any]:
    return base_state(RUN) | {"currentNode": "work", "currentAttemptId": attempt} | more


def step(attempt: str, **more: Any) -> dict[str, Any]:
    return {"attemptId": attempt, "nodeId": "work", "outcome": "ok"} | more


def test_flaw_a_a_retry_of_what_is_stored_is_no_error(stored: StoredWorld) -> None:
    bound(stored)
    first = stored.send(RUN, "session.entry", {"entry": entry("e-", 0)})
    batch = stored.send(RUN, "session.events", {"events": [event(1, "a1"), event(2, "a1")]})
    nameless = stored.send(RUN, "session.entry", {"entry": {"type": "note"}})
    stored.settle()
    for sent in (first, batch, nameless):
        stored.resend(sent)
    assert stored.settle() == [DUPLICATE] * 3

    # Also under a sequence of its own, as by a host that forgot what it had sent.
    again = {"entry": entry("e-", 0)}
    assert stored.apply(RUN, "session.entry", again, producer="new") == DUPLICATE
    overlapping = {"events": [event(2, "a1"), event(3, "a1")]}
    assert stored.apply(RUN, "session.events", overlapping, producer="new").kind == "applied"
    counts = stored.reader.session_counts(RUN)
    assert (counts["entryCount"], counts["eventCount"]) == (2, 3)


def test_flaw_a_the_same_identity_with_another_content_is_a_conflict(world: World) -> None:
    bound(world)
    world.must(RUN, "session.entry", {"entry": entry("e-", 0)})
    world.must(RUN, "session.events", {"events": [event(1, "a1")]})
    other = entry("e-", 0) | {"timestamp": iso(9)}
    assert world.apply(RUN, "session.entry", {"entry": other}).reason == "entry_conflict"
    changed = event(1, "a1") | {"at": iso(9)}
    refused = world.apply(RUN, "session.events", {"events": [changed]})
    assert refused.reason == "event_conflict"


def test_flaw_b_a_binding_is_repeated_or_refused(stored: StoredWorld) -> None:
    bound(stored)
    equal = {"session": "session-1", "binding": binding(RUN)}
    assert stored.apply(RUN, "session.bind", equal, producer="new") == DUPLICATE
    other = {"session": "session-2", "binding": binding(RUN, "session-2")}
    assert stored.apply(RUN, "session.bind", other).reason == "segment_conflict"
    assert stored.only("segments", RUN)["session"] == "session-1"


@pytest.mark.parametrize("entries, events", [(99, 99), (2, 1), (1, 2), (0, 0)])
def test_flaw_c_a_capture_is_counted_not_believed(
    stored: StoredWorld, entries: int, events: int
) -> None:
    bound(stored)
    stored.must(RUN, "session.entry", {"entry": entry("e-", 0)})
    stored.must(RUN, "session.events", {"events": [event(1, "a1")]})
    lie = capture_body(capture(entries, events))
    assert stored.apply(RUN, "session.capture", lie).reason == "capture_counts"
    assert stored.only("segments", RUN)["status"] == "recording"
    stored.must(RUN, "session.entry", {"entry": entry("e-", 1)})
    assert [row["seq"] for row in stored.reader.transcript(RUN)] == [1, 2]
    stored.must(RUN, "session.capture", capture_body(capture(2, 1)))
    run = stored.reader.read_run(RUN)
    assert run is not None
    assert run["sessionIntegrity"]["status"] == "complete"


@pytest.mark.parametrize(
    "end",
    [
        {"status": "complete"},
        {"status": "failed", "failure": {"code": "x", "message": "y"}},
    ],
    ids=["complete", "failed"],
)
def test_flaw_d_after_its_end_a_capture_takes_neither_entries_nor_events(
    world: World, end: dict[str, Any]
) -> None:
    bound(world)
    world.must(RUN, "session.capture", end)
    late_entry = world.apply(RUN, "session.entry", {"entry": entry("e-", 0)})
    late_event = world.apply(RUN, "session.events", {"events": [event(1, "a1")]})
    assert (late_entry.reason, late_event.reason) == ("capture_terminal", "capture_terminal")


def test_flaw_e_the_first_failure_stays(stored: StoredWorld) -> None:
    bound(stored)
    first = {"code": "entry_write_failed", "message": "the disk was full"}
    failed = {"status": "failed", "failure": first}
    stored.must(RUN, "session.capture", failed)
    second = {"status": "failed", "failure": {"code": "other", "message": "later"}}
    assert stored.apply(RUN, "session.capture", second).reason == "capture_terminal"
    assert stored.apply(RUN, "session.capture", failed, producer="new") == DUPLICATE
    run = stored.reader.read_run(RUN)
    assert run is not None
    assert run["sessionCapture"]["failure"] == first


@pytest.mark.parametrize("status", ["completed", "failed", "timed_out", "cancelled"])
def test_flaw_f_only_a_reset_leads_out_of_a_terminal_status(
    stored: StoredWorld, status: str
) -> None:
    stored.create(RUN)
    ended = base_state(RUN) | {"status": status, "finishedAt": iso(5), "error": "e"}
    stored.must(RUN, "run.snapshot", {"state": ended})
    running = {"state": base_state(RUN)}
    assert stored.apply(RUN, "run.snapshot", running).reason == "run_terminal"
    assert stored.apply(RUN, "run.resume").reason == "run_terminal"
    update = {"type": "note", "key": "k", "data": {}}
    assert stored.apply(RUN, "run.update", update).reason == "run_terminal"
    assert stored.state(RUN)["status"] == status

    stored.must(RUN, "run.reset", {"reason": "once more"})
    state = stored.state(RUN)
    assert state["status"] == "running"
    assert "finishedAt" not in state
    assert "error" not in state
    assert stored.apply(RUN, "run.reset").reason == "run_not_terminal"
    stored.must(RUN, "run.snapshot", running)


def test_flaw_f_waiting_is_not_terminal(world: World) -> None:
    world.create(RUN)
    world.must(RUN, "run.snapshot", {"state": base_state(RUN) | {"status": "waiting"}})
    world.must(RUN, "run.snapshot", {"state": base_state(RUN)})


def test_flaw_f_a_reservation_that_has_ended_is_not_adopted(stored: StoredWorld) -> None:
    reserved = {"dialect": "pi_workflows", "definition": workflow(), "status": "queued"}
    stored.must(RUN, "run.create", reserved)
    stored.must(RUN, "run.snapshot", {"state": base_state(RUN) | {"status": "cancelled"}})
    adopting = {"dialect": "pi_workflows", "definition": workflow(), "state": base_state(RUN)}
    assert stored.apply(RUN, "run.create", adopting).reason == "run_conflict"
    assert stored.state(RUN)["status"] == "cancelled"


def test_flaw_g_a_late_update_does_not_reopen_a_finished_attempt(stored: StoredWorld) -> None:
    stored.create(RUN, state=at_work())
    stored.must(RUN, "run.snapshot", {"state": base_state(RUN) | {"steps": [step("a1")]}})
    late = {"type": "note", "key": "k", "data": {}, "node_id": "work", "attempt_id": "a1"}
    assert stored.apply(RUN, "run.update", late).reason == "attempt_finished"
    assert stored.only("attempts", RUN)["status"] == "completed"


def test_flaw_g_nor_does_one_disturb_the_attempt_that_is_active(stored: StoredWorld) -> None:
    stored.create(RUN, state=at_work())
    stored.must(RUN, "run.snapshot", {"state": at_work("a2", steps=[step("a1")])})
    late = {"type": "note", "key": "k", "data": {}, "node_id": "work", "attempt_id": "a1"}
    assert stored.apply(RUN, "run.update", late).reason == "attempt_finished"
    attempts = {row["attempt_id"]: row["status"] for row in stored.all("attempts", RUN)}
    assert attempts == {"a1": "completed", "a2": "running"}


def test_flaw_g_a_snapshot_that_names_a_finished_attempt_leaves_it_finished(
    stored: StoredWorld,
) -> None:
    stored.create(RUN, state=at_work())
    stored.must(RUN, "run.snapshot", {"state": at_work(steps=[step("a1")])})
    assert stored.only("attempts", RUN)["status"] == "completed"


def test_flaw_h_attempt_ids_are_scoped_by_their_run(stored: StoredWorld) -> None:
    stored.create(RUN, state=at_work())
    stored.create("run-2", state=base_state("run-2"))
    steps = [step("a1", outcome="failed")]
    stored.must("run-2", "run.snapshot", {"state": base_state("run-2") | {"steps": steps}})
    assert stored.only("attempts", RUN)["status"] == "running"
    assert stored.only("attempts", "run-2")["status"] == "failed"


def test_flaw_i_an_interrupt_ends_attempts_and_recordings_with_the_run(stored: StoredWorld) -> None:
    stored.create(RUN, state=at_work())
    stored.must(RUN, "session.bind", {"session": "s"})
    before = len(stored.all("events", RUN))
    stored.must(RUN, "run.interrupt", {"reason": "the host is gone"})
    assert stored.only("attempts", RUN)["status"] == "interrupted"
    assert stored.only("segments", RUN)["status"] == "failed"
    assert len(stored.all("events", RUN)) == before + 1, "one revision, one transaction"
    state = stored.state(RUN)
    assert (state["status"], state["error"]) == ("failed", "the host is gone")
    assert "currentAttemptId" not in state


def test_flaw_j_what_the_writer_stamps_is_not_the_hosts_to_say(stored: StoredWorld) -> None:
    stored.create(RUN)
    phantom = [{"type": "note", "key": "phantom", "data": {}}]
    claimed = {"traceSeq": 99, "updatedAt": iso(10**9), "updates": phantom}
    wrong = {"state": base_state(RUN) | claimed, "expected_revision": 7}
    assert stored.apply(RUN, "run.snapshot", wrong).reason == "revision_conflict"
    stored.must(RUN, "run.snapshot", {"state": base_state(RUN) | claimed})
    state = stored.state(RUN)
    assert (state["traceSeq"], state["updates"]) == (2, [])
    assert state["updatedAt"] != claimed["updatedAt"]
    # All that differed was the writer's, so there is nothing new to keep.
    assert {row["revision"] for row in stored.all("state_parts", RUN)} == {1}


def test_flaw_k_nothing_is_stuck_after_a_foreign_change(stored: StoredWorld) -> None:
    host = Host("host-a")
    stored.create(RUN)
    stored.must(RUN, "lease.claim", host.claim(), producer="a")
    stored.must(RUN, "lease.renew", {"lease_ms": 9_000}, auth=host.auth(), producer="a")
    # A renewal is no revision: what was read before it is still what is expected.
    body = {"state": base_state(RUN), "expected_revision": 2}
    stored.must(RUN, "run.snapshot", body, auth=host.auth(), producer="b")
    for producer in ("a", "b", "a"):
        stored.must(
            RUN, "run.snapshot", {"state": base_state(RUN)}, auth=host.auth(), producer=producer
        )
    assert stored.types(RUN) == ["run_created", "lease.claimed", *["run_snapshot"] * 4]


@pytest.mark.parametrize("bound_at", ["1999-12-31T00:00:00.000Z", "no time at all"])
def test_flaw_l_row_times_are_arrivals(stored: StoredWorld, bound_at: str) -> None:
    stored.create(RUN)
    document = binding(RUN) | {"boundAt": bound_at}
    stored.must(RUN, "session.bind", {"session": "session-1", "binding": document}, at=5_000)
    assert stored.only("runs", RUN)["updated_at"] == START_MS + 5_000
    assert stored.only("segments", RUN)["created_at"] == START_MS + 5_000
    run = stored.reader.read_run(RUN)
    assert run is not None
    assert run["sessionBinding"] == document


def test_flaw_m_an_events_time_is_kept_as_it_was_written(stored: StoredWorld) -> None:
    bound(stored)
    precise = event(1, "a1") | {"at": "2026-08-23T02:00:00.123456+02:00"}
    stored.must(RUN, "session.events", {"events": [precise]})
    run = stored.reader.read_run(RUN)
    assert run is not None
    assert run["sessionEvents"] == [precise]


def test_flaw_m_an_entry_without_an_id_takes_nobodys(stored: StoredWorld) -> None:
    bound(stored)
    stored.must(RUN, "session.entry", {"entry": {"type": "note", "text": "without"}})
    stored.must(RUN, "session.entry", {"entry": {"type": "note", "id": "entry-1"}})
    ids = [(row["seq"], row["entry_id"]) for row in stored.reader.transcript(RUN)]
    assert ids == [(1, None), (2, "entry-1")]


def test_flaw_n_a_snapshot_writes_what_changed(stored: StoredWorld) -> None:
    stored.create(RUN)
    for state, draft in growth_states(RUN, 40):
        stored.send(RUN, "run.snapshot", {"state": state, "event": event_draft(draft)})
    stored.settle()
    counts = stored.rows(
        "SELECT count(*) AS parts, sum(length(value)) AS size FROM state_parts "
        "WHERE revision > 20 GROUP BY revision"
    )
    assert len(counts) == 21
    assert max(row["parts"] for row in counts) < 40
    # A step of 1 KB, its output and its result: the state itself has 40 times that by then.
    assert max(row["size"] for row in counts) < 5_000
    attempts = stored.all("attempts", RUN)
    assert [row["revision"] for row in attempts if row["attempt_id"] == f"{RUN}-a0"] == [2]


def test_flaw_o_nothing_new_is_read_back(tmp_path: Any) -> None:
    read = {10: 0, 100: 0}
    for entries in read:
        folder = tmp_path / str(entries)
        folder.mkdir()
        world = FileWorld(folder)
        bound(world)
        statements: list[str] = []
        world.file._connection.exec_trace = lambda _, sql, __, seen=statements: (
            seen.append(sql) or True
        )
        for number in range(entries):
            world.send(RUN, "session.entry", {"entry": entry("e-", number)})
        world.settle()
        world.close()
        read[entries] = sum(sql.lstrip().startswith("SELECT") for sql in statements)
    assert read[100] == read[10], "reads do not grow with what a batch appends"


def test_flaw_p_a_read_is_of_one_moment(tmp_path: Any) -> None:
    world = FileWorld(tmp_path)
    world.create(RUN)

    enough = Event()

    def write() -> None:
        for number in range(UPDATES_MAX):
            if enough.is_set():
                break
            world.must(RUN, "run.update", {"type": "note", "key": f"k{number}", "data": {}})

    writing = Thread(target=write)
    seen: set[int] = set()
    with StateReader(tmp_path) as reader:

        def look() -> None:
            run = reader.read_run(RUN)
            assert run is not None
            revision = run["state"]["traceSeq"]
            assert len(run["traceEvents"]) == revision
            assert len(run["state"]["updates"]) == revision - 1
            seen.add(revision)

        look()
        writing.start()
        try:
            while writing.is_alive() and len(seen) < 50:
                look()
        finally:
            enough.set()
            writing.join()
        look()
    world.close()
    assert len(seen) > 1


def test_flaw_q_the_data_of_an_update_is_stored_once(stored: StoredWorld) -> None:
    stored.create(RUN)
    mark = "only-here-" * 10
    stored.must(RUN, "run.update", {"type": "note", "key": "k", "data": {"text": mark}})
    stored.must(RUN, "run.snapshot", {"state": stored.state(RUN)})
    tables = [
        row["name"] for row in stored.rows("SELECT name FROM sqlite_schema WHERE type='table'")
    ]
    found = [
        table
        for table in tables
        for row in stored.rows(f"SELECT * FROM {table}")
        for value in row.values()
        if isinstance(value, str) and mark in value
    ]
    assert found == ["updates"]
    assert stored.state(RUN)["updates"][0]["data"] == {"text": mark}
