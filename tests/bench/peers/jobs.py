"""A queue's worker whose jobs each insert a row; a program of its own, as workers are.

    python -m tests.bench.peers.jobs rq|huey FILE COUNT URL

Enqueues all jobs first, then starts the worker, and prints the seconds from there until the last
row is committed. RQ: one SimpleWorker (no fork for each job: its fastest) in burst mode. huey:
SqliteHuey as it is (WAL, synchronous FULL) beside the rows' file, with one worker thread.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from time import perf_counter, sleep

from tests.support.workload import text

ROW_CHARS = 1_000
TEXTS = 50
LOOK_S = 0.002


def prepare(file: str) -> None:
    """An empty table, in WAL mode."""
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE entries (id INTEGER PRIMARY KEY, entry TEXT)")
    connection.close()


@cache
def opened(file: str) -> sqlite3.Connection:
    """The worker's connection, kept open: synchronous FULL, which is the default."""
    return sqlite3.connect(file, isolation_level=None, check_same_thread=False)


@cache
def row(number: int) -> str:
    """What a job writes; made before the clock starts."""
    return text(number, ROW_CHARS)


def warm() -> None:
    """Make all that jobs write."""
    for number in range(TEXTS):
        row(number)


def insert(file: str, number: int) -> None:
    """The job: one row of a kilobyte, committed."""
    opened(file).execute(
        "INSERT INTO entries (id, entry) VALUES (?, ?)", (number, row(number % TEXTS))
    )


def rows(reader: sqlite3.Connection) -> int:
    """How many are committed."""
    (found,) = reader.execute("SELECT max(id) FROM entries").fetchone()
    return found or 0


def run_rq(file: str, count: int, url: str) -> float:
    """Seconds of a SimpleWorker."""
    import redis
    from rq import Queue, SimpleWorker

    connection = redis.Redis.from_url(url)
    queue = Queue(connection=connection)
    for number in range(1, count + 1):
        queue.enqueue("tests.bench.peers.jobs.insert", file, number)
    worker = SimpleWorker([queue], connection=connection)
    # The worker finds the job under this name, and not in the program that runs.
    import_module("tests.bench.peers.jobs").warm()
    started = perf_counter()
    worker.work(burst=True, logging_level="ERROR")
    return perf_counter() - started


def run_huey(file: str, count: int, _: str) -> float:
    """Seconds of a consumer with one thread."""
    from huey import SqliteHuey

    queue = SqliteHuey("bench", filename=f"{file}.huey", results=False)
    job = queue.task()(insert)
    for number in range(1, count + 1):
        job(file, number)
    reader = sqlite3.connect(file, isolation_level=None)
    consumer = queue.create_consumer(workers=1, periodic=False, check_worker_health=False)
    started = perf_counter()
    consumer.start()
    while rows(reader) < count:
        sleep(LOOK_S)
    took = perf_counter() - started
    consumer.stop(graceful=True)
    return took


WORKERS: dict[str, Callable[[str, int, str], float]] = {"rq": run_rq, "huey": run_huey}


def main(kind: str, file: str, count: int, url: str) -> float:
    """Seconds from the worker's start until the last row."""
    prepare(file)
    warm()
    took = WORKERS[kind](file, count, url)
    assert rows(sqlite3.connect(file)) == count, "a job is missing"
    return took


if __name__ == "__main__":
    asked, path, jobs, server = sys.argv[1:]
    print(main(asked, path, int(jobs), server))
