"""U: what the seed's own tests assert, of one run."""

# ruff: noqa: N802 - a case is named after its mark
from __future__ import annotations

from typing import Any

import pytest

from producers import InvalidCommand
from producers.contract.limits import BODY_BYTES_MAX
from producers.validation import encode_body
from tests.support.engine import (
    Engine,
    attachment,
    call,
    created,
    items,
    node,
    pending,
    workflow_snapshot,
)
from tests.support.world import DUPLICATE, StoredWorld

RUN = "run-1"


def test_U1_a_run_is_loaded_as_it_was_saved(engine: Engine) -> None:
    engine.create(executionOptions={"mode": "debug"}, mutableState={"nodesById": {}})
    queued = {"nodeId": "node-b", "input": items({"hello": "queue"}), "batchId": "batch-2"}
    claimed = pending(RUN, "node-a", "act-1", "batch-1", receiptId="act-1", queue="workers")
    loaded = engine.change(
        status="pending",
        engineCounters={"completedNodeActivations": 1},
        queue=[queued],
        pending=claimed,
        nodeSnapshotsByNodeId={"node-a": node(RUN, "node-a", "act-1", "running")},
        connectionInvocations=[call(RUN, "inv-1", "llm-slot", parentAgentNodeId="agent-1")],
    )

    assert (loaded["revision"], loaded["status"]) == (2, "pending")
    assert loaded["pending"]["activationId"] == "act-1"
    assert loaded["queue"] == [queued]
    assert engine.world.reader.scheduling_state(RUN) == {"pending": claimed, "queue": [queued]}
    assert loaded["nodeSnapshotsByNodeId"]["node-a"]["activationId"] == "act-1"
    assert [each["invocationId"] for each in loaded["connectionInvocations"]] == ["inv-1"]
    assert loaded["executionOptions"] == {"mode": "debug"}


def test_U2_history_is_appended(engine: Engine) -> None:
    engine.create()
    engine.change(nodeSnapshotsByNodeId={"node-a": node(RUN, "node-a", "act-1")})
    engine.change(
        pending=pending(RUN, "node-a", "act-2", "batch-2"),
        nodeSnapshotsByNodeId={"node-a": node(RUN, "node-a", "act-2", "queued")},
    )

    attempts = {row["attempt_id"]: row for row in engine.world.all("attempts", RUN)}
    assert (attempts["act-1"]["status"], attempts["act-1"]["revision"]) == ("completed", 2)
    assert (attempts["act-2"]["number"], attempts["act-2"]["status"]) == (2, "queued")
    claimed = engine.world.only("work_items", RUN)
    assert (claimed["kind"], claimed["node_id"]) == ("claimed", "node-a")
    assert (claimed["attempt_id"], claimed["batch_id"]) == ("act-2", "batch-2")


def test_U3_outputs_of_nodes_with_and_without_a_snapshot_are_read_back(engine: Engine) -> None:
    engine.create(mutableState={"nodesById": {"node-a": {}}})
    outputs = {"node-a": {"main": items(1)}, "node-b": {"main": items(2)}}
    loaded = engine.change(
        outputsByNode=outputs,
        nodeSnapshotsByNodeId={"node-a": node(RUN, "node-a", "act-1", outputs=outputs["node-a"])},
    )
    assert loaded["outputsByNode"] == outputs
    assert loaded["mutableState"] == {"nodesById": {"node-a": {}}}


def test_U4_detail_shows_slots_and_instances(engine: Engine) -> None:
    engine.create()
    engine.change(
        nodeSnapshotsByNodeId={"node-a": node(RUN, "node-a", "act-1")},
        connectionInvocations=[call(RUN, name, "node-a") for name in ("inv-1", "inv-2")],
    )
    detail = engine.world.reader.run_detail(RUN)
    assert detail is not None
    assert detail["slotStates"] == [
        {
            "slotNodeId": "node-a",
            "latestInstanceId": "act-1",
            "latestTerminalInstanceId": "act-1",
            "status": "completed",
            "invocationCount": 2,
            "runCount": 1,
        }
    ]
    first = detail["executionInstances"][0]
    assert (first["instanceId"], first["slotNodeId"]) == ("act-1", "node-a")
    assert (first["workflowNodeId"], first["status"]) == ("node-a", "completed")


def binary(key: str) -> dict[str, Any]:
    return {"main": [{"json": {}, "binary": {"file": attachment(key)}}]}


def test_U4_binary_storage_keys_are_found_wherever_items_are(engine: Engine) -> None:
    engine.create(
        mutableState={"nodesById": {"node-a": {"pinnedOutputsByPort": binary("storage-key-3")}}}
    )
    engine.change(
        outputsByNode={"node-b": binary("storage-key-1")},
        nodeSnapshotsByNodeId={
            "node-a": node(RUN, "node-a", "act-1", inputsByPort=binary("storage-key-2"))
        },
    )
    keys = ["storage-key-1", "storage-key-2", "storage-key-3"]
    assert engine.world.reader.binary_storage_keys(RUN) == keys


