"""X and F: what was seen to go wrong in the second seed, each with the better outcome.

Where an X shows an F, the test has both marks.
"""

# ruff: noqa: N802 - a case is named after its mark
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from producers.contract.envelope import seal
from tests.support.engine import (
    WORKFLOW,
    Document,
    Engine,
    at,
    call,
    created,
    items,
    new_run,
    node,
    pending,
    workflow_snapshot,
)
from tests.support.world import DUPLICATE, START_MS, FileWorld, StoredWorld
from writer.apply import Message
from writer.clock import iso
from writer.store.reader import StateReader

RUN = "run-1"


def entry(name: str, **more: Any) -> Document:
    return {"nodeId": name, "input": items(name), "batchId": "b1", **more}


def test_X1_F1_the_queue_keeps_its_order_beyond_ten_entries(engine: Engine) -> None:
    engine.create()
    queue = [entry(f"n{number}") for number in range(13)]
    assert engine.change(queue=queue)["queue"] == queue
    scheduling = engine.world.reader.scheduling_state(RUN)
    assert scheduling is not None
    assert [each["nodeId"] for each in scheduling["queue"]] == [f"n{n}" for n in range(13)]
    rows = engine.world.rows("SELECT node_id FROM v_work_items ORDER BY kind, position")
    assert [row["node_id"] for row in rows] == [f"n{n}" for n in range(13)]


@pytest.mark.parametrize("expected, received", [("ab", "a"), ("abc", "ab"), ("ab", "")])
def test_X2_F2_a_partial_collect_waits_for_what_it_waited_for(
    engine: Engine, expected: str, received: str
) -> None:
    engine.create()
    collect = {
        "expectedInputs": list(expected),
        "received": {port: items(port) for port in received},
    }
    queue = [{"nodeId": "join", "input": [], "batchId": "b1", "collect": collect}]
    assert engine.change(queue=queue)["queue"] == queue
    row = engine.world.only("work_items", RUN)
    assert (row["kind"], row["items"]) == ("collect", len(received))


def test_X3_F3_no_field_is_lost(engine: Engine) -> None:
    engine.create()
    queue = [entry("n", **{"from": {"nodeId": "m", "output": "main"}, "toInput": "in"})]
    claimed = pending(RUN, "a", "act-1", receiptId="receipt-7")
    calls = [
        call(
            RUN,
            "inv-1",
            connectionKind="tool",
            statusLabel="reading",
            subjectName="invoice.pdf",
            managedInput=None,
            unheardOf={"deep": [None, 1.5, True]},
        )
    ]
    snapshot = node(RUN, "a", "act-1", parent={"runId": "p", "nodeId": "n"}, usedPinnedOutput=False)
    state = engine.load() | {
        "queue": queue,
        "pending": claimed,
        "connectionInvocations": calls,
        "nodeSnapshotsByNodeId": {"a": snapshot},
        "extra": {"nothing": None, "list": []},
        "finishedAt": None,
    }
    engine.save(state)
    assert engine.load() == state | {"revision": 2}
    detail = engine.world.reader.run_detail(RUN)
    assert detail is not None
    shown = detail["executionInstances"][1]
    assert (shown["connectionKind"], shown["subjectName"]) == ("tool", "invoice.pdf")
    assert shown["inputJson"] is None
    assert "outputJson" not in shown


@pytest.mark.parametrize("first, second", [("running", "completed"), ("completed", "running")])
def test_X4_F12_repeats_of_a_new_id_are_one_record(engine: Engine, first: str, second: str) -> None:
    engine.create()
    calls = [call(RUN, "i", status=first), call(RUN, "j"), call(RUN, "i", status=second)]
    loaded = engine.change(connectionInvocations=calls)
    shown = [(each["invocationId"], each["status"]) for each in loaded["connectionInvocations"]]
    assert shown == [("i", "completed"), ("j", "completed")]
    rows = engine.world.rows("SELECT invocation_id, status FROM v_invocations ORDER BY position")
    assert [tuple(row.values()) for row in rows] == shown


