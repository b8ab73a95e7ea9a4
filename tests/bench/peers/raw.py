"""Limits of the machine: rows into SQLite, messages into Redis, syncs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

import apsw

from tests.bench.workload import Packed, load
from tests.support.servers import RealServer
from tests.support.world import START_MS
from writer.core.decide import RULES_VERSION
from writer.store.checkpoint import Checkpointer
from writer.store.database import open_writer
from writer.store.partition import PartitionFile, partition_path

PLAIN_BATCH = 500


class Statement(NamedTuple):
    """One SQL text with all rows that it was given in a row."""

    sql: str
    rows: list[tuple[Any, ...]]


Recorded = list[list[Statement]]
"""The statements of each transaction that wrote something."""


@contextmanager
def recording(file: PartitionFile) -> Iterator[Recorded]:
    """All that a file's connection writes meanwhile, by transaction."""
    recorded: Recorded = []

    def note(_: object, sql: str, values: Any) -> bool:
        verb = sql.lstrip()[:6].upper()
        if verb == "BEGIN ":
            recorded.append([])
        elif verb in ("INSERT", "UPDATE", "DELETE"):
            statements = recorded[-1]
            if not statements or statements[-1].sql != sql:
                statements.append(Statement(sql, []))
            statements[-1].rows.append(tuple(values or ()))
        return True

    connection = file._connection
    connection.exec_trace = note
    try:
        yield recorded
    finally:
        connection.exec_trace = None
        recorded[:] = [statements for statements in recorded if statements]


Timed = Callable[[str, Callable[[], Any]], None]


def untimed(sql: str, write: Callable[[], Any]) -> None:
    """Write."""
    write()


class Replayed(NamedTuple):
    """Seconds by the clock, and of the processor."""

    wall_s: float
    cpu_s: float


def replay(recorded: Recorded, folder: Path, timed: Timed = untimed) -> Replayed:
    """The same rows into the same tables in the same transactions, and nothing else.

    Checkpoints run beside it as in a daemon. `timed` makes each statement's calls.
    """
    path = partition_path(folder, 0)
    file = PartitionFile.open(path, partition=0, partitions=1, lineage="x", now=START_MS)
    file.take("bench", rules_version=RULES_VERSION, now=START_MS)
    connection = file._connection
    checkpointer = Checkpointer([path], 100)
    checkpointer.start()
    started, used = perf_counter(), process_time()
    for statements in recorded:
        connection.execute("BEGIN IMMEDIATE")
        for sql, rows in statements:
            timed(sql, partial(connection.executemany, sql, rows))
        timed("COMMIT", partial(connection.execute, "COMMIT"))
    took = Replayed(perf_counter() - started, process_time() - used)
    checkpointer.stop()
    file.close()
    return took


def plain_rows(folder: Path, count: int, synchronous: str = "FULL") -> float:
    """Rows of 1 KB per second into a table without an index, 500 in a transaction."""
    path = folder / "plain.sqlite"
    connection = open_writer(path, synchronous=synchronous)
    connection.execute("CREATE TABLE plain (id INTEGER PRIMARY KEY, value TEXT) STRICT")
    checkpointer = Checkpointer([path], 100)
    checkpointer.start()
    rows = [("x" * 1_000,)] * PLAIN_BATCH
    started = perf_counter()
    for _ in range(count // PLAIN_BATCH):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO plain (value) VALUES (?)", rows)
        connection.execute("COMMIT")
    took = perf_counter() - started
    checkpointer.stop()
    connection.close()
    return count / took


def pipelined_xadd(server: RealServer, messages: Sequence[Packed]) -> float:
    """Messages per second into their streams, 200 a pipeline, one client."""
    started = perf_counter()
    load(server, messages)
    return len(messages) / (perf_counter() - started)


def fdatasync(folder: Path, count: int) -> float:
    """Overwrites of 4 KB, each synced, per second: what a commit costs at least."""
    handle = os.open(folder / "synced", os.O_RDWR | os.O_CREAT)
    try:
        os.pwrite(handle, bytes(4_096 * 64), 0)
        os.fsync(handle)
        started = perf_counter()
        for number in range(count):
            os.pwrite(handle, bytes(4_096), 4_096 * (number % 64))
            os.fdatasync(handle)
        return count / (perf_counter() - started)
    finally:
        os.close(handle)


def rows_of(recorded: Recorded) -> int:
    """How many rows all transactions write."""
    return sum(len(each.rows) for statements in recorded for each in statements)


def sqlite_version() -> str:
    """Of the library that both sides use."""
    return apsw.sqlite_lib_version()
