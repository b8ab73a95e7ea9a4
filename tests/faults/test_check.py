"""In each fault `status --check` says in a sentence what is wrong, and the daemon stays modest."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import apsw
import pytest

from tests.support.processes import immutable, resize_disk, small_disk
from tests.support.scene import Scene, scene
from tests.support.tracing import injected
from tests.support.wait import poll
from writer.cli import run as statewriter
from writer.streams.control import ask

NO_DAEMON, NOT_WRITTEN, QUARANTINED, REDIS_FULL, REDIS_LOSES = 30, 31, 32, 34, 35
KEPT = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}
UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


class Fault(NamedTuple):
    """What is done to a running daemon, and what a check must say of it."""

    strikes: Callable[[Scene], AbstractContextManager[None]]
    code: int
    says: str


@contextmanager
def redis_is_gone(on: Scene) -> Iterator[None]:
    on.server.kill()
    yield
    on.server.start()


@contextmanager
def redis_stands_still(on: Scene) -> Iterator[None]:
    on.server.pause()
    yield
    on.server.resume()


@contextmanager
def redis_is_a_replica(on: Scene) -> Iterator[None]:
    on.client.replicaof("127.0.0.1", "1")
    yield
    on.client.replicaof("NO", "ONE")


@contextmanager
def redis_can_not_save(on: Scene) -> Iterator[None]:
    """A full disk of its own, say: it refuses every write then (MISCONF)."""
    with immutable(on.server.folder):
        on.client.config_set("save", "1 1")
        on.client.set("a", "change")
        poll(lambda: on.client.info()["rdb_last_bgsave_status"] == "err", message="a failed save")
        yield
    on.client.config_set("save", "")


@contextmanager
def redis_is_full(on: Scene) -> Iterator[None]:
    """Of what others keep there, so that no trimming of ours helps."""
    for number in range(40):
        on.client.set(f"filler-{number}", b"x" * 100_000)
    on.client.config_set("maxmemory", "2mb")
    yield
    on.client.config_set("maxmemory", 0)


@contextmanager
def redis_keeps_nothing(on: Scene) -> Iterator[None]:
    on.client.config_set("appendonly", "no")
    yield
    on.client.config_set("appendonly", "yes")


@contextmanager
def redis_evicts(on: Scene) -> Iterator[None]:
    on.client.config_set("maxmemory-policy", "allkeys-lru")
    yield
    on.client.config_set("maxmemory-policy", "noeviction")


@contextmanager
def redis_is_gone_at_the_start(on: Scene) -> Iterator[None]:
    on.stops()
    on.server.kill()
    on.writer = on.started.writer(on.data, on.url, wait=False, retry_ms_max=500)
    yield
    on.server.start()


@contextmanager
def the_disk_is_full(on: Scene) -> Iterator[None]:
    """The scene's data folder lies on a small one."""
    disk = on.data.parent
    with (disk / "filler").open("wb") as filler:
        free = os.statvfs(disk)
        filler.write(b"x" * (free.f_bavail * free.f_frsize))
    on.send(400)
    yield
    resize_disk(disk, 200 << 20)


@contextmanager
def a_file_meets_its_limit(on: Scene) -> Iterator[None]:
    (segment,) = (on.data / "archive" / "p00").glob("*.open")
    most = (segment.stat().st_size, resource.RLIM_INFINITY)
    resource.prlimit(on.running.pid, resource.RLIMIT_FSIZE, most)
    on.send(400)
    yield
    resource.prlimit(on.running.pid, resource.RLIMIT_FSIZE, UNLIMITED)


@contextmanager
def the_disk_fails(on: Scene) -> Iterator[None]:
    with injected(on.running.pid, "fdatasync", "error=EIO", on.folder / "strace.log"):
        on.send(100)
        yield


@contextmanager
def another_holds_the_lock(on: Scene) -> Iterator[None]:
    with closing(apsw.Connection(str(on.data / "p00.sqlite"))) as foreign:
        foreign.set_busy_timeout(60_000)
        foreign.execute("BEGIN IMMEDIATE")
        on.send(100)
        yield
        foreign.execute("ROLLBACK")


@contextmanager
def the_file_is_read_only(on: Scene) -> Iterator[None]:
    on.stops()
    with immutable(on.data / "p00.sqlite"):
        on.writer = on.started.writer(on.data, on.url, wait=False, retry_ms_max=500)
        yield


@contextmanager
def the_archive_is_read_only(on: Scene) -> Iterator[None]:
    on.stops()
    with immutable(on.data / "archive" / "p00"):
        on.start()
        on.send(100)
        yield