def slots(world: StoredWorld, run: str = RUN) -> dict[str, Document]:
    detail = world.reader.run_detail(run)
    assert detail is not None
    return {slot["slotNodeId"]: slot for slot in detail["slotStates"]}


def test_X5_F11_repeats_are_counted_once(engine: Engine) -> None:
    engine.create()
    statuses = ("queued", "running", "completed")
    calls = [call(RUN, "i", status=status) for status in statuses]
    engine.change(connectionInvocations=calls)
    assert slots(engine.world)["llm"]["invocationCount"] == 1


def test_X6_F11_foreign_records_are_not_counted(engine: Engine) -> None:
    engine.create()
    engine.change(connectionInvocations=[call("run-2", "i"), call(RUN, "j")])
    assert slots(engine.world)["llm"]["invocationCount"] == 1


def test_F11_every_activation_is_counted_and_every_end_is_one(engine: Engine) -> None:
    engine.create()
    ends = ("completed", "skipped", "hitl-approved", "hitl-rejected", "failed")
    for number, status in enumerate(ends):
        snapshot = node(RUN, "a", f"act-{number}", status)
        engine.change(nodeSnapshotsByNodeId={"a": snapshot})
    slot = slots(engine.world)["a"]
    assert slot["runCount"] == len(ends)
    assert slot["latestTerminalInstanceId"] == "act-4"
    assert "latestRunningInstanceId" not in slot


def test_X7_F9_the_newest_attempt_wins_whatever_the_clocks_say(engine: Engine) -> None:
    engine.create()
    # Neither clocks nor ids rise.
    for activation, seconds in (("act-9", 5), ("act-5", 5), ("act-1", 1)):
        snapshot = node(RUN, "a", activation, updatedAt=at(seconds))
        loaded = engine.change(nodeSnapshotsByNodeId={"a": snapshot})
        assert loaded["nodeSnapshotsByNodeId"]["a"] == snapshot
        assert slots(engine.world)["a"]["latestInstanceId"] == activation
    detail = engine.world.reader.run_detail(RUN)
    assert detail is not None
    shown = [(each["instanceId"], each["runIndex"]) for each in detail["executionInstances"]]
    assert shown == [("act-9", 1), ("act-5", 2), ("act-1", 3)]


def test_F9_a_slower_clock_does_not_undo_an_end(engine: Engine) -> None:
    engine.create()
    started = node(RUN, "a", "act-1", "running", updatedAt=at(1))
    stale = engine.change(nodeSnapshotsByNodeId={"a": started})
    ended = node(RUN, "a", "act-1", "completed", updatedAt=at(2))
    engine.change(nodeSnapshotsByNodeId={"a": ended})
    stale["nodeSnapshotsByNodeId"] = {"a": started | {"updatedAt": at(9)}}
    engine.save(stale)
    assert engine.load()["nodeSnapshotsByNodeId"]["a"] == ended


def test_X8_F7_what_was_cleared_stays_cleared(engine: Engine) -> None:
    engine.create()
    snapshot = node(RUN, "a", "act-1", outputs={"main": items(1)})
    engine.change(
        nodeSnapshotsByNodeId={"a": snapshot},
        outputsByNode={"a": {"main": items(1)}},
        connectionInvocations=[call(RUN, "i", "a")],
    )
    cleared = engine.change(nodeSnapshotsByNodeId={}, outputsByNode={}, connectionInvocations=[])
    assert (cleared["nodeSnapshotsByNodeId"], cleared["outputsByNode"]) == ({}, {})
    assert slots(engine.world) == {}
    assert engine.world.state(RUN, 2)["nodeSnapshotsByNodeId"] == {"a": snapshot}


def test_X9_F8_outputs_outlive_that_their_node_is_queued_again(engine: Engine) -> None:
    engine.create()
    outputs = {"a": {"main": items(1)}}
    engine.change(
        outputsByNode=outputs,
        nodeSnapshotsByNodeId={"a": node(RUN, "a", "act-1", outputs=outputs["a"])},
    )
    loaded = engine.change(nodeSnapshotsByNodeId={"a": node(RUN, "a", "act-2", "queued")})
    assert loaded["outputsByNode"] == outputs


