"""Many processes that write at once; a program of its own, which forks them once all is imported.

    python -m tests.bench.peers.crowd FOLDER ORDERS

ORDERS are those of `Orders`, as JSON. A process leaves `N.json` in FOLDER: see `Done`. Times are of
the monotonic clock, which all processes of a machine share.

A direct writer does by itself, in a transaction of its own, what the writer does for a command:
read the run's head, append an event of 1 KB, note the command's id so that a second one would be
seen, move the head. WAL, a busy timeout of 5 s, BEGIN IMMEDIATE, statements prepared once.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from time import monotonic, process_time, sleep
from typing import Literal

from producers import Producer
from producers.handle import Sent
from tests.support.workload import entry

ENTRIES = 50
BUSY_S = 5
GRACE_S = 0.5
"""How long after the last arrival a process still works off what it is late with."""


@dataclass
class Orders:
    """What a crowd is to do."""

    way: Literal["direct", "producer"]
    """Write a file, or speak to Redis through a producer of ours."""
    target: str
    """The file, or the server's URL."""
    processes: int
    seconds: float
    rate: float | None = None
    """Commands a second, of all together, as Poisson arrivals. None: each as fast as it can."""
    each_max: int | None = None
    """No process says more than that."""
    synchronous: str = "FULL"
    begin_after_s: float = 3.0
    """All have been forked, and have said hello, by then."""
    seed: int = 1
    folder: str = ""
    begin: float = 0.0


@dataclass
class Done:
    """What one process did."""

    due: list[float] = field(default_factory=list)
    """When each command was to be said; without a rate, when it was."""
    done: list[float] = field(default_factory=list)
    """When its transaction was committed, or Redis' answer was there. Of the last `undone` ones:
    when the process gave up.
    """
    undone: int = 0
    busy: int = 0
    """How often SQLite stayed locked for the whole timeout; the command was tried again."""
    cpu_s: float = 0.0
    """Processor time from the beginning on."""


def schedule(orders: Orders, random: Random) -> Iterator[float]:
    """When to say the commands."""
    at = orders.begin
    for place in count() if orders.each_max is None else range(orders.each_max):
        if orders.rate is None:
            at = monotonic()
        else:
            at += random.expovariate(orders.rate / orders.processes)
        # One that is as fast as it can begins, however late it comes to that.
        if at >= orders.begin + orders.seconds and (place or orders.rate is not None):
            return
        yield at


def wait_until(at: float) -> None:
    """Sleep, if it is not late already."""
    left = at - monotonic()
    if left > 0:
        sleep(left)


SCHEMA = """
PRAGMA journal_mode=WAL;
CREATE TABLE heads (run TEXT PRIMARY KEY, revision INTEGER, owner TEXT);
CREATE TABLE events (id INTEGER PRIMARY KEY, run TEXT, revision INTEGER, entry TEXT,
    UNIQUE (run, revision));
CREATE TABLE commands (run TEXT, seq INTEGER, PRIMARY KEY (run, seq)) WITHOUT ROWID;
"""


def prepare(file: str, processes: int) -> None:
    """A file with a run for each process."""
    connection = sqlite3.connect(file, isolation_level=None)
    connection.executescript(SCHEMA)
    heads = [(f"run-{number}", f"owner-{number}") for number in range(processes)]
    connection.executemany("INSERT INTO heads VALUES (?, 0, ?)", heads)
    connection.close()


def write_directly(orders: Orders, number: int, times: Iterator[float], done: Done) -> None:
    """One process that writes the file itself."""
    run, owner = f"run-{number}", f"owner-{number}"
    texts = [json.dumps(entry("", place)) for place in range(ENTRIES)]
    connection = sqlite3.connect(orders.target, isolation_level=None, timeout=BUSY_S)
    connection.execute(f"PRAGMA synchronous={orders.synchronous}")
    execute = connection.execute

    def write(seq: int) -> None:
        execute("BEGIN IMMEDIATE")
        revision, holder = execute(
            "SELECT revision, owner FROM heads WHERE run = ?", (run,)
        ).fetchone()
        assert holder == owner
        row = (run, revision + 1, texts[seq % ENTRIES])
        execute("INSERT INTO events (run, revision, entry) VALUES (?, ?, ?)", row)
        execute("INSERT INTO commands VALUES (?, ?)", (run, seq))
        execute("UPDATE heads SET revision = ? WHERE run = ?", (revision + 1, run))
        execute("COMMIT")

    done.cpu_s = process_time()
    wait_until(orders.begin)
    given_up = orders.begin + orders.seconds + GRACE_S
    for seq, due in enumerate(times):
        wait_until(due)
        done.due.append(due)
        written = False
        while not written and monotonic() < given_up:
            try:
                write(seq)
                written = True
            except sqlite3.OperationalError:
                done.busy += 1
                with suppress(sqlite3.OperationalError):
                    execute("ROLLBACK")
        done.undone += not written
        done.done.append(monotonic())
    connection.close()


def write_with_producer(orders: Orders, number: int, times: Iterator[float], done: Done) -> None:
    """One host of ours. `done` is when Redis' answer was there."""
    entries = [entry("", place) for place in range(ENTRIES)]
    waiting: deque[Sent] = deque()

    def look() -> None:
        while waiting and waiting[0].message_id is not None:
            waiting.popleft()
            done.done.append(monotonic())

    with Producer(orders.target, spool=Path(orders.folder) / f"spool-{number}") as producer:
        session = producer.create_run("bench", run_id=f"run-{number}").session("s")
        session.bind()
        producer.flush(10)
        buffer = producer._outbox.buffer
        buffer.listen(look)
        done.cpu_s = process_time()
        wait_until(orders.begin)
        for seq, due in enumerate(times):
            wait_until(due)
            done.due.append(due)
            # Its answer must not be there before it is in the list.
            with buffer._lock:
                waiting.append(session.entry(entries[seq % ENTRIES], f"e{seq}"))
        producer.flush(60)


WAYS: dict[str, Callable[[Orders, int, Iterator[float], Done], None]] = {
    "direct": write_directly,
    "producer": write_with_producer,
}


def work(orders: Orders, number: int) -> None:
    """The life of one process."""
    done = Done()
    times = schedule(orders, Random(orders.seed * 1_000 + number))
    WAYS[orders.way](orders, number, times, done)
    done.cpu_s = process_time() - done.cpu_s
    (Path(orders.folder) / f"{number}.json").write_text(json.dumps(asdict(done)))


def main(folder: str, orders: Orders) -> None:
    """Fork all, wait for all."""
    orders.folder = folder
    if orders.way == "direct":
        prepare(orders.target, orders.processes)
    orders.begin = monotonic() + orders.begin_after_s
    children = []
    for number in range(orders.processes):
        child = os.fork()
        if child == 0:
            try:
                work(orders, number)
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)
    failed = [child for child in children if os.waitpid(child, 0)[1]]
    assert not failed, f"{len(failed)} of the processes failed"


if __name__ == "__main__":
    main(sys.argv[1], Orders(**json.loads(sys.argv[2])))
