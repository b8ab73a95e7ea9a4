"""Redis is full, a replica, loading, or comes back without the end of its append-only file."""

from __future__ import annotations

import random
import signal
import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from tests.support import checks
from tests.support.proxy import Proxy, proxy
from tests.support.scene import scene
from tests.support.servers import KINDS, Kind, real_server
from tests.support.wait import poll

FULL = {"maxmemory": "6mb", "maxmemory-policy": "noeviction"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_redis_is_emptied_by_the_next_writer(tmp_path: Path, kind: Kind) -> None:
    """It can take the partition, read, and trim, though nobody can write."""
    with scene(tmp_path, kind=kind, server=FULL, body_bytes=4_000) as on:
        on.start()
        on.opens()
        on.running.kill()
        on.fills_redis()
        on.client.config_set("maxmemory", "4mb")
        on.client.script_flush()
        on.start()
        poll(lambda: checks.waiting(on.client) == 0, 240, "the backlog to drain")
        on.client.config_set("maxmemory", "6mb")
        on.send(100)
        on.was_quiet()
        # Of the last pipeline some were refused by Redis: gaps, and nothing else.
        on.all_is_well()


def test_a_full_redis_under_a_running_daemon(tmp_path: Path) -> None:
    with scene(tmp_path, server=FULL, body_bytes=4_000) as on:
        on.start()
        on.opens()
        on.running.signal(19)
        on.fills_redis()
        on.running.signal(18)
        poll(lambda: checks.waiting(on.client) == 0, 240, "the backlog to drain")
        on.send(100)
        on.all_is_well()


@pytest.mark.parametrize("kind", KINDS)
def test_redis_becomes_a_replica_and_a_primary_again(tmp_path: Path, kind: Kind) -> None:
    with scene(tmp_path, kind=kind) as on:
        on.start()
        on.opens()
        for _ in range(2):
            on.send(100)
            on.client.replicaof("127.0.0.1", "1")
            with pytest.raises(redis.exceptions.ReadOnlyError):
                on.send(20)
            on.says("Redis is a replica")
            on.is_quiet()
            on.client.replicaof("NO", "ONE")
            on.is_well()
            on.send(100)
            on.drained()
        on.was_quiet()
        on.all_is_well()
        assert checks.rows(on.data, "SELECT count(*) FROM rejections") == [(0,)]


def follow(client: redis.Redis, primary: Proxy) -> None:
    """Make a server a replica, and wait until it has all that its primary has."""
    client.replicaof("127.0.0.1", port_of(primary))
    poll(
        lambda: client.info("replication").get("master_link_status") == "up", message="the replica"
    )


def port_of(listening: Proxy) -> str:
    """Where a proxy listens. A server's own port could be taken between choosing and using it."""
    return listening.url.rpartition(":")[2].partition("/")[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_failover_goes_back_to_what_the_replica_had(tmp_path: Path, kind: Kind) -> None:
    """Our server is made a replica of its own former one, which lacks the end, and then primary."""
    with (
        scene(tmp_path, kind=kind) as on,
        real_server(kind) as other,
        other.client() as replica,
        proxy(on.server.folder) as ours,
        proxy(other.folder) as theirs,
    ):
        on.start()
        on.opens()
        for settled in (True, False):
            # What is waiting when the replica is cut off comes back with it.
            on.running.signal(signal.SIGSTOP)
            on.send(60)
            follow(replica, ours)
            poll(lambda: on.client.wait(1, 1_000) == 1, message="the replica to have it")
            replica.replicaof("NO", "ONE")
            on.send(60)
            if settled:
                on.running.signal(signal.SIGCONT)
                on.drained()
            follow(on.client, theirs)
            on.client.replicaof("NO", "ONE")
            on.running.signal(signal.SIGCONT)
            on.is_well()
            on.send(60)
            on.drained()
        on.was_quiet()
        # Lost is what the replica did not have and the writer had not read either.
        assert on.all_is_well(may_be_lost=True) == 60
        assert checks.rows(on.data, "SELECT count(*) FROM rejections") == [(0,)]


@pytest.mark.slow
@pytest.mark.parametrize("cuts", [8, pytest.param(1_000, marks=pytest.mark.soak)])
def test_a_cut_append_only_file(tmp_path: Path, cuts: int) -> None:
    """As a power failure leaves it. What is lost is told exactly, or was applied before."""
    chance = random.Random(cuts)
    settings = {"appendonly": "yes", "appendfsync": "no", "aof-load-truncated": "yes"}
    with scene(tmp_path, server=settings) as on:
        on.start()
        on.opens()
        for _ in range(cuts):
            alive = chance.random() < 0.5
            if not alive:
                on.stops()
            on.send(chance.randrange(20, 60))
            on.server.kill()
            (tail,) = (on.server.folder / "appendonlydir").glob("*.incr.aof")
            with tail.open("r+b") as file:
                file.truncate(max(tail.stat().st_size - chance.randint(0, 4_000), 0))
            on.server.start()
            if not alive:
                on.start()
            on.send(len(on.traffic.runs))
            on.drained()
        on.is_well()
        lost = on.all_is_well(may_be_lost=True)
        print(f"lost {lost} of {on.traffic.total} in {cuts} cuts; all of them are told as gaps")


def answering(reply: bytes) -> socket.socket:
    """A server that is no Redis: whatever it is asked, it says this."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    connection.recv(1_000)
                    connection.sendall(reply)

    threading.Thread(target=serve, daemon=True).start()
    return listener


@pytest.mark.parametrize(
    "url, cause",
    [
        ("redis://127.0.0.1:1/0", "can not be reached"),
        ("unix:///nowhere/at/all", "can not be reached"),
        ("redis://no-such-host.invalid/0", "can not be reached"),
        ("redis://127.0.0.1:{http}/0", "redis: "),
        ("redis://127.0.0.1:{silent}/0", "can not be reached"),
        ("rediss://127.0.0.1:{http}/0", "can not be reached"),
        ("redis://user:pass-w0rd@127.0.0.1:{guarded}/0", "refuses the password"),
        ("redis://127.0.0.1:{guarded}/0", "refuses the password"),
        ("redis://reader:secret@127.0.0.1:{guarded}/0", "lacks a right"),
        ("redis://127.0.0.1:{guarded}/999", "redis: "),
    ],
)
def test_a_server_that_can_not_be_used_is_waited_for(tmp_path: Path, url: str, cause: str) -> None:
    """It says in one line why, uses no CPU meanwhile, and stops in peace."""
    with (
        answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as http,
        answering(b"") as silent,
        scene(tmp_path) as on,
        proxy(on.server.folder) as guarded,
    ):
        on.client.config_set("requirepass", "secret")
        on.client.auth("secret")
        on.client.acl_setuser(
            "reader", enabled=True, passwords=["+secret"], keys=["*"], commands=["+get"]
        )
        ports = {
            "http": http.getsockname()[1],
            "silent": silent.getsockname()[1],
            "guarded": port_of(guarded),
        }
        on.writer = on.started.writer(on.data, url.format(**ports), wait=False, retry_ms_max=500)
        poll(lambda: on.running.said("waiting"), message="the daemon to wait")
        assert cause in on.running.said("waiting")[0]["cause"]
        assert "pass-w0rd" not in on.running.tail()
        assert "secret" not in on.running.tail()
        on.is_quiet()
        on.stops()