def test_X10_F10_the_batch_of_a_finished_instance_never_changes(engine: Engine) -> None:
    engine.create()
    engine.change(
        pending=pending(RUN, "a", "act-1", "batch-1"),
        nodeSnapshotsByNodeId={"a": node(RUN, "a", "act-1", "queued")},
    )
    ended = {"a": node(RUN, "a", "act-1")}
    engine.change(
        pending=pending(RUN, "b", "act-2", "batch-2"),
        nodeSnapshotsByNodeId=ended | {"b": node(RUN, "b", "act-2", "queued")},
    )
    without = engine.load()
    del without["pending"]
    engine.save(without)
    detail = engine.world.reader.run_detail(RUN)
    assert detail is not None
    batches = {each["instanceId"]: each["batchId"] for each in detail["executionInstances"]}
    assert batches == {"act-1": "batch-1", "act-2": "batch-2"}


def test_X11_F3_a_late_iteration_is_stored(engine: Engine) -> None:
    engine.create()
    engine.change(connectionInvocations=[call(RUN, "i", status="running")])
    late = {"iterationId": "iter", "itemIndex": 3, "parentInvocationId": "p"}
    loaded = engine.change(connectionInvocations=[call(RUN, "i", **late)])
    assert late.items() <= loaded["connectionInvocations"][0].items()
    row = engine.world.only("invocations", RUN)
    assert (row["iteration_id"], row["item_index"], row["parent_invocation"]) == ("iter", 3, "p")


@pytest.mark.parametrize("status", ["completed", "failed", "halted"])
def test_X12_F4_a_finished_run_stays_finished_and_the_writer_is_told(
    engine: Engine, status: str
) -> None:
    engine.create()
    stale = engine.load()
    counters = {"completedNodeActivations": 7}
    ended = engine.change(status=status, finishedAt=at(7), engineCounters=counters)
    late = stale | {"status": "pending", "engineCounters": {"completedNodeActivations": 1}}
    assert engine.save(late).reason == "run_terminal"
    assert engine.replace(late).reason == "run_terminal"
    assert engine.load() == ended

    engine.world.must(RUN, "run.reset")
    assert engine.load()["status"] == "running"
    assert "finishedAt" not in engine.load()
    assert engine.replace(late).kind == "applied"


def test_X13_F4_a_stale_writer_does_not_empty_the_queue(engine: Engine) -> None:
    engine.create()
    stale = engine.load()
    work = {"queue": [entry("a"), entry("b")], "pending": pending(RUN, "c", "act-1")}
    engine.change(**work)
    stale["connectionInvocations"] = [call(RUN, "i")]
    engine.save(stale)
    loaded = engine.load()
    assert {name: loaded[name] for name in work} == work
    assert len(loaded["connectionInvocations"]) == 1


def test_X14_F14_a_create_is_repeated_or_refused(engine: Engine) -> None:
    world = engine.world
    sent = world.send(RUN, "run.create", created(RUN, workflowSnapshot=workflow_snapshot()))
    world.settle()
    world.resend(sent)
    assert world.settle() == [DUPLICATE]
    engine.change(status="pending")
    same = created(RUN, workflowSnapshot=workflow_snapshot())
    assert world.apply(RUN, "run.create", same, producer="new") == DUPLICATE
    other = created(RUN, workflowSnapshot=workflow_snapshot(4))
    assert world.apply(RUN, "run.create", other, producer="new").reason == "run_conflict"
    assert engine.load()["status"] == "pending"


def test_X15_F14_a_delete_is_repeated(engine: Engine) -> None:
    world = engine.world
    engine.create()
    sent = world.send(RUN, "run.delete")
    world.settle()
    world.resend(sent)
    assert world.settle() == [DUPLICATE]
    assert world.apply(RUN, "run.delete", producer="new").reason == "run_deleted"
    assert engine.world.reader.load(RUN) is None


