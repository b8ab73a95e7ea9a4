"""U: lists of runs, what retention asks, test suites; what is left of a deleted run."""

# ruff: noqa: N802 - a case is named after its mark
from __future__ import annotations

from typing import Any

import pytest

from tests.support.engine import (
    WORKFLOW,
    Engine,
    at,
    attachment,
    call,
    created,
    items,
    node,
    pending,
)
from tests.support.world import START_MS, StoredWorld

RUN = "run-1"
HOUR_S = 3_600


def test_U11_nothing_of_a_deleted_run_stays_but_its_tombstone(engine: Engine) -> None:
    engine.create(workflowSnapshot={"id": "wf", "name": "n"})
    engine.change(
        pending=pending(RUN, "node-a", "act-1"),
        queue=[{"nodeId": "b", "input": []}],
        suspension=[{"taskId": "t"}],
        nodeSnapshotsByNodeId={"node-a": node(RUN, "node-a", "act-1")},
        connectionInvocations=[call(RUN, "inv-1")],
        workflowSnapshot={"id": "wf", "name": "other"},
    )
    engine.world.must(RUN, "run.delete")
    for table in (
        "runs",
        "work_items",
        "attempts",
        "invocations",
        "suspensions",
        "state_parts",
        "definition_uses",
    ):
        assert engine.world.all(table, RUN) == [], table
    assert engine.world.rows("SELECT * FROM definitions") == []
    assert len(engine.world.all("tombstones", RUN)) == 1
    assert len(engine.world.events(RUN)) == 1


def test_U13_no_id_is_decoded(stored: StoredWorld) -> None:
    for number, workflow in enumerate(("a/b", "a%2Fb", "100%")):
        Engine(stored, f"run-{number}").create(workflowId=workflow)
    listed = [
        [run["runId"] for run in stored.reader.run_summaries(workflow=name)]
        for name in ("a/b", "a%2Fb", "100%", "100%25")
    ]
    assert listed == [["run-0"], ["run-1"], ["run-2"], []]
    assert stored.reader.load("run%2D0") is None


def test_U17_runs_are_listed_the_newest_first(stored: StoredWorld) -> None:
    for number, workflow in enumerate(["wf-1", "wf-2", "wf-1"]):
        body = created(
            f"run-{number}",
            workflowId=workflow,
            startedAt=at(number),
            executionOptions={"mode": "manual"},
        )
        stored.must(f"run-{number}", "run.create", body)
    Engine(stored, "run-0").change(status="completed", finishedAt=at(9))

    shown = stored.reader.run_summaries()
    assert [run["runId"] for run in shown] == ["run-2", "run-1", "run-0"]
    assert shown[2] == {
        "runId": "run-0",
        "workflowId": "wf-1",
        "startedAt": at(0),
        "status": "completed",
        "finishedAt": at(9),
        "executionOptions": {"mode": "manual"},
    }
    Engine(stored, "run-1").change(workflowId="wf-1")
    assert [run["runId"] for run in stored.reader.run_summaries(workflow="wf-1")] == [
        "run-2",
        "run-1",
        "run-0",
    ]
    Engine(stored, "run-1").change(workflowId="wf-2")
    of_workflow = stored.reader.run_summaries(workflow="wf-1", limit=1)
    assert [run["runId"] for run in of_workflow] == ["run-2"]
    light = stored.reader.list_runs(workflow="wf-1").runs
    assert [run["run_id"] for run in light] == ["run-2", "run-0"]


def finished(stored: StoredWorld, run: str, status: str, ago_s: int, **more: Any) -> None:
    """A run that ended so long ago, as time goes in the tests."""
    engine = Engine(stored, run)
    engine.create(**more)
    if status not in ("running", "pending", "suspended"):
        more = {"finishedAt": iso_ms(START_MS - ago_s * 1000)}
    assert engine.save(engine.load() | {"status": status} | more).kind == "applied"


def iso_ms(ms: int) -> str:
    from writer.clock import iso

    return iso(ms)


def candidates(stored: StoredWorld, default_s: int, limit: int = 100) -> list[str]:
    found = stored.reader.prune_candidates(START_MS, default_seconds=default_s, limit=limit)
    return [run["run_id"] for run in found]


def test_U18_what_ended_before_its_retention_is_to_be_pruned(stored: StoredWorld) -> None:
    finished(stored, "within", "completed", 1 * HOUR_S)
    finished(stored, "old", "completed", 48 * HOUR_S)
    finished(stored, "failed", "failed", 49 * HOUR_S)
    finished(stored, "running", "running", 0)
    finished(stored, "pending", "pending", 0)
    finished(stored, "suspended", "suspended", 0)
    own = {"policySnapshot": {"retentionSeconds": 10_800, "storagePolicy": "ALL"}}
    finished(stored, "keeps", "completed", 2 * HOUR_S, **own)

    assert candidates(stored, 24 * HOUR_S) == ["failed", "old"]
    assert candidates(stored, 24 * HOUR_S, limit=1) == ["failed"]
    assert candidates(stored, 3_600) == ["failed", "old"]
    (first,) = stored.reader.prune_candidates(START_MS, default_seconds=86_400, limit=1)
    assert first["finished_at"] == START_MS - 49 * HOUR_S * 1000


