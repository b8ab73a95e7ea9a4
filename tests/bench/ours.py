"""Our side of a comparison: a daemon in a process of its own, watched from outside.

A command counts once it is committed, which is seen in the file and not believed from a reply.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from tests.support.processes import Process, processes, wait_taken
from tests.support.servers import RealServer
from writer.store.partition import partition_path

LOOK_S = 0.002
"""Between two looks at the file: so much too late, at most, is a commit seen."""


@contextmanager
def environment(changes: dict[str, str]) -> Iterator[None]:
    """What is started within has these variables, too."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def writing(data: Path, server: RealServer, **settings: Any) -> Iterator[Process]:
    """A daemon over the folder: one partition, synchronous FULL, archive on, as shipped.

    It has taken its partition when the block begins.
    """
    given = {"data": str(data), "redis": server.url, "partitions": 1, **settings}
    # Not forked but started, so that it has the environment of now.
    with processes(data.parent) as started:
        process = started.python("tests.support.daemon_main", json.dumps(given), log="writer.log")
        wait_taken(process)
        yield process


def await_settled(data: Path, count: int, timeout_s: float = 120.0) -> None:
    """Wait until so many messages are applied. Raises if one is refused, or after the time."""
    deadline = monotonic() + timeout_s
    with closing(reading(data)) as connection:
        while True:
            applied, refused = connection.execute(
                "SELECT coalesce(sum(applied), 0), coalesce(sum(rejected), 0) FROM cursors"
            ).fetchone()
            if refused:
                raise AssertionError(f"{refused} commands of a benchmark were refused")
            if applied >= count:
                return
            if monotonic() > deadline:
                raise AssertionError(f"{applied} of {count} commands applied in {timeout_s} s")
            sleep(LOOK_S)


def reading(data: Path) -> sqlite3.Connection:
    """A connection that reads the partition's file."""
    uri = f"{partition_path(data, 0).as_uri()}?mode=ro"
    return sqlite3.connect(uri, uri=True, isolation_level=None)


def stored_bytes(*paths: Path) -> int:
    """What SQLite files occupy once their logs are folded in."""
    total = 0
    for path in paths:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        total += path.stat().st_size
    return total


def processor_s(pid: int) -> float:
    """Processor time of a process so far; 0 if it has gone."""
    with suppress(OSError):
        parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0