@pytest.mark.parametrize("name", ["a/b", "a%2Fb", "100%", "~0~1", "ä b", "0"])
def test_X16_F15_ids_are_what_they_are(engine: Engine, name: str) -> None:
    engine.create(workflowId=name)
    # Large enough to be kept in parts, each under its id.
    snapshot = node(RUN, name, f"act-{name}", inputsByPort={name: items("x" * 2_000)})
    loaded = engine.change(
        nodeSnapshotsByNodeId={name: snapshot},
        connectionInvocations=[call(RUN, f"inv-{name}", name)],
        outputsByNode={name: {name: items("x" * 2_000)}},
    )
    assert loaded["nodeSnapshotsByNodeId"] == {name: snapshot}
    engine.change(nodeSnapshotsByNodeId={name: snapshot | {"activationId": "next"}})
    detail = engine.world.reader.run_detail(RUN)
    assert detail is not None
    shown = [each["instanceId"] for each in detail["executionInstances"]]
    assert shown == [f"act-{name}", "next", f"inv-{name}"]
    assert [run["runId"] for run in engine.world.reader.run_summaries(workflow=name)] == [RUN]


def ended(world: StoredWorld, run: str, status: str = "completed", **more: Any) -> None:
    world.must(run, "run.create", created(run, **more))
    engine = Engine(world, run)
    assert engine.save(engine.load() | {"status": status}).kind == "applied"


def test_X17_F17_runs_with_a_long_retention_hide_none_that_is_due(stored: StoredWorld) -> None:
    long = {"policySnapshot": {"retentionSeconds": 10**8, "storagePolicy": "ALL"}}
    for number in range(8):
        ended(stored, f"long-{number}", **long)
    ended(stored, "due")
    later = START_MS + 100_000_000
    found = stored.reader.prune_candidates(later, default_seconds=3_600, limit=2)
    assert [run["run_id"] for run in found] == ["due"]


def test_X18_F17_a_halted_run_has_an_end_and_is_pruned(stored: StoredWorld) -> None:
    ended(stored, RUN, "halted", reason="hitl-timeout")
    (run,) = stored.reader.list_runs().runs
    assert (run["terminal"], run["status_detail"]) == (1, "hitl-timeout")
    assert run["finished_at"] == run["updated_at"]
    (summary,) = stored.reader.run_summaries()
    detail = stored.reader.run_detail(RUN)
    assert detail is not None
    assert summary["finishedAt"] == detail["finishedAt"] == iso(run["finished_at"])
    found = stored.reader.prune_candidates(START_MS + 10**9, default_seconds=1)
    assert [each["run_id"] for each in found] == [RUN]


def test_F17_abandoned_runs_are_found(stored: StoredWorld) -> None:
    for run, status in (("a", "running"), ("b", "pending"), ("c", "suspended")):
        ended(stored, run, status)
    silent = stored.reader.silent_runs(START_MS + 3_600_000, 1_800_000)
    assert [run["run_id"] for run in silent] == ["a", "b"]
    assert stored.reader.silent_runs(START_MS, 1_800_000) == []


def test_X19_F6_eight_writers_lose_nothing(stored: StoredWorld) -> None:
    engine = Engine(stored)
    engine.create()
    seen = engine.load()
    for number in range(8):
        mine = seen | {"connectionInvocations": [call(RUN, f"inv-{number}")]}
        body = {"state": mine, "expected_revision": 1, "on_conflict": "merge"}
        stored.send(RUN, "run.snapshot", body, producer=f"worker-{number}")
    assert {outcome.kind for outcome in stored.settle()} == {"applied"}
    calls = [each["invocationId"] for each in engine.load()["connectionInvocations"]]
    assert calls == [f"inv-{number}" for number in range(8)]


def test_X20_F13_calls_keep_the_order_in_which_they_were_made(engine: Engine) -> None:
    engine.create()
    calls: list[Document] = []
    for number in range(1, 6):
        calls = [*calls, call(RUN, str(number), "llm" if number % 2 else "tool")]
        engine.change(connectionInvocations=calls)
    assert [each["invocationId"] for each in engine.load()["connectionInvocations"]] == list(
        "12345"
    )
    detail = engine.world.reader.run_detail(RUN)
    assert detail is not None
    shown = [(each["instanceId"], each["runIndex"]) for each in detail["executionInstances"]]
    assert shown == [("1", 1), ("2", 1), ("3", 2), ("4", 2), ("5", 3)]


