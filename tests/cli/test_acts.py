"""`annotate`, `interrupt`, `reset`, `delete`: what a person does to a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from producers.contract.envelope import token_sha256
from tests.support.console import RunningDaemon, statewriter
from writer.cli.exits import NotFound, Refused
from writer.errors import Usage
from writer.store.reader import StateReader

pytestmark = pytest.mark.server


def create(data: Path, run: str, *more: tuple[str, dict[str, object]]) -> None:
    """A run with further commands."""
    commands = [("run.create", {"state": {"status": "running"}}), *more]
    lines = [json.dumps({"run": run, "kind": kind, "body": body}) for kind, body in commands]
    statewriter("send", "-", "--wait", "--strict", data=data, stdin="\n".join(lines)).ok()


def claim(token: str) -> tuple[str, dict[str, object]]:
    """A claim of an hour."""
    body = {"owner_type": "host", "owner_id": "worker-7", "lease_ms": 3_600_000}
    return "lease.claim", {**body, "token_sha256": token_sha256(token)}


def test_annotate(shared: RunningDaemon) -> None:
    create(shared.data, "annotated")

    def annotate(*arguments: str) -> str:
        return statewriter("annotate", "annotated", *arguments, data=shared.data).ok().out

    told = annotate("--title", "Nightly", "--tag", "team=core", "--tag", "pr=1")
    assert told == "run.annotate applied to annotated, revision 2\n"
    assert "changed nothing" in annotate("--title", "Nightly")
    annotate("--tag", "pr=", "--test-case-status", "succeeded")
    with StateReader(shared.data) as reader:
        run = reader.run("annotated")
    assert run is not None
    assert (run["title"], run["tags"], run["test_case_status"]) == (
        *("Nightly", {"team": "core"}, "succeeded"),
    )
    annotate("--title", "", "--tag", "team=")
    with StateReader(shared.data) as reader:
        run = reader.run("annotated")
    assert run is not None
    assert (run["title"], run["tags"]) == (None, None)


def test_interrupt_and_reset(shared: RunningDaemon) -> None:
    create(shared.data, "stopped")
    ran = statewriter(
        "interrupt", "stopped", "--reason", "host lost", "--json", data=shared.data
    ).ok()
    assert (ran.json()["outcome"], ran.json()["revision"]) == ("applied", 2)
    with StateReader(shared.data) as reader:
        assert reader.state("stopped")["error"] == "host lost"  # type: ignore[index]
    again = statewriter("interrupt", "stopped", data=shared.data)
    assert again.code == Refused.exit_code
    assert "run_terminal" in again.err
    statewriter("reset", "stopped", data=shared.data).ok()
    assert statewriter("reset", "stopped", data=shared.data).code == Refused.exit_code


def test_a_held_run_wants_the_holders_authority(shared: RunningDaemon) -> None:
    create(shared.data, "held", claim("a secret"))
    without = statewriter("interrupt", "held", data=shared.data)
    assert without.code == Refused.exit_code
    assert "lease_missing" in without.err
    assert "--token-env" in without.err
    authority = ("--owner-id", "worker-7", "--token-env", "TOKEN")
    wrong = statewriter("interrupt", "held", *authority, data=shared.data, env={"TOKEN": "a guess"})
    assert wrong.code == Refused.exit_code
    assert "lease_token_changed" in wrong.err
    right = statewriter(
        "interrupt", "held", *authority, data=shared.data, env={"TOKEN": "a secret"}
    )
    assert right.ok()
    absent = statewriter("interrupt", "held", *authority, data=shared.data)
    assert absent.code == Usage.exit_code
    for ran in (without, wrong, right, absent):
        assert "a secret" not in ran.out + ran.err


def test_delete_asks_first(shared: RunningDaemon) -> None:
    create(shared.data, "deleted")
    asked = statewriter("delete", "deleted", data=shared.data)
    assert asked.code == Usage.exit_code
    assert "--yes" in asked.err
    statewriter("delete", "deleted", "--yes", "--reason", "a test", data=shared.data).ok()
    shown = statewriter("show", "deleted", "--json", data=shared.data).ok().json()
    assert shown["deleted"]["reason"] == "a test"
    again = statewriter("delete", "deleted", "--yes", data=shared.data).ok()
    assert "changed nothing" in again.out
    later = statewriter("annotate", "deleted", "--title", "x", data=shared.data)
    assert later.code == Refused.exit_code
    assert "run_deleted" in later.err


@pytest.mark.parametrize("act", [("annotate", "--title", "x"), ("interrupt",), ("reset",)])
def test_a_run_that_is_not_there(shared: RunningDaemon, act: tuple[str, ...]) -> None:
    name, *more = act
    ran = statewriter(name, "nowhere", *more, data=shared.data)
    assert ran.code == NotFound.exit_code
    assert "there is no run nowhere" in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--tag", "no-value"),
        ("--test-case-status", "splendid"),
        ("--title", "x" * 2_000),
    ],
)
def test_an_annotation_that_can_not_be(shared: RunningDaemon, arguments: tuple[str, ...]) -> None:
    create(shared.data, "plain")
    ran = statewriter("annotate", "plain", *arguments, data=shared.data)
    assert ran.code == Usage.exit_code
    assert ran.err.startswith("error: ")


def test_without_a_daemon_it_waits_in_redis(data: Path) -> None:
    create(data, "later")
    ran = statewriter("annotate", "later", "--title", "x", data=data).ok()
    assert "no daemon is running" in ran.out
    sent = statewriter("annotate", "later", "--tag", "a=b", "--json", data=data).ok()
    assert sent.json()["outcome"] == "sent"
    line = json.dumps({"run": "other", "kind": "run.create", "body": {}})
    statewriter("send", "-", "--wait", data=data, stdin=line).ok()
    with StateReader(data) as reader:
        run = reader.run("later")
    assert run is not None
    assert (run["title"], run["tags"]) == ("x", {"a": "b"})