@contextmanager
def a_run_is_quarantined(on: Scene) -> Iterator[None]:
    stream = on.traffic.keys.run(0, "newer")
    on.client.xadd(stream, {"v": "9", "kind": "run.create", "producer": "p", "seq": "1"})
    on.client.zadd(on.traffic.keys.ready(0), {"newer": 0})
    yield
    (message_id,) = (item[0].decode() for item in on.client.xrange(stream))
    ask(on.client, on.traffic.keys, 0, "skip", "newer", (1, message_id), "the test")


@contextmanager
def the_daemon_was_killed(on: Scene) -> Iterator[None]:
    on.dies()
    yield
    on.start()


@contextmanager
def the_daemon_is_stopped(on: Scene) -> Iterator[None]:
    on.running.signal(signal.SIGSTOP)
    yield
    on.running.signal(signal.SIGCONT)


@contextmanager
def only_a_stand_by_is_there(on: Scene) -> Iterator[None]:
    """The owner was a process of another machine, which we can not ask."""
    on.stops()
    owner = on.traffic.keys.owner(0)
    on.client.set(owner, "elsewhere:1:0123456789abcdef", px=600_000)
    on.writer = on.started.writer(on.data, on.url, wait=False, standby=True)
    yield
    on.client.delete(owner)


STANDS_STILL = Fault(redis_stands_still, NOT_WRITTEN, "waiting: redis: Redis does not answer in")
FAULTS = [
    # Each look waits for an answer as long as the daemon does.
    pytest.param(STANDS_STILL, marks=pytest.mark.soak),
    Fault(redis_is_gone, NOT_WRITTEN, "is waiting: redis: Redis can not be reached"),
    Fault(redis_is_a_replica, NOT_WRITTEN, "is waiting: redis: Redis is a replica"),
    Fault(redis_can_not_save, NOT_WRITTEN, "is waiting: redis: Redis answers with an error"),
    Fault(redis_is_full, REDIS_FULL, "Redis is full"),
    Fault(redis_keeps_nothing, REDIS_LOSES, "Redis keeps no append-only file"),
    Fault(redis_evicts, REDIS_LOSES, "When Redis is full it deletes keys"),
    Fault(redis_is_gone_at_the_start, NOT_WRITTEN, "the daemon waits to begin: redis: Redis can"),
    Fault(the_disk_is_full, NOT_WRITTEN, "is waiting: "),
    Fault(a_file_meets_its_limit, NOT_WRITTEN, "is waiting: "),
    Fault(the_disk_fails, NOT_WRITTEN, "is waiting: "),
    Fault(another_holds_the_lock, NOT_WRITTEN, "another process holds the file's write lock"),
    Fault(the_file_is_read_only, NOT_WRITTEN, "the file may not be written"),
    Fault(the_archive_is_read_only, NOT_WRITTEN, "archive"),
    Fault(a_run_is_quarantined, QUARANTINED, "run newer is quarantined at message"),
    Fault(the_daemon_was_killed, NO_DAEMON, "no daemon runs"),
    Fault(the_daemon_is_stopped, NOT_WRITTEN, "it is stopped, or hangs"),
    Fault(only_a_stand_by_is_there, NOT_WRITTEN, "is left to a stand-by: partition 0 is written"),
]


@pytest.fixture
def on(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A daemon that runs well, on a small disk where one is asked for."""
    with scene(tmp_path, server=KEPT) as made:
        if request.node.callspec.params["fault"].strikes is the_disk_is_full:
            with small_disk(tmp_path, 4 << 20) as disk:
                made.data = disk / "data"
                made.start()
                made.opens()
                yield made
                # Before the disk goes.
                made.started.end()
        else:
            made.start()
            made.opens()
            yield made


class Said(NamedTuple):
    """How `status --check` ended, and the sentences about what is wrong."""

    code: int
    problems: list[str]


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda each: each.strikes.__name__)
def test_a_check_says_what_is_wrong(
    on: Scene, fault: Fault, capfd: pytest.CaptureFixture[str]
) -> None:
    def check() -> Said:
        capfd.readouterr()
        code = statewriter(["status", "--check", "--data", str(on.data), "--redis", on.url])
        lines = capfd.readouterr().out.splitlines()
        return Said(code, [line for line in lines if line.startswith("problem: ")])

    # A daemon that got no processor for some seconds is silent in between.
    poll(lambda: check() == (0, []), message="the check to be content")
    with fault.strikes(on):
        # In its first moments a fault may show otherwise: as Redis away from here, say.
        found = poll(lambda: said if fault.says in str(said := check()) else None, 120, fault.says)
        assert found.code == fault.code
        assert len(found.problems) == 1
        if fault.code != NO_DAEMON:
            on.is_quiet()
            assert check().code == fault.code
    poll(lambda: not check().code, message="the check to be content again")
    on.send(100)
    on.all_is_well()
