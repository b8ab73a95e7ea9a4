"""Cases that went wrong elsewhere and need real processes; `docs/cases.md` lists all of them."""

# ruff: noqa: N802 - a case is named after its mark
from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import apsw
import pytest

from tests.support import checks
from tests.support.console import running_daemon, statewriter
from tests.support.scene import Scene, scene
from tests.support.servers import real_server
from tests.support.traffic import Traffic, names
from tests.support.wait import poll
from writer.store.database import BUSY_MS
from writer.store.partition import partition_path
from writer.store.reader import StateReader
from writer.streams.link import BLOCK_MS_MAX, TIMEOUT_S

MIB = 1024 * 1024


@pytest.mark.slow
def test_O1_two_processes_share_the_partitions_and_no_run(tmp_path: Path) -> None:
    """Each run is written by one of them alone, in the order of its sequences."""
    data, runs = tmp_path / "data", names(20)
    with (
        real_server() as server,
        server.client() as client,
        running_daemon(data, "--redis", server.url, "--partitions", "2", "--partition", "0"),
        running_daemon(data, "--redis", server.url, "--partition", "1"),
    ):
        traffic = Traffic(runs, partitions=2)
        for _ in range(20):
            traffic.send(client, 100)
        checks.drained(client, data, traffic)
    checks.accounted(data, traffic)
    checks.check_all(data)
    sequence = """
        SELECT run_id, producer_seq FROM events JOIN cursors USING (run_key) ORDER BY event_seq
    """
    homes = [
        dict.fromkeys(run for run, _ in checks.rows_of(partition_path(data, partition), sequence))
        for partition in (0, 1)
    ]
    assert set(homes[0]) | set(homes[1]) == set(runs)
    assert not set(homes[0]) & set(homes[1])
    for run in runs:
        found = [seq for name, seq in checks.rows(data, sequence) if name == run]
        assert found == list(range(1, 101))


def test_O8_streams_are_evicted(tmp_path: Path) -> None:
    """A Redis that deletes what it likes, without an error: what is lost is told."""
    settings = {"maxmemory": "4mb", "maxmemory-policy": "allkeys-lru"}
    with scene(tmp_path, server=settings, body_bytes=20_000) as on:
        on.start()
        on.opens()
        on.stops()
        # Nothing is applied meanwhile, and far more is sent than there is room for.
        for _ in range(30):
            on.send(20)
        assert on.client.info("stats")["evicted_keys"] > 0
        on.client.config_set("maxmemory", 0)
        on.start()
        on.send(20)
        on.drained()
        assert on.all_is_well(may_be_lost=True) > 0
        on.was_quiet()


@pytest.mark.slow
@pytest.mark.parametrize("count", [10_000, pytest.param(100_000, marks=pytest.mark.soak)])
def test_O11_redis_forgets_what_is_settled(on: Scene, count: int) -> None:
    before = on.client.info("memory")["used_memory"]
    for _ in range(count // 500):
        on.send(500)
    on.drained()
    assert checks.waiting(on.client) == 0
    assert on.client.info("memory")["used_memory"] - before < 2 * MIB
    on.all_is_well()


@contextmanager
def commits_all_the_time(path: Path) -> Iterator[list[float]]:
    """Another process' program that writes into the file: for how long each time, in seconds."""
    ended, commits = Event(), list[float]()

    def commit() -> None:
        connection = apsw.Connection(str(path))
        connection.set_busy_timeout(60_000)
        while not ended.wait(0.002):
            connection.execute("BEGIN IMMEDIATE")
            began = time.monotonic()
            connection.execute("UPDATE file SET partition = partition")
            connection.execute("COMMIT")
            commits.append(time.monotonic() - began)
        connection.close()

    thread = Thread(target=commit)
    thread.start()
    try:
        yield commits
    finally:
        ended.set()
        thread.join()


def test_O14_another_program_commits_between_our_reads_and_writes(on: Scene) -> None:
    with commits_all_the_time(on.data / "p00.sqlite") as commits:
        for _ in range(20):
            on.send(100)
        on.drained()
        poll(lambda: len(commits) > 20, message="the other one to commit")
    # It waits for a lock as long as is set, and no disk may have kept the other one for that long.
    assert max(commits) * 1_000 > BUSY_MS / 2 or not on.running.said("waiting")
    assert checks.rows(on.data, "SELECT count(*) FROM rejections") == [(0,)]
    on.all_is_well()


@pytest.mark.slow
def test_O24_the_backlog_is_right_after_deletes_and_trims(on: Scene) -> None:
    def backlog() -> int:
        ran = statewriter("status", "--json", "--redis", on.url, data=on.data).ok()
        waiting: int = ran.json()["redis"]["backlog"]["0"]["messages"]
        return waiting

    assert backlog() == 0
    on.stops()
    on.send(200)
    assert backlog() == 200
    stream = on.traffic.keys.run(0, on.traffic.runs[0])
    on.client.xdel(stream, on.client.xrange(stream)[4][0])
    assert backlog() == 199
    on.client.xtrim(stream, maxlen=3, approximate=False)
    assert backlog() == 193
    on.start()
    poll(lambda: backlog() == 0, message="all to be applied")


def test_O25_no_wait_is_longer_than_a_reply_may_take(on: Scene) -> None:
    """Else a client that gives up too early looks alive, and does nothing."""
    assert BLOCK_MS_MAX * 4 < TIMEOUT_S * 1000
    time.sleep(6)
    on.send(20)
    # Sooner than a sweep would find it.
    on.drained(30.0)
    assert not on.running.said("waiting")


def test_O27_no_filter_reaches_the_sql(on: Scene) -> None:
    with StateReader(on.data) as reader:
        for word in ("'", "x'); DROP TABLE runs; --", '"', "%", "\0", "../../x"):
            assert reader.list_runs(status=word).runs == []
            assert reader.list_runs(workflow=word).runs == []
            assert reader.run(word) is None
            assert reader.rejections(reason=word).rejections == []
        assert len(reader.list_runs().runs) == len(on.traffic.runs)


def test_O28_our_sqlite_has_no_known_corruption_bug() -> None:
    """Of 3.7.0 to 3.51.2 two processes that checkpoint at once may damage a file."""
    version = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    assert version >= (3, 51, 3)