def test_X21_C3_a_definition_goes_with_the_last_run_that_has_it(stored: StoredWorld) -> None:
    for run in ("run-1", "run-2"):
        Engine(stored, run).create(workflowSnapshot=workflow_snapshot())
    stored.must("run-1", "run.delete")
    assert len(stored.rows("SELECT 1 FROM definitions")) == 1
    stored.must("run-2", "run.delete")
    assert stored.rows("SELECT 1 FROM definitions") == []


def test_X21_a_replaced_definition_stays_for_the_states_that_had_it(stored: StoredWorld) -> None:
    first, second = Engine(stored, "run-1"), Engine(stored, "run-2")
    old, new = workflow_snapshot(), workflow_snapshot(5)
    for engine in (first, second):
        engine.create(workflowSnapshot=old)
    assert first.change(workflowSnapshot=new)["workflowSnapshot"] == new
    stored.must("run-2", "run.delete")
    assert stored.state("run-1", 1)["workflowSnapshot"] == old
    assert stored.reader.read_run("run-1")["snapshot"] == new  # type: ignore[index]
    first.change(workflowSnapshot=old)
    stored.must("run-1", "run.delete")
    assert stored.rows("SELECT 1 FROM definitions") == []


def test_X22_C3_the_order_of_keys_makes_no_other_definition(stored: StoredWorld) -> None:
    snapshot = workflow_snapshot()
    Engine(stored, "run-1").create(workflowSnapshot=snapshot)
    Engine(stored, "run-2").create(workflowSnapshot=dict(reversed(snapshot.items())))
    assert len(stored.rows("SELECT 1 FROM definitions")) == 1


@pytest.mark.parametrize(
    "snapshot",
    [
        {"id": "w", "limit": 1.0},
        {"id": "w", "seed": 2**60},
        {"id": "w", "zero": -0.0},
        None,
        "text",
        ["definition", "00"],
    ],
    ids=str,
)
def test_a_definition_that_canonical_json_would_change_stays_as_it_came(
    engine: Engine, snapshot: Any
) -> None:
    engine.create()
    loaded = engine.change(workflowSnapshot=snapshot)
    assert repr(loaded["workflowSnapshot"]) == repr(snapshot)
    assert engine.world.rows("SELECT 1 FROM definitions") == []


def test_F5_saving_without_a_revision_is_a_replacement_in_one_step(engine: Engine) -> None:
    engine.create()
    engine.change(queue=[entry("a")])
    state = engine.load() | {"queue": [entry("b")]}
    del state["revision"]
    assert engine.replace(state).revision == 3
    assert engine.load() == state | {"revision": 3}


def test_F6_F14_nothing_but_a_reason_code_comes_of_a_conflict(engine: Engine) -> None:
    engine.create()
    stale = engine.load()
    engine.change(status="pending")
    body = {"state": stale, "expected_revision": 1}
    refused = engine.world.apply(RUN, "run.snapshot", body)
    assert (refused.reason, refused.detail) == ("revision_conflict", "expected 1, is at 2")
    unknown = engine.world.apply("run-2", "run.snapshot", {"state": {}})
    assert unknown.reason == "run_unknown"


def test_C2_the_revision_is_judged_before_the_state(engine: Engine) -> None:
    engine.create()
    body = {"state": {"status": "no such status"}, "expected_revision": 9, "on_conflict": "merge"}
    assert engine.world.apply(RUN, "run.snapshot", body).reason == "revision_conflict"


def test_F12_ids_are_scoped_by_run(stored: StoredWorld) -> None:
    for run in ("run-1", "run-2"):
        engine = Engine(stored, run)
        engine.create()
        engine.change(
            pending=pending(run, "a", "act-1"),
            nodeSnapshotsByNodeId={"a": node(run, "a", "act-1", "running")},
            connectionInvocations=[call(run, "inv-1")],
        )
    assert len(stored.rows("SELECT 1 FROM v_attempts WHERE attempt_id = 'act-1'")) == 2
    assert len(stored.rows("SELECT 1 FROM v_invocations WHERE invocation_id = 'inv-1'")) == 2
    assert len(stored.rows("SELECT 1 FROM v_work_items WHERE attempt_id = 'act-1'")) == 2


