"""A disk that is full, or that can not be written: nothing is lost, and it goes on by itself."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import apsw
import pytest

from tests.support import checks
from tests.support.processes import immutable, resize_disk, small_disk
from tests.support.scene import scene
from tests.support.tracing import injected, require_strace
from tests.support.wait import poll

MIB = 1024 * 1024


@pytest.mark.parametrize(
    "mib", [1, 3, *(pytest.param(size, marks=pytest.mark.soak) for size in range(4, 21))]
)
def test_a_full_disk(tmp_path: Path, mib: int) -> None:
    with small_disk(tmp_path, mib * MIB) as disk, scene(tmp_path) as on:
        on.data = disk / "data"
        on.start()
        on.sends_until_it_waits()
        on.says("disk is full", "No space left", "can not be read or written")
        on.is_quiet()
        checks.check_data(on.data)
        resize_disk(disk, 200 * MIB)
        on.is_well()
        on.all_is_well()


def test_a_disk_that_is_full_at_the_start(tmp_path: Path) -> None:
    with small_disk(tmp_path, MIB) as disk, scene(tmp_path) as on:
        on.data = disk / "data"
        on.data.mkdir()
        with (disk / "filler").open("wb") as filler:
            free = os.statvfs(disk)
            filler.write(b"x" * (free.f_bavail * free.f_frsize))
        on.writer = on.started.writer(on.data, on.url, wait=False, retry_ms_max=500)
        poll(lambda: on.running.said("waiting"), message="the daemon to wait")
        on.is_quiet()
        (disk / "filler").unlink()
        resize_disk(disk, 200 * MIB)
        on.is_well()
        on.send(200)
        on.all_is_well()


def test_a_file_size_limit(tmp_path: Path) -> None:
    """A quota as `ulimit -f` sets it; lifted while the daemon lives."""
    with scene(tmp_path) as on:
        on.start(file_bytes_max=1_500_000)
        on.sends_until_it_waits()
        on.says("can not be read or written", "File too large")
        on.is_quiet()
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(on.running.pid, resource.RLIMIT_FSIZE, unlimited)
        on.is_well()
        on.all_is_well()


@pytest.mark.parametrize(
    "call, error",
    [
        ("pwrite64", "EIO"),
        ("pwrite64", "ENOSPC"),
        ("fdatasync", "EIO"),
        ("fdatasync,fsync,rename", "EIO"),
    ],
)
def test_calls_that_fail_for_a_while(tmp_path: Path, call: str, error: str) -> None:
    require_strace()
    with scene(tmp_path) as on:
        on.start()
        on.opens()
        with injected(on.running.pid, call, f"error={error}", tmp_path / "strace.log"):
            on.send(400)
            on.says("disk", "archive")
            on.is_quiet()
        on.is_well()
        # And one that ends while it can not even tidy up.
        with injected(on.running.pid, call, f"error={error}", tmp_path / "strace.log"):
            on.stops()
        on.start()
        on.all_is_well()


def test_single_calls_that_fail(tmp_path: Path) -> None:
    require_strace()
    with scene(tmp_path) as on:
        on.start()
        on.opens()
        for number in range(6):
            call = ("pwrite64", "fdatasync", "pread64")[number % 3]
            fault = f"error=EIO:when={3 * number + 1}"
            with injected(on.running.pid, call, fault, tmp_path / "strace.log"):
                on.send(200)
                on.drained()
        on.all_is_well()


def test_another_process_holds_the_write_lock(tmp_path: Path) -> None:
    with scene(tmp_path) as on:
        on.start()
        on.opens()
        foreign = apsw.Connection(str(on.data / "p00.sqlite"))
        foreign.set_busy_timeout(60_000)
        foreign.execute("BEGIN IMMEDIATE")
        on.send(200)
        on.says("another process holds the file's write lock")
        on.is_quiet()
        foreign.execute("ROLLBACK")
        foreign.close()
        on.is_well()
        on.all_is_well()
        assert checks.rows(on.data, "SELECT count(*) FROM rejections") == [(0,)]


def test_a_reader_that_never_ends_its_transaction(tmp_path: Path) -> None:
    """The WAL grows meanwhile, and shrinks by itself once the reader has left."""
    with scene(tmp_path) as on:
        on.start()
        on.opens()
        reader = apsw.Connection(str(on.data / "p00.sqlite"), flags=apsw.SQLITE_OPEN_READONLY)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchall()
        wal = on.data / "p00.sqlite-wal"
        for _ in range(10):
            on.send(500)
            on.drained()
        grown = wal.stat().st_size
        assert grown > 2 * MIB
        reader.execute("COMMIT")
        reader.close()
        before = restarts_of(wal)

        def begins_anew() -> bool:
            on.send(20)
            on.drained()
            # A checkpoint is whole only if nothing is committed meanwhile.
            time.sleep(0.2)
            return restarts_of(wal) > before

        poll(begins_anew, message="the WAL to begin anew")
        for _ in range(5):
            on.send(500)
            on.drained()
        assert wal.stat().st_size < 2 * grown
        on.all_is_well()


def restarts_of(wal: Path) -> int:
    """How often it began anew: the checkpoint sequence number in its header."""
    with wal.open("rb") as file:
        return int.from_bytes(file.read(16)[12:], "big")


def test_a_file_that_becomes_read_only(tmp_path: Path) -> None:
    with scene(tmp_path) as on:
        on.start()
        on.opens()
        wal = on.data / "p00.sqlite-wal"
        with immutable(wal):
            on.send(200)
            on.says("disk", "may not be written", "can not be opened")
            on.is_quiet()
        on.is_well()
        on.all_is_well()


def test_a_file_that_is_read_only_at_the_start(tmp_path: Path) -> None:
    with scene(tmp_path) as on:
        on.start()
        on.opens()
        on.stops()
        on.send(200)
        with immutable(on.data / "p00.sqlite"):
            on.writer = on.started.writer(on.data, on.url, wait=False, retry_ms_max=500)
            on.says("may not be written")
            on.is_quiet()
        on.is_well()
        on.all_is_well()


def test_the_archive_can_not_be_written(tmp_path: Path) -> None:
    """What can not be archived is not applied either."""
    with scene(tmp_path) as on:
        on.start()
        on.opens()
        on.stops()
        folder = on.data / "archive" / "p00"
        with immutable(folder):
            on.start()
            on.send(100)
            on.says("archive")
            on.is_quiet()
            assert checks.settled(on.data) == on.traffic.total - 100
        on.is_well()
        on.all_is_well()