def test_U5_a_stale_save_is_merged(engine: Engine) -> None:
    engine.create()
    stale = engine.load()
    engine.change(connectionInvocations=[call(RUN, "inv-1")])
    stale["nodeSnapshotsByNodeId"] = {"node-a": node(RUN, "node-a", "act-2", "queued")}
    assert engine.save(stale).revision == 3

    loaded = engine.load()
    assert [each["invocationId"] for each in loaded["connectionInvocations"]] == ["inv-1"]
    assert loaded["nodeSnapshotsByNodeId"]["node-a"]["status"] == "queued"


def test_U6_where_in_an_iteration_a_call_was_made_is_kept(engine: Engine) -> None:
    engine.create()
    identity = {"iterationId": "iter_b", "itemIndex": 1, "parentInvocationId": "tool-call-row-1"}
    loaded = engine.change(
        connectionInvocations=[
            call(RUN, "inv-1", iterationId="iter_a", itemIndex=0),
            call(RUN, "inv-2", **identity),
        ]
    )
    assert loaded["connectionInvocations"][0]["itemIndex"] == 0
    assert identity.items() <= loaded["connectionInvocations"][1].items()
    row = engine.world.all("invocations", RUN)[1]
    assert (row["iteration_id"], row["item_index"]) == ("iter_b", 1)
    assert row["parent_invocation"] == "tool-call-row-1"


def test_U7_a_child_run_is_named_or_has_no_key(engine: Engine) -> None:
    engine.create()
    loaded = engine.change(
        nodeSnapshotsByNodeId={
            "node-a": node(RUN, "node-a", "act-1", childRunId="run-2"),
            "node-b": node(RUN, "node-b", "act-2"),
        }
    )
    assert loaded["nodeSnapshotsByNodeId"]["node-a"]["childRunId"] == "run-2"
    assert "childRunId" not in loaded["nodeSnapshotsByNodeId"]["node-b"]
    detail = engine.world.reader.run_detail(RUN)
    assert detail is not None
    shown = {each["instanceId"]: each.get("childRunId") for each in detail["executionInstances"]}
    assert shown == {"act-1": "run-2", "act-2": None}
    assert "childRunId" not in detail["executionInstances"][1]


def test_U8_a_foreign_invocation_is_left_out(stored: StoredWorld) -> None:
    first, second = Engine(stored, "run-1"), Engine(stored, "run-2")
    first.create()
    shared = call("run-1", "cinv_shared")
    first.change(status="completed", connectionInvocations=[shared])
    second.create()
    loaded = second.change(connectionInvocations=[shared])

    assert loaded["connectionInvocations"] == []
    assert [row["run_id"] for row in stored.rows("SELECT run_id FROM v_invocations")] == ["run-1"]
    detail = stored.reader.run_detail("run-2")
    assert detail is not None
    assert detail["executionInstances"] == []
    assert first.load()["connectionInvocations"] == [shared]


def test_U9_one_definition_for_runs_with_the_same_workflow(stored: StoredWorld) -> None:
    for number in range(10):
        Engine(stored, f"run-{number}").create(workflowSnapshot=workflow_snapshot())
    (row,) = stored.rows("SELECT * FROM definitions")
    rows = stored.rows("SELECT DISTINCT definition_digest FROM runs")
    assert rows == [{"definition_digest": row["definition_digest"]}]
    assert Engine(stored, "run-7").load()["workflowSnapshot"] == workflow_snapshot()


def test_U10_payloads_stay_inline_up_to_the_limit_and_are_refused_beyond(engine: Engine) -> None:
    engine.create()
    payload = {"main": items("x" * 2**20)}
    loaded = engine.change(nodeSnapshotsByNodeId={"a": node(RUN, "a", "act-1", outputs=payload)})
    assert loaded["nodeSnapshotsByNodeId"]["a"]["outputs"] == payload
    too_large = {"main": items("x" * BODY_BYTES_MAX)}
    with pytest.raises(InvalidCommand, match="body_too_large"):
        encode_body("run.snapshot", {"state": loaded | {"outputsByNode": {"a": too_large}}})


def test_U12_people_are_waited_for_and_the_answer_is_kept(engine: Engine) -> None:
    engine.create()
    tasks = [
        {
            "taskId": name,
            "nodeId": "approve-invoice",
            "activationId": "act-1",
            "itemIndex": index,
            "decisionSchemaHash": "h",
            "deliveryRef": {"channel": None},
            "timeoutAt": "2026-08-24T00:00:00.000Z",
            "onTimeout": "halt",
        }
        for index, name in enumerate("ab")
    ]
    resume = {
        "activationId": "act_resume_001",
        "nodeId": "approve-invoice",
        "resumeContext": {"decidedAt": "2026-08-23T10:00:00.000Z"},
    }
    loaded = engine.change(
        status="suspended", suspension=tasks, pendingResume=resume, reason="hitl-rejected"
    )
    assert loaded["suspension"] == tasks
    assert (loaded["pendingResume"], loaded["reason"]) == (resume, "hitl-rejected")
    waiting = engine.world.rows("SELECT task_id, timeout_at FROM v_suspensions ORDER BY position")
    assert [row["task_id"] for row in waiting] == ["a", "b"]
    assert waiting[0]["timeout_at"] == 1_787_529_600_000
    assert engine.change(status="pending", suspension=[])["suspension"] == []
    assert engine.world.all("suspensions", RUN) == []