def test_F12_two_nodes_of_one_activation_are_two_attempts(engine: Engine) -> None:
    engine.create()
    both = {name: node(RUN, name, "act-1") for name in "ab"}
    assert engine.change(nodeSnapshotsByNodeId=both)["nodeSnapshotsByNodeId"] == both
    assert sorted(slots(engine.world)) == ["a", "b"]


def saved(number: int) -> Document:
    """A state in which everything says how many saves there were."""
    return new_run(
        RUN,
        status="running",
        engineCounters={"completedNodeActivations": number},
        queue=[entry(f"n{each}") for each in range(number)],
        pending=pending(RUN, "a", f"act-{number}", itemsIn=number),
        nodeSnapshotsByNodeId={"a": node(RUN, "a", f"act-{number}")},
        connectionInvocations=[call(RUN, f"i{each}") for each in range(number)],
    )


def of_load(reader: StateReader) -> list[int]:
    state = reader.load(RUN)
    counted = state["engineCounters"]["completedNodeActivations"]
    return [state["revision"] - 1, counted, len(state["queue"]), state["pending"]["itemsIn"]]


def of_scheduling(reader: StateReader) -> list[int]:
    state = reader.scheduling_state(RUN)
    assert state is not None
    return [len(state["queue"]), state["pending"]["itemsIn"]]


def of_detail(reader: StateReader) -> list[int]:
    detail = reader.run_detail(RUN)
    assert detail is not None
    kinds = [each["kind"] for each in detail["executionInstances"]]
    slot = {each["slotNodeId"]: each for each in detail["slotStates"]}
    (iteration,) = detail["iterations"]
    return [
        kinds.count("workflowNodeActivation"),
        kinds.count("connectionInvocation"),
        slot["a"]["runCount"],
        slot["llm"]["invocationCount"],
        len(iteration["invocationIds"]),
    ]


def of_run(reader: StateReader) -> list[int]:
    run = reader.run(RUN)
    assert run is not None
    return [run["revision"] - 1, len(run["invocations"]), len(run["work_items"]) - 1]


@pytest.mark.parametrize("read", [of_load, of_scheduling, of_detail, of_run])
def test_F16_a_read_is_of_one_moment(tmp_path: Path, read: Any) -> None:
    """A save may come between any two statements of a read: it sees all of it, or nothing."""
    world = FileWorld(tmp_path)
    world.must(RUN, "run.create", created(RUN))
    world.must(RUN, "run.snapshot", {"state": saved(1)})
    read(world.reader)
    ((_, file),) = world.reader._files.all()
    saves, left = 1, 0

    def before_each(cursor: Any, statement: str, bindings: Any) -> bool:
        nonlocal saves, left
        left -= 1
        if left == 0:
            saves += 1
            world.must(RUN, "run.snapshot", {"state": saved(saves)})
        return True

    file._connection.exec_trace = before_each
    # Not to the last statement: each save gives a detail more of them.
    for place in range(1, 13):
        left = place
        seen = set(read(world.reader))
        assert seen in ({saves}, {saves - 1}), f"a save before statement {place}"
    assert saves > 3
    world.close()


def test_C5_nobody_who_reads_waits_for_a_large_save(tmp_path: Path) -> None:
    world = FileWorld(tmp_path)
    engine = Engine(world)
    engine.create()
    before = engine.load()
    nodes = {f"n{number}": node(RUN, f"n{number}", f"a{number}") for number in range(1_000)}
    sent = world.send(RUN, "run.snapshot", {"state": before | {"nodeSnapshotsByNodeId": nodes}})
    seen: list[Document] = []
    world.applier.apply(
        [Message(RUN, sent.id, seal(sent.fields))],
        now=START_MS,
        hook=lambda point: seen.append(engine.load()) if point == "written" else None,
    )
    assert seen == [before]
    assert len(engine.load()["nodeSnapshotsByNodeId"]) == 1_000
    world.close()


