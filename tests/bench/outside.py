"""Processes and files looked at from outside, and the environment that processes are given."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from writer.store.partition import partition_path


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
