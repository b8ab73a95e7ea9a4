"""`daemon`: starts, stops, and says what is wrong."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.console import RunningDaemon, running_daemon, statewriter
from tests.support.servers import KINDS, Kind, real_server
from tests.support.wait import poll
from writer.embedded import find, start
from writer.errors import Misconfigured, PartitionTaken
from writer.health import read_health

pytestmark = pytest.mark.server

STOP_S = 9.0
"""Less than the ten seconds that a reply may take: a stop does not wait for one."""
CREATE = '{"run": "%s", "kind": "run.create", "body": {}}\n'


def applied(data: Path, run: str, *arguments: str) -> None:
    """Send a run and see it applied."""
    ran = statewriter("send", "-", "--wait", *arguments, data=data, stdin=CREATE % run).ok()
    assert ran.out.startswith("applied"), ran


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_and_fast(data: Path, how: signal.Signals) -> None:
    with running_daemon(data) as daemon:
        applied(data, "before")
        daemon.process.send_signal(how)
        # As an impatient user or process manager does.
        daemon.process.send_signal(how)
        assert daemon.wait(STOP_S) == 0
        assert daemon.logged("stopped")[0]["signal"] == how.name
    assert find(data) is None
    assert read_health(data) is None
    # The server went with it, its data did not.
    assert list((data / "redis").rglob("*.aof"))
    assert statewriter("runs", "--json", data=data).ok().json()["runs"][0]["run_id"] == "before"


def test_signals_that_come_as_it_ends_leave_its_exit_code_alone(data: Path) -> None:
    with running_daemon(data) as daemon:
        daemon.process.send_signal(signal.SIGTERM)
        poll(lambda: daemon.logged("stopped"), message="it to say that it stopped")
        while daemon.process.poll() is None:
            daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.returncode == 0


def test_a_signal_ends_it_while_redis_does_not_answer(data: Path) -> None:
    with real_server() as server, running_daemon(data, "--redis", server.url) as daemon:
        server.pause()
        assert daemon.stop(timeout_s=STOP_S) == 0


def test_it_says_which_server_it_uses(data: Path) -> None:
    with running_daemon(data) as daemon:
        (said,) = daemon.logged("redis")
        assert "the data folder's own: " in said["server"]
        assert said["owned"] is True


def test_a_second_daemon_is_refused_and_the_first_goes_on(shared: RunningDaemon) -> None:
    second = statewriter("daemon", data=shared.data)
    assert second.code == PartitionTaken.exit_code == 22
    last = second.err.splitlines()[-2:]
    assert last[0] == f"error: p00 is already written by process {shared.process.pid}"
    assert last[1].startswith("hint: stop that daemon first")
    applied(shared.data, "after-second")


def test_the_number_of_partitions_is_fixed(shared: RunningDaemon) -> None:
    ran = statewriter("daemon", "--partitions", "5", data=shared.data)
    assert ran.code == Misconfigured.exit_code
    assert "2 partitions, not 5" in ran.err


def test_a_new_folder_gets_the_partitions_that_are_asked_for(data: Path) -> None:
    with running_daemon(data, "--partitions", "3"):
        assert len(list(data.glob("p*.sqlite"))) == 3


def test_partitions_may_be_shared_between_processes(data: Path) -> None:
    with (
        running_daemon(data, "--partition", "0") as first,
        running_daemon(data, "--partition", "1") as second,
    ):
        assert [line["partition"] for line in first.logged("taken")] == [0]
        assert [line["partition"] for line in second.logged("taken")] == [1]
        # b is in partition 1, c in partition 0.
        for run in ("b", "c"):
            applied(data, run)


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_of_ones_own(data: Path, kind: Kind) -> None:
    with real_server(kind) as server, running_daemon(data, "--redis", server.url):
        # The folder's daemon says which server it uses.
        applied(data, "elsewhere")
        assert not (data / "redis").exists()
    # Without it nobody can tell, and a new one would be the wrong one.
    ran = statewriter("send", "-", data=data, stdin=CREATE % "lost")
    assert ran.code == 2
    assert "--redis" in ran.err


def test_it_waits_for_a_server_that_is_not_up_yet(data: Path) -> None:
    with real_server() as server:
        server.stop()
        daemon = RunningDaemon(data, "--redis", server.url)
        try:
            poll(lambda: daemon.logged("waiting"), message="it to say that it waits")
            server.start()
            daemon.await_running()
        finally:
            assert daemon.stop() == 0


def test_an_embedded_server_that_its_owner_stopped_is_started_again(data: Path) -> None:
    """Another command had started it, and ends."""
    other = start(data)
    with running_daemon(data) as daemon:
        assert daemon.logged("redis")[0]["owned"] is False
        other.stop()
        # A server that is late with an answer is looked for anew, too, and is not its own then.
        poll(lambda: daemon.logged("redis")[-1]["owned"], message="the server to be revived")
        daemon.await_running()
        applied(data, "revived")


def test_settings_come_from_environment_and_file(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f'data = "{data}"\n')
    env = {"STATEWRITER_CONFIG": str(file), "STATEWRITER_PARTITIONS": "1"}
    statewriter("send", "-", "--wait", env=env, stdin=CREATE % "configured").ok()
    assert [path.name for path in data.glob("p*.sqlite")] == ["p00.sqlite"]


def test_an_embedded_server_that_was_killed_is_started_again(data: Path) -> None:
    with running_daemon(data) as daemon:
        applied(data, "before-the-kill")
        endpoint = poll(lambda: find(data), message="the server to answer")
        assert endpoint is not None
        os.kill(endpoint.pid, signal.SIGKILL)
        poll(lambda: len(daemon.logged("redis")) == 2, 120, "the server to be revived")
        poll(lambda: find(data) is not None, message="the server to answer")
        daemon.await_running()
        applied(data, "after-the-kill")