def test_C6_a_whole_document_leaves_no_column_empty(engine: Engine) -> None:
    engine.create()
    engine.change(
        queue=[entry("b", toInput="left")],
        pending=pending(RUN, "a", "act-1", queue="workers"),
        suspension=[
            {
                "taskId": "t",
                "nodeId": "a",
                "activationId": "act-1",
                "itemIndex": 0,
                "timeoutAt": at(9),
                "onTimeout": "halt",
            }
        ],
        nodeSnapshotsByNodeId={
            "a": node(RUN, "a", "act-1", startedAt=at(1), finishedAt=at(2), childRunId="run-2")
        },
        connectionInvocations=[
            call(
                RUN,
                "i",
                statusLabel="reading",
                subjectName="x",
                iterationId="it",
                itemIndex=0,
                parentInvocationId="j",
                queuedAt=at(1),
                startedAt=at(1),
                finishedAt=at(2),
            )
        ],
    )
    empty = {
        (table, name)
        for table in ("attempts", "work_items", "suspensions", "invocations")
        for name in engine.world.all(table, RUN)[0]
        if all(row[name] is None for row in engine.world.all(table, RUN))
    }
    # What an attempt came to, and its place among the steps, are of the other dialect.
    assert empty == {("attempts", "outcome"), ("attempts", "step")}


def test_C7_an_event_names_what_changed_and_not_the_state(engine: Engine) -> None:
    engine.create()
    outputs = {"main": items("x" * 5_000)}
    engine.change(nodeSnapshotsByNodeId={"a": node(RUN, "a", "act-1", outputs=outputs)})
    (_, event) = engine.world.reader.trace(RUN)
    assert (event["type"], event["scope"]) == ("run.snapshot", "node")
    assert (event["node_id"], event["attempt_id"]) == ("a", "act-1")
    told = {"nodeId": "a", "attemptId": "act-1", "status": "completed"}
    assert event["payload"] == {"attempts": [told]}


def test_F11_an_activation_that_its_node_leaves_behind_neither_runs_nor_has_ended(
    engine: Engine,
) -> None:
    engine.create()
    first = node(RUN, "a", "act-1", "running", inputsByPort={"in": items(1)})
    engine.change(nodeSnapshotsByNodeId={"a": first})
    engine.change(nodeSnapshotsByNodeId={"a": node(RUN, "a", "act-2", "running")})
    detail = engine.world.reader.run_detail(RUN)
    assert detail is not None
    left, running = detail["executionInstances"]
    assert (left["status"], running["status"]) == ("interrupted", "running")
    assert left["inputJson"] == {"in": items(1)}
    assert slots(engine.world)["a"]["latestRunningInstanceId"] == "act-2"
    engine.change(nodeSnapshotsByNodeId={"a": node(RUN, "a", "act-2")})
    slot = slots(engine.world)["a"]
    assert (slot["latestTerminalInstanceId"], slot["runCount"]) == ("act-2", 1)
    assert "latestRunningInstanceId" not in slot


def test_a_state_of_another_shape_is_refused(engine: Engine) -> None:
    engine.create()
    for member in (
        {"status": "no"},
        {"runId": "run-2"},
        {"queue": {}},
        {"pending": []},
        {"nodeSnapshotsByNodeId": []},
        {"connectionInvocations": "x"},
    ):
        refused = engine.save(engine.load() | member)
        assert (refused.reason, refused.detail) == ("state_invalid", next(iter(member)))


def test_a_run_is_interrupted_and_can_go_on(engine: Engine) -> None:
    engine.create()
    work = engine.change(
        queue=[entry("b")],
        pending=pending(RUN, "a", "act-1"),
        nodeSnapshotsByNodeId={"a": node(RUN, "a", "act-1", "running")},
    )
    engine.world.must(RUN, "run.interrupt", {"reason": "gone"})
    state = engine.load()
    assert (state["status"], state["queue"]) == ("failed", work["queue"])
    (run,) = engine.world.reader.list_runs(workflow=WORKFLOW).runs
    assert (run["status"], run["error"]) == ("failed", "gone")
    assert engine.world.only("attempts", RUN)["status"] == "interrupted"
    engine.world.must(RUN, "run.reset")
    assert engine.change(status="pending")["pending"] == work["pending"]
