"""What reads: `runs`, `show`, `trace`, `transcript`, `export`, `rejections`, `digest`."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.console import PROGRAM, TOP, RunningDaemon, environment, statewriter
from writer.cli.exits import NotFound
from writer.errors import Usage
from writer.store.reader import StateReader

pytestmark = pytest.mark.server

RUN = "shown"
COMMANDS = [
    ("run.create", {"state": {"n": 1}, "title": "A title", "workflow": "triage"}),
    ("session.bind", {"session": "s-1"}),
    ("session.entry", {"entry": {"id": "e-1", "role": "user", "content": "hello\n\x1b[31mred"}}),
    ("session.entry", {"entry": {"id": "e-2", "message": {"role": "assistant", "content": []}}}),
    ("run.update", {"type": "progress", "key": "w", "data": {"done": 3}}),
    ("run.snapshot", {"state": {"n": 2}, "event": {"type": "tick", "payload": {"a": 1}}}),
    ("run.snapshot", {"state": {"n": 3, "status": "completed"}, "event": {"type": "end"}}),
    ("run.update", {"type": "progress", "key": "w", "data": {}}),
]


@pytest.fixture(scope="module")
def filled(shared: RunningDaemon) -> Path:
    """A folder with one run that has something of everything."""
    lines = [json.dumps({"run": RUN, "kind": kind, "body": body}) for kind, body in COMMANDS]
    statewriter("send", "-", "--wait", data=shared.data, stdin="\n".join(lines)).ok()
    return shared.data


def test_runs(filled: Path) -> None:
    shown = statewriter("runs", data=filled).ok().out
    assert RUN in shown
    assert "A title" in shown
    assert "completed" in shown
    found = statewriter("runs", "--json", "--status", "completed", data=filled).ok().json()
    assert [run["run_id"] for run in found["runs"]] == [RUN]
    assert found["next"] is None
    none = statewriter("runs", "--json", "--workflow", "other", data=filled).ok().json()
    assert none == {"runs": [], "next": None}


def test_runs_page_by_page(filled: Path) -> None:
    lines = "".join(
        f'{{"run": "page-{number}", "kind": "run.create", "body": {{"workflow": "paged"}}}}\n'
        for number in range(3)
    )
    statewriter("send", "-", "--wait", data=filled, stdin=lines).ok()
    seen: list[str] = []
    after: list[str] = []
    while True:
        page = statewriter(
            "runs", "--json", "--workflow", "paged", "--limit", "2", *after, data=filled
        )
        found = page.ok().json()
        seen += [run["run_id"] for run in found["runs"]]
        if found["next"] is None:
            break
        after = ["--after", found["next"]]
    assert sorted(seen) == ["page-0", "page-1", "page-2"]
    assert statewriter("runs", "--after", "nonsense", data=filled).code == Usage.exit_code


def test_runs_watch_ends_with_ctrl_c(filled: Path) -> None:
    process = subprocess.Popen(
        [*PROGRAM, "runs", "--watch", "--data", str(filled)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment({"FORCE_COLOR": "1", "TERM": "xterm"}),
        cwd=TOP,
    )
    assert process.stdout is not None
    try:
        shown = b""
        while RUN.encode() not in shown:
            shown += process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, b"")
    finally:
        process.kill()
        process.wait()
    assert statewriter("runs", "--watch", "--json", data=filled).code == Usage.exit_code


def test_show(filled: Path) -> None:
    shown = statewriter("show", RUN, data=filled).ok().out
    for part in ("completed", "triage", "sessions (1)", "updates (1)", '"n": 3', "1 rejected"):
        assert part in shown
    found = statewriter("show", RUN, "--json", data=filled).ok().json()
    assert found["state"] == {"n": 3, "status": "completed"}
    assert found["cursor"]["applied"] == 7


def test_show_an_earlier_revision(filled: Path) -> None:
    shown = statewriter("show", RUN, "--revision", "4", "--json", data=filled).ok().json()
    assert shown == {"run_id": RUN, "revision": 4, "state": {"n": 2}}
    assert json.loads(statewriter("show", RUN, "--revision", "1", data=filled).ok().out) == {"n": 1}
    missing = statewriter("show", RUN, "--revision", "99", data=filled)
    assert missing.code == NotFound.exit_code
    assert "its revisions are 1 to 5" in missing.err


def test_trace(filled: Path) -> None:
    lines = statewriter("trace", RUN, data=filled).ok().out.splitlines()
    assert [line.split()[3] for line in lines] == [
        *("run.create", "session.bind", "run.update", "tick", "end")
    ]
    found = statewriter("trace", RUN, "--json", "--after", "2", "--limit", "2", data=filled)
    assert [event["revision"] for event in found.ok().lines()] == [3, 4]


def test_trace_follow_ends_with_its_run(shared: RunningDaemon) -> None:
    process = subprocess.Popen(
        [*PROGRAM, "trace", "followed", "--follow", "--json", "--data", str(shared.data)],
        stdout=subprocess.PIPE,
        env=environment(),
        cwd=TOP,
    )
    assert process.stdout is not None
    try:
        create = '{"run": "followed", "kind": "run.create", "body": {}}'
        statewriter("send", "-", "--wait", data=shared.data, stdin=create).ok()
        assert json.loads(process.stdout.readline())["type"] == "run.create"
        end = {"state": {"status": "failed"}, "event": {"type": "end"}}
        line = json.dumps({"run": "followed", "kind": "run.snapshot", "body": end})
        statewriter("send", "-", "--wait", data=shared.data, stdin=line).ok()
        assert json.loads(process.stdout.readline())["type"] == "end"
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.stdout.close()
        process.wait()


def test_transcript(filled: Path) -> None:
    shown = statewriter("transcript", RUN, data=filled).ok().out
    assert "[1] user e-1\n    hello\n" in shown
    # What a host sent can not steer the reader's terminal.
    assert "\x1b" not in shown
    found = statewriter("transcript", RUN, "--json", data=filled).ok().lines()
    assert [entry["entry"]["id"] for entry in found] == ["e-1", "e-2"]


def test_export(filled: Path, tmp_path: Path) -> None:
    lines = statewriter("export", RUN, data=filled).ok().lines()
    assert {line["type"] for line in lines} == {
        *("run", "event", "state", "update", "producer", "segment", "entry", "rejection")
    }
    to = tmp_path / "run.ndjson"
    statewriter("export", RUN, "-o", to, data=filled).ok()
    assert [json.loads(line) for line in to.read_text().splitlines()] == lines
    nowhere = statewriter("export", RUN, "-o", tmp_path / "no/such", data=filled)
    assert nowhere.code == Usage.exit_code


def test_rejections(filled: Path) -> None:
    found = statewriter("rejections", "--run", RUN, "--json", data=filled).ok().json()
    (refused,) = found["rejections"]
    assert (refused["reason"], refused["kind"]) == ("run_terminal", "run.update")
    assert "run_terminal" in statewriter("rejections", "--since", "1h", data=filled).ok().out
    none = statewriter("rejections", "--json", "--since", "2999-01-01T00:00:00Z", data=filled).ok()
    assert none.json()["rejections"] == []
    whole = statewriter("rejections", refused["id"], data=filled).ok().out
    assert "The run has finished; only a reset leads out of it." in whole
    assert '"kind": "run.update"' in whole
    assert statewriter("rejections", "0:999999", data=filled).code == NotFound.exit_code
    assert statewriter("rejections", "--since", "soon", data=filled).code == Usage.exit_code


def test_digest(filled: Path) -> None:
    found = statewriter("digest", "--runs", "--json", data=filled).ok().json()
    with StateReader(filled) as reader:
        assert found == reader.digest()
    lines = statewriter("digest", data=filled).ok().out.splitlines()
    assert lines[-1] == f"{found['digest']}  whole"
    assert len(lines) == 3


@pytest.mark.parametrize("command", ["show", "trace", "transcript", "export"])
def test_a_run_that_is_not_there(filled: Path, command: str) -> None:
    ran = statewriter(command, "nowhere", "--json", data=filled)
    assert ran.code == NotFound.exit_code
    assert json.loads(ran.err)["name"] == "NotFound"
    assert ran.out == ""
