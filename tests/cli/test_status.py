"""`status`: what it says, and the codes of `--check`."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import redis

from producers.contract.keys import Keys, partition_of
from tests.support.console import RunningDaemon, running_daemon, statewriter
from tests.support.servers import real_server
from tests.support.wait import poll
from writer.cli.exits import (
    CHECK_NO_DAEMON,
    CHECK_PARTITION_WAITS,
    CHECK_QUARANTINE,
    NotFound,
)
from writer.embedded import start

pytestmark = pytest.mark.server

CREATE = '{"run": "%s", "kind": "run.create", "body": {}}\n'


def status(data: Path, *arguments: str) -> Any:
    """What `status --json` says."""
    return statewriter("status", "--json", *arguments, data=data).ok().json()


def check(data: Path) -> int:
    """The code of `status --check`."""
    return statewriter("status", "--check", data=data).code


def backlog(data: Path) -> Any:
    """What `status` says that waits. It looks for the folder's server for a second only."""
    return poll(lambda: status(data)["redis"]["backlog"], message="the server to be found")


def test_a_healthy_folder(shared: RunningDaemon) -> None:
    statewriter("send", "-", "--wait", data=shared.data, stdin=CREATE % "healthy").ok()
    # A daemon that got no processor for some seconds is silent in between.
    poll(lambda: check(shared.data) == 0, message="the check to be content")
    found = status(shared.data)
    assert found["ok"] is True
    assert found["daemon"]["pid"] == shared.process.pid
    assert [row["file"] for row in found["partitions"]] == ["p00.sqlite", "p01.sqlite"]
    assert {name: each["messages"] for name, each in found["redis"]["backlog"].items()} == {
        "0": 0,
        "1": 0,
    }
    shown = statewriter("status", data=shared.data).ok().out
    assert f"pid {shared.process.pid}" in shown
    assert "unknown" not in shown


def test_no_folder_and_no_daemon(data: Path) -> None:
    nowhere = statewriter("status", "--check", data=data)
    assert nowhere.code == NotFound.exit_code
    assert "hint: " in nowhere.err
    statewriter("send", "-", "--wait", data=data, stdin=CREATE % "rests").ok()
    assert check(data) == CHECK_NO_DAEMON
    assert statewriter("status", data=data).code == 0
    redis_state = status(data)["redis"]
    assert (redis_state["reachable"], redis_state["backlog"]) == (False, None)
    assert redis_state["cause"] == "the data folder's Redis server does not run"
    assert "unknown" in statewriter("status", data=data).out


def test_a_quarantined_run_fails_the_check_and_is_named(data: Path) -> None:
    newer = {"v": "9", "kind": "run.create", "producer": "p", "seq": "1", "body": "{}"}
    lines = json.dumps({"run": "newer", "fields": newer}) + "\n" + CREATE % "other"
    with running_daemon(data):
        statewriter("send", "-", "--wait", data=data, stdin=lines)
        ran = statewriter("status", "--check", data=data)
        assert ran.code == CHECK_QUARANTINE
        assert "quarantined: run newer at message" in ran.out
        assert [each["run_id"] for each in status(data)["quarantined"]] == ["newer"]
        shown = statewriter("show", "newer", data=data).ok().out
        assert "version 9" in shown


def test_redis_that_is_down_is_told_with_the_partitions_that_wait(data: Path) -> None:
    kept = {"appendonly": "yes"}
    with real_server(settings=kept) as server, running_daemon(data, "--redis", server.url):
        server.kill()
        poll(lambda: check(data) == CHECK_PARTITION_WAITS, message="the daemon to notice")
        found = status(data)
        assert found["redis"]["reachable"] is False
        assert found["redis"]["backlog"] is None
        assert any("can not be reached" in each for each in found["problems"])
        assert "backlog  unknown" in statewriter("status", data=data).out
        server.start()
        poll(lambda: check(data) == 0, message="the daemon to go on")


def test_gaps_are_named_and_fail_no_check(shared: RunningDaemon) -> None:
    lines = CREATE % "gaps" + json.dumps(
        {"run": "gaps", "kind": "run.annotate", "body": {"title": "x"}, "producer": "p", "seq": 4}
    )
    statewriter("send", "-", "--wait", data=shared.data, stdin=lines).ok()
    poll(lambda: check(shared.data) == 0, message="the check to be content")
    assert {"run_id": "gaps", "producer": "p", "first_seq": 1, "last_seq": 3} in status(
        shared.data
    )["gaps"]
    shown = statewriter("status", data=shared.data).out
    assert "gap: run gaps misses 1 to 3 of producer p" in shown
    assert "1 to 3" in statewriter("show", "gaps", data=shared.data).ok().out


def test_the_backlog_is_counted_from_our_own_cursors(data: Path) -> None:
    """Whatever others cut off a stream, or nobody has trimmed yet."""
    lines = "".join(CREATE % f"run-{number}" for number in range(3))
    with running_daemon(data) as daemon:
        statewriter("send", "-", "--wait", data=data, stdin=lines).ok()
        daemon.stop(signal.SIGKILL)
    with start(data) as server, redis.Redis.from_url(server.url) as client:
        statewriter("send", "-", data=data, stdin=lines + lines).ok()
        found = backlog(data)
        assert sum(each["messages"] for each in found.values()) == 6
        assert sum(each["streams"] for each in found.values()) == 3
        run = "run-1"
        stream = Keys().run(partition_of(run, 2), run)
        client.xtrim(stream, maxlen=1, approximate=False)
        found = backlog(data)
        assert sum(each["messages"] for each in found.values()) == 5


def test_a_clock_that_leapt_is_told(shared: RunningDaemon) -> None:
    run = "leapt"
    found = status(shared.data)
    with redis.Redis.from_url(found["redis"]["url"]) as client:
        seconds = client.time()[0]
        stream = Keys().run(partition_of(run, 2), run)
        client.xadd(stream, {"v": "1"}, id=f"{(seconds + 3600) * 1000}-1")
    ahead = {
        name: leap
        for each in status(shared.data)["redis"]["backlog"].values()
        for name, leap in each["ahead"].items()
    }
    assert 3_500_000 < ahead[run] <= 3_600_000
    assert f"clock: run {run} has messages" in statewriter("status", data=shared.data).out