def test_U15_an_unknown_run_reads_as_nothing(stored: StoredWorld) -> None:
    Engine(stored).create()
    reader = stored.reader
    assert reader.load("missing") is None
    assert reader.run_detail("missing") is None
    assert reader.scheduling_state("missing") is None
    assert reader.binary_storage_keys("missing") == []


def test_U16_a_new_run_has_nothing_to_do(engine: Engine) -> None:
    engine.create()
    assert engine.world.reader.scheduling_state(RUN) == {"queue": []}
    loaded = engine.load()
    assert (loaded["status"], loaded["queue"], loaded["revision"]) == ("running", [], 1)
    assert (loaded["outputsByNode"], loaded["nodeSnapshotsByNodeId"]) == ({}, {})


def test_U20_detail_shows_child_runs_and_calls_behind_the_nodes(engine: Engine) -> None:
    engine.create()
    engine.change(
        connectionInvocations=[call(RUN, "inv-1", iterationId="iter_a")],
        nodeSnapshotsByNodeId={"z": node(RUN, "z", "act-1", childRunId="run-2")},
    )
    detail = engine.world.reader.run_detail(RUN)
    assert detail is not None
    shown = detail["executionInstances"]
    assert [each["kind"] for each in shown] == ["workflowNodeActivation", "connectionInvocation"]
    assert (shown[0]["childRunId"], shown[1]["iterationId"]) == ("run-2", "iter_a")


def test_U21_enqueueing_keeps_earlier_calls_and_the_items_as_they_came(engine: Engine) -> None:
    engine.create()
    engine.change(connectionInvocations=[call(RUN, "inv-1")])
    wire = {"in": [{"json": '{"not": "parsed"}', "meta": {"raw": None}}]}
    loaded = engine.change(
        pending=pending(RUN, "node-b", "act-2", inputsByPort=wire),
        nodeSnapshotsByNodeId={"node-b": node(RUN, "node-b", "act-2", inputsByPort=wire)},
    )
    assert len(loaded["connectionInvocations"]) == 1
    assert loaded["pending"]["inputsByPort"] == wire
    assert loaded["nodeSnapshotsByNodeId"]["node-b"]["inputsByPort"] == wire


def test_U22_a_status_label_is_on_the_stored_record(engine: Engine) -> None:
    engine.create()
    loaded = engine.change(connectionInvocations=[call(RUN, "inv-1", statusLabel="Thinking")])
    assert loaded["connectionInvocations"][0]["statusLabel"] == "Thinking"
    assert engine.world.only("invocations", RUN)["status_label"] == "Thinking"


def test_U24_iterations_are_part_of_the_detail(engine: Engine) -> None:
    engine.create()
    engine.change(
        connectionInvocations=[
            call(RUN, "b", iterationId="i2", itemIndex=1, startedAt="2026-08-23T00:00:05.000Z"),
            call(RUN, "a2", iterationId="i1", itemIndex=0, startedAt="2026-08-23T00:00:02.000Z"),
            call(
                RUN,
                "a1",
                iterationId="i1",
                itemIndex=0,
                startedAt="2026-08-23T00:00:01.000Z",
                finishedAt="2026-08-23T00:00:04.000Z",
            ),
            call(RUN, "c", status="running", itemIndex=2),
        ]
    )
    detail = engine.world.reader.run_detail(RUN)
    assert detail is not None
    first, second, third = detail["iterations"]
    assert (first["iterationId"], first["invocationIds"]) == ("i1", ["a1", "a2"])
    assert first["startedAt"] == "2026-08-23T00:00:01.000Z"
    assert first["finishedAt"] == "2026-08-23T00:00:04.000Z"
    assert (second["iterationId"], second["status"]) == ("i2", "completed")
    assert (third["iterationId"], third["status"]) == ("legacy::agent::act-agent::2", "running")
    assert "finishedAt" not in third
    mixed = [call(RUN, "a", iterationId="i"), call(RUN, "b", status="queued", iterationId="i")]
    for status, expected in (
        ("queued", "running"),
        ("failed", "failed"),
        ("completed", "completed"),
    ):
        mixed[1]["status"] = status
        engine.change(connectionInvocations=mixed)
        detail = engine.world.reader.run_detail(RUN)
        assert detail is not None
        assert [each["status"] for each in detail["iterations"]] == [expected]


def test_F14_a_run_is_created_once_deleted_once_and_annotated_once(engine: Engine) -> None:
    world = engine.world
    engine.create()
    assert world.apply(RUN, "run.create", created(RUN), producer="new") == DUPLICATE
    world.must(RUN, "run.annotate", {"test_case_status": "failed"})
    again = world.apply(RUN, "run.annotate", {"test_case_status": "failed"}, producer="new")
    assert again == DUPLICATE
    sent = world.send(RUN, "run.delete")
    world.settle()
    world.resend(sent)
    assert world.settle() == [DUPLICATE]
