"""`send`: what is sent, what becomes of it, and lines that are no commands."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support import workload
from tests.support.console import (
    PROGRAM,
    TOP,
    RunningDaemon,
    environment,
    running_daemon,
    statewriter,
)
from tests.support.servers import real_server
from tests.support.wait import poll
from writer.cli.exits import LINES_SKIPPED, Refused, Unsettled
from writer.store.reader import StateReader

pytestmark = pytest.mark.server


def line(run: str, kind: str, body: Any, **more: Any) -> str:
    """One line of `send`."""
    return json.dumps({"run": run, "kind": kind, "body": body, **more}) + "\n"


def created(run: str, **state: Any) -> str:
    """A line that creates a run."""
    return line(run, "run.create", {"state": state})


def test_the_typical_run_reads_back_equal(data: Path) -> None:
    """No daemon, no server, no folder: `--wait` brings all of them."""
    # A line at once for each: the states are one object that grows.
    lines = [
        line("typical", sent.kind, sent.body)
        for sent in map(workload.command, workload.typical_ops("typical"))
    ]
    ran = statewriter("send", "-", "--wait", "--json", data=data, stdin="".join(lines)).ok()
    *commands, last = ran.lines()
    assert last["summary"]["applied"] == last["summary"]["commands"] == len(lines) == 483
    assert [each["seq"] for each in commands] == list(range(1, 484))
    assert {each["outcome"] for each in commands} == {"applied"}
    with StateReader(data) as reader:
        read = reader.read_run("typical")
    assert read is not None
    final = [op.payload for op in workload.typical_ops("typical") if op.name == "snapshot"][-1][0]
    stamped = ("traceSeq", "updatedAt", "updates")
    assert _without(read["state"], *stamped) == _without(final, *stamped)
    assert read["sessionIntegrity"] == {"status": "complete", "diagnostics": []}
    assert [each["entry"] for each in read["sessionEntries"]] == [
        op.payload for op in workload.typical_ops("typical") if op.name == "entry"
    ]


def _without(document: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in names}


def test_each_outcome_is_told_in_order(shared: RunningDaemon) -> None:
    lines = (
        created("told", n=1)
        + line("told", "run.snapshot", {"state": {"n": 2}})
        + line("told", "run.snapshot", {"state": {"n": 3}, "expected_revision": 1})
        + line("told-not", "run.snapshot", {"state": {}})
        + created("told", n=1)
    )
    ran = statewriter("send", "-", "--wait", data=shared.data, stdin=lines).ok()
    *told, summary = ran.out.splitlines()
    assert [each.split()[0] for each in told] == [
        *("applied", "applied", "rejected", "rejected", "duplicate")
    ]
    assert told[1].endswith("revision 2")
    assert "revision_conflict" in told[2]
    assert "run_unknown" in told[3]
    assert summary == "sent 5 commands to 2 runs: 2 applied, 2 rejected, 1 duplicates"


def test_strict_fails_on_a_rejection(shared: RunningDaemon) -> None:
    lines = line("strict", "run.snapshot", {"state": {}})
    ran = statewriter("send", "-", "--wait", "--strict", data=shared.data, stdin=lines)
    assert ran.code == Refused.exit_code
    assert "1 command rejected" in ran.err


def test_lines_that_are_no_commands_are_named_and_passed_over(shared: RunningDaemon) -> None:
    lines = (
        created("lines")
        + "nonsense\n"
        + "[1, 2]\n"
        + '{"kind": "run.create", "body": {}}\n'
        + '{"run": 5}\n'
        + "\n"
        + line("lines", "run.annotate", {"title": "kept"})
        + '{"run": "lines", "kind": "run.ann'
    )
    ran = statewriter("send", "-", "--wait", data=shared.data, stdin=lines)
    assert ran.code == LINES_SKIPPED
    skipped = [each.split(":")[0] for each in ran.err.splitlines()]
    assert skipped == ["line 2", "line 3", "line 4", "line 5", "line 8"]
    assert "torn" in ran.err.splitlines()[-1]
    assert "sent 2 commands to 1 run: 2 applied" in ran.out


BODIES = {
    "wide": ('{"state": {"n": 123456789012345678901234567890}}', "number_not_exact"),
    "nan": ('{"state": {"n": NaN}}', "number_not_exact"),
    "infinite": ('{"state": {"n": 1e400}}', "number_not_exact"),
    "surrogate": ('{"state": {"s": "\\ud83d"}}', "text_not_exact"),
    "deep": ('{"state": ' + '{"a":' * 200 + "1" + "}" * 200 + "}", "body_too_deep"),
    "deeper": ("[" * 5_000 + "]" * 5_000, "body_too_deep"),
    "array": ("[]", "body_not_json"),
    "text": ('"text"', "body_not_json"),
    "unknown": ('{"oops": 1}', "field_unknown"),
}


def test_a_body_reaches_the_writer_as_it_stands(shared: RunningDaemon) -> None:
    """Also where reading and writing it again would change what it says."""
    lines = "".join(
        f'{{"run": "body-{name}", "kind": "run.create", "body": {body}}}\n'
        for name, (body, _) in BODIES.items()
    )
    ran = statewriter("send", "-", "--wait", "--json", data=shared.data, stdin=lines).ok()
    told = {each["run"]: each.get("reason") for each in ran.lines()[:-1]}
    assert told == {f"body-{name}": reason for name, (_, reason) in BODIES.items()}


MEMBERS = {
    "seq-text": ('"seq": "1"', "field_invalid", "seq"),
    "seq-true": ('"seq": true', "field_invalid", "seq"),
    "seq-float": ('"seq": 1.0', "field_invalid", "seq"),
    "seq-wide": ('"seq": 9007199254740992', "field_invalid", "seq"),
    "producer": ('"producer": ["p"]', "field_invalid", "producer"),
    "kind": ('"kind": 1', "kind_unknown", ""),
    "version": ('"v": 0', "version_invalid", ""),
    "extra": ('"colour": "red"', "field_unknown", "colour"),
    "auth": ('"auth": {"owner_type": "host"}', "field_missing", "auth.owner_id"),
}


def test_a_member_of_a_wrong_type_is_the_writers_to_judge(shared: RunningDaemon) -> None:
    lines = "".join(
        # Of repeated members the last one holds.
        f'{{"run": "member-{name}", "kind": "run.create", "body": {{}}, {member}}}\n'
        for name, (member, _, _) in MEMBERS.items()
    )
    ran = statewriter("send", "-", "--wait", "--json", data=shared.data, stdin=lines).ok()
    told = {each["run"]: (each.get("reason"), each.get("detail")) for each in ran.lines()[:-1]}
    assert told == {
        f"member-{name}": (reason, detail) for name, (_, reason, detail) in MEMBERS.items()
    }


def test_raw_fields_travel_byte_for_byte(shared: RunningDaemon) -> None:
    fields = {"v": "1", "kind": "run.create", "producer": "p", "seq": "1", "body": {"hex": "ff7b"}}
    sent = json.dumps({"run": "raw", "fields": fields})
    ran = statewriter("send", "-", "--wait", "--json", data=shared.data, stdin=sent).ok()
    assert ran.lines()[0]["reason"] == "body_not_utf8"
    listed = statewriter("rejections", "--run", "raw", "--json", data=shared.data).ok().json()
    one = statewriter("rejections", listed["rejections"][0]["id"], "--json", data=shared.data)
    assert one.ok().json()["fields"] == fields


def test_what_check_finds_is_passed_over_and_leaves_no_gap(shared: RunningDaemon) -> None:
    lines = (
        created("checked")
        + line("checked", "run.snapshot", {"state": 1})
        + line("checked", "run.snapshot", {"state": {"n": 1}})
    )
    ran = statewriter("send", "-", "--wait", "--check", data=shared.data, stdin=lines)
    assert ran.code == LINES_SKIPPED
    assert "line 2: skipped: field_invalid" in ran.err
    shown = statewriter("show", "checked", "--json", data=shared.data).ok().json()
    assert [each["gaps"] for each in shown["producers"]] == [[]]


def test_a_named_producer_goes_on_where_it_stopped(shared: RunningDaemon) -> None:
    first = statewriter(
        "send", "-", "--wait", "--json", data=shared.data,
        stdin=line("named", "run.create", {}, producer="mine"),
    )  # fmt: skip
    assert first.ok().lines()[0]["seq"] == 1
    lines = line("named", "run.annotate", {"title": "a"}, producer="mine")
    lines += line("named", "run.annotate", {"title": "b"}, producer="mine")
    again = statewriter("send", "-", "--wait", "--json", data=shared.data, stdin=lines).ok()
    assert [each["seq"] for each in again.lines()[:2]] == [2, 3]
    assert again.lines()[-1]["summary"]["applied"] == 2


def test_a_named_producer_counts_what_nobody_has_applied_yet(data: Path) -> None:
    sent = line("waiting", "run.create", {}, producer="mine")
    for expected in (1, 2):
        ran = statewriter("send", "-", "--json", data=data, stdin=sent).ok()
        assert ran.lines()[0]["seq"] == expected


def test_what_was_sent_without_a_daemon_is_applied_by_the_next(data: Path) -> None:
    ran = statewriter("send", "-", data=data, stdin=created("later", n=1)).ok()
    assert "sent 1 command to 1 run" in ran.out
    assert "no daemon is running" in ran.err
    assert not list(data.glob("p*.sqlite"))
    second = line("later", "run.snapshot", {"state": {"n": 2}})
    statewriter("send", "-", "--wait", data=data, stdin=second).ok()
    shown = statewriter("show", "later", "--json", data=data).ok().json()
    assert shown["state"] == {"n": 2}
    assert shown["cursor"]["applied"] == 2


def test_a_pipe_is_sent_while_it_is_still_open(shared: RunningDaemon) -> None:
    process = subprocess.Popen(
        [*PROGRAM, "send", "-", "--wait", "--json", "--data", str(shared.data)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
        cwd=TOP,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(created("piped").encode())
        process.stdin.flush()
        told = json.loads(process.stdout.readline())
        assert told["outcome"] == "applied"
        process.stdin.close()
        assert json.loads(process.stdout.readline())["summary"]["commands"] == 1
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.stdout.close()
        process.wait()


def test_a_run_that_ended_lost_its_stream_and_is_settled_all_the_same(
    data: Path,
) -> None:
    ended = {"state": {"status": "completed"}}
    lines = created("ended") + line("ended", "run.snapshot", ended, producer="p", seq=1)
    with running_daemon(data, env={"STATEWRITER_SWEEP_MS": "100"}):
        statewriter("send", "-", "--wait", data=data, stdin=lines).ok()
        with StateReader(data) as reader:
            poll(lambda: reader.settled(["ended"])["ended"][0] == 2, message="the stream to go")
        again = line("ended", "run.snapshot", ended, producer="p", seq=1)
        ran = statewriter("send", "-", "--wait", data=data, stdin=again).ok()
        assert "1 duplicates" in ran.out


def test_a_quarantined_run_is_told_at_once_and_others_go_on(data: Path) -> None:
    newer = {"v": "9", "kind": "run.create", "producer": "p", "seq": "1", "body": "{}"}
    lines = json.dumps({"run": "newer", "fields": newer}) + "\n" + created("other")
    ran = statewriter("send", "-", "--wait", "--json", data=data, stdin=lines)
    assert ran.code == Unsettled.exit_code
    told = ran.lines()
    assert [each["outcome"] for each in told[:2]] == ["held", "applied"]
    assert told[-1]["summary"]["unsettled"] == 1
    assert json.loads(ran.err.splitlines()[-1])["exit_code"] == Unsettled.exit_code


def test_what_nobody_settles_in_time_is_pending(shared: RunningDaemon) -> None:
    """Another server than the daemon's: nobody reads there."""
    with real_server() as server:
        ran = statewriter(
            "send", "-", "--wait", "--timeout", "0.5", "--redis", server.url,
            data=shared.data, stdin=created("nobody"),
        )  # fmt: skip
    assert ran.code == Unsettled.exit_code
    assert ran.out.startswith("pending")