def test_U18_the_last_moment_still_keeps_it(stored: StoredWorld) -> None:
    finished(stored, "run-1", "completed", HOUR_S)
    assert candidates(stored, HOUR_S) == []
    assert candidates(stored, HOUR_S - 1) == ["run-1"]


def test_U19_pinned_outputs_and_debug_inputs_hold_storage_keys(engine: Engine) -> None:
    item = {"json": {}, "binary": {"file": attachment("pinned"), "none": {"id": "x"}}}
    debug = {"json": attachment("debug")}
    empty = {"json": attachment("")}
    engine.create(
        mutableState={
            "nodesById": {
                "a": {"pinnedOutputsByPort": {"main": [item]}, "lastDebugInput": [debug, empty]}
            }
        }
    )
    assert engine.world.reader.binary_storage_keys(RUN) == ["debug", "pinned"]


def test_keys_of_earlier_attempts_are_found_too(engine: Engine) -> None:
    engine.create()
    for number in (1, 2):
        outputs = {"main": [{"json": attachment(f"key-{number}")}]}
        engine.change(nodeSnapshotsByNodeId={"a": node(RUN, "a", f"act-{number}", outputs=outputs)})
    assert engine.world.reader.binary_storage_keys(RUN) == ["key-1", "key-2"]
    detail = engine.world.reader.run_detail(RUN)
    assert detail is not None
    shown = [(each["runIndex"], each["outputJson"]) for each in detail["executionInstances"]]
    assert [index for index, _ in shown] == [1, 2]
    assert shown[0][1]["main"][0]["json"]["storageKey"] == "key-1"


def test_keys_that_no_state_names_any_more_are_found_too(engine: Engine) -> None:
    """Their files are the run's all the same, and nobody else will ever ask for them."""
    engine.create()
    for key in ("small", "large"):
        file = attachment(key, filename="n" * 2_000 if key == "large" else "n")
        engine.change(outputsByNode={"a/b": {"main": [{"json": {}, "binary": {"f": file}}]}})
    engine.change(nodeSnapshotsByNodeId={"c": node(RUN, "c", "act-1", outputs=attachment("node"))})
    engine.change(outputsByNode={}, nodeSnapshotsByNodeId={})
    assert engine.world.reader.binary_storage_keys(RUN) == ["large", "node", "small"]


def test_keys_elsewhere_in_a_state_are_not_the_runs(engine: Engine) -> None:
    engine.create(workflowSnapshot={"id": "wf", "icon": attachment("icon")})
    engine.change(
        queue=[{"nodeId": "a", "input": [{"json": attachment("queued")}]}],
        nodeSnapshotsByNodeId={"a": node(RUN, "a", "act-1", error=attachment("error"))},
        connectionInvocations=[call(RUN, "i", managedOutput=[attachment("answer")])],
        pendingResume={"resumeContext": attachment("resume")},
    )
    assert engine.world.reader.binary_storage_keys(RUN) == ["answer"]


@pytest.mark.parametrize("label", ["first", None])
def test_U25_a_test_suite_is_the_runs_that_name_it(stored: StoredWorld, label: str | None) -> None:
    for number in range(3):
        context: dict[str, Any] = {"testSuiteRunId": "suite-1", "testCaseIndex": number}
        if label is not None:
            context["testCaseLabel"] = f"{label} {number}"
        Engine(stored, f"case-{number}").create(executionOptions={"testContext": context})
        Engine(stored, f"case-{number}").change(status="completed")
        outcome = "failed" if number == 1 else "succeeded"
        stored.must(f"case-{number}", "run.annotate", {"test_case_status": outcome})
    Engine(stored, "other").create()

    suite = stored.reader.test_suite("suite-1")
    assert (suite["total"], suite["open"]) == (3, 0)
    assert suite["test_case_statuses"] == {"failed": 1, "succeeded": 2}
    assert [case["run_id"] for case in suite["cases"]] == ["case-0", "case-1", "case-2"]
    assert {case["status"] for case in suite["cases"]} == {"completed"}
    assert suite["cases"][2]["test_case_label"] == (label and f"{label} 2")
    assert stored.reader.test_suite("unknown")["total"] == 0


def test_U25_a_test_case_is_running_from_its_creation(stored: StoredWorld) -> None:
    context = {"testSuiteRunId": "suite-1", "testCaseIndex": 0}
    Engine(stored, "case").create(executionOptions={"testContext": context})
    Engine(stored, "no-case").create()
    shown = {run["run_id"]: run["test_case_status"] for run in stored.reader.list_runs().runs}
    assert shown == {"case": "running", "no-case": None}
    Engine(stored, "case").change(status="completed")
    (run,) = [each for each in stored.reader.run_summaries() if each["runId"] == "case"]
    assert run["testCaseStatus"] == "running"


def test_U25_the_runs_below_a_run_name_it(stored: StoredWorld) -> None:
    parent = {"runId": "run-1", "workflowId": WORKFLOW, "nodeId": "call", "subworkflowDepth": 1}
    Engine(stored, "run-2").create(parent=parent)
    (run,) = stored.reader.list_runs(parent="run-1").runs
    assert (run["run_id"], run["parent_relation"]) == ("run-2", "subworkflow")
    loaded = Engine(stored, "run-2").change(
        nodeSnapshotsByNodeId={"a": node("run-2", "a", "act-1", outputs={"main": items(1)})}
    )
    assert loaded["parent"] == parent
    assert "parent" not in loaded["nodeSnapshotsByNodeId"]["a"]
