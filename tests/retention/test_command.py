"""The command line of retention, and of runs that are saved whole."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.console import statewriter
from tests.support.engine import call, created, items, new_run, node, pending
from tests.support.wait import poll
from writer.errors import Usage

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def data() -> Iterator[Path]:
    """A folder with runs of two dialects; no daemon runs on it."""
    with tempfile.TemporaryDirectory(prefix="sw-") as folder:
        data = Path(folder, "data")
        lines: list[dict[str, Any]] = [
            line("done", "run.create", created("done", status="completed", finishedAt=PAST)),
            line("halted", "run.create", created("halted", status="halted", finishedAt=PAST)),
            line("top", "run.create", created("top", status="completed", finishedAt=PAST)),
            line("leaf", "run.create", created("leaf", parent={"runId": "top"})),
            line("at-work", "run.create", created("at-work")),
            line("at-work", "run.snapshot", {"state": AT_WORK}),
            line("plain", "run.create", {"state": {"status": "running"}, "title": "Plain"}),
        ]
        text = "\n".join(map(json.dumps, lines))
        statewriter("send", "-", "--wait", "--strict", data=data, stdin=text).ok()
        yield data


def line(run: str, kind: str, body: dict[str, Any]) -> dict[str, Any]:
    return {"run": run, "kind": kind, "body": body}


PAST = "2020-01-01T00:00:00.000Z"
AT_WORK = new_run(
    "at-work",
    status="pending",
    queue=[
        {"nodeId": "join", "input": [], "collect": {"expectedInputs": [], "received": {}}},
        *({"nodeId": f"next-{number}", "input": []} for number in range(11)),
    ],
    pending=pending("at-work", "agent", "act-2"),
    suspension=[{"taskId": "approve", "nodeId": "agent"}],
    nodeSnapshotsByNodeId={"agent": node("at-work", "agent", "act-2", "running")},
    outputsByNode={"first": {"main": items(1)}},
    connectionInvocations=[call("at-work", "inv-1", statusLabel="reading")],
)


def test_show_trace_and_runs_speak_of_both_dialects(data: Path) -> None:
    listed = statewriter("runs", "--json", data=data).ok().json()["runs"]
    status = {run["run_id"]: (run["dialect"], run["status"], run["terminal"]) for run in listed}
    assert status["halted"] == ("codemation", "halted", 1)
    assert status["at-work"] == ("codemation", "pending", 0)
    assert status["plain"] == ("generic", "running", 0)

    shown = statewriter("show", "at-work", data=data).ok().out
    for text in ("work items (13)", "claimed", "collect", "suspensions (1)", "approve"):
        assert text in shown
    # What is to be done next stands first, and is not what is left out.
    work = shown[shown.index("work items") : shown.index("suspensions")]
    assert re.findall(r"claimed|collect|next-\d+", work) == [
        "claimed",
        "collect",
        *(f"next-{number}" for number in range(8)),
    ]
    assert "3 behind these" in work
    assert "invocations (1)" in shown
    as_json = statewriter("show", "at-work", "--json", data=data).ok().json()
    assert as_json["work_items"][0]["attempt_id"] == "act-2"
    assert as_json["attempts"][0]["status"] == "running"
    traced = statewriter("trace", "at-work", "--json", data=data).ok().lines()
    assert [event["type"] for event in traced] == ["run.create", "run.snapshot"]
    assert traced[1]["node_id"] == "agent"


def test_a_dry_run_says_what_would_go_and_changes_nothing(data: Path) -> None:
    told = statewriter("prune", "--dry-run", "--keep", "30d", "--json", data=data).ok().json()
    assert [run["run_id"] for run in told["delete"]] == ["done", "halted"]
    assert [(run["run_id"], run["kept_by"]) for run in told["kept"]] == [("top", "child_live")]
    assert told["interrupt"] == []
    shown = statewriter("prune", "--dry-run", "--keep", "30d", data=data).ok().out
    assert "kept: child_live" in shown
    nothing = statewriter("prune", "--dry-run", data=data).ok()
    assert "nothing is due" in nothing.err
    assert len(statewriter("runs", "--json", data=data).json()["runs"]) == 6


def test_prune_asks_and_has_to_be_told_times(data: Path) -> None:
    refused = statewriter("prune", "--keep", "30d", data=data)
    assert refused.code == Usage.exit_code
    for time in ("30", "d", "-1d", "1w", "0s"):
        assert statewriter("prune", f"--keep={time}", data=data).code == Usage.exit_code


def test_prune_deletes_without_a_daemon_too(data: Path) -> None:
    told = statewriter("prune", "--keep", "30d", "--yes", data=data).ok().out
    assert told == "2 runs deleted; 1 kept (child_live 1)\n"
    left = statewriter("runs", "--json", data=data).ok().json()["runs"]
    assert {run["run_id"] for run in left} == {"top", "leaf", "at-work", "plain"}
    again = statewriter("prune", "--yes", "--json", data=data, env=KEEP).ok().json()
    assert (again["deleted"], again["left"]) == ([], {})


KEEP = {"STATEWRITER_RETENTION_SECONDS": "60"}


def test_abandoned_runs_are_listed_interrupted_and_pruned() -> None:
    lines = [
        line("gone", "run.create", created("gone")),
        line("waits", "run.create", created("waits", status="suspended")),
    ]
    with tempfile.TemporaryDirectory(prefix="sw-") as folder:
        data = Path(folder, "data")
        text = "\n".join(map(json.dumps, lines))
        statewriter("send", "-", "--wait", "--strict", data=data, stdin=text).ok()

        def listed(*options: str) -> Any:
            return statewriter("prune", "--dry-run", "--json", *options, data=data).ok().json()

        def silent() -> list[str]:
            return [run["run_id"] for run in listed("--abandoned", "1s")["interrupt"]]

        assert poll(silent, message="a silent run") == ["gone"]
        assert listed("--abandoned", "1h")["interrupt"] == []
        told = statewriter("prune", "--abandoned", "1s", "--yes", "--json", data=data).ok().json()
        assert (told["interrupted"], told["deleted"]) == (["gone"], [])
        shown = statewriter("show", "gone", "--json", data=data).ok().json()
        assert (shown["status"], shown["terminal"]) == ("failed", 1)

        poll(lambda: listed("--keep", "1s")["delete"], message="a run that is due")
        told = statewriter("prune", "--keep", "1s", "--yes", "--json", data=data).ok().json()
        assert told["deleted"] == ["gone"]
        left = statewriter("runs", "--json", data=data).ok().json()["runs"]
        assert [run["run_id"] for run in left] == ["waits"]
