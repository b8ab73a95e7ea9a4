"""Rows of 1 KB through a queue, against RQ and huey.

Theirs: one worker in a process of its own, each job one INSERT with COMMIT, WAL, synchronous FULL.
RQ's SimpleWorker does not fork for each job; huey is SqliteHuey with one thread, both the fastest
that still keep the order. All jobs are enqueued before the clock starts: enqueueing, which costs
them as much again, is not counted against them. Ours: transcript entries of 1 KB, from the first
call of a producer until the last entry is committed, so that all is counted: the calls, Redis with
its AOF on, the daemon, synchronous FULL.

What makes the difference is that a daemon commits many commands at once, and a job commits its own.
One producer with little to say gains nothing from that, and a queue runs any function: ours only
writes.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from time import time

from producers import Producer
from tests.bench.room import Room
from tests.bench.table import Figure, at_least, compare, skipped
from tests.bench.writing import daemon
from tests.support.processes import TOP
from tests.support.workload import entry

ENTRIES = 20_000
PEERS = (("rq", "rq, SimpleWorker", 500, 50), ("huey", "huey, SqliteHuey, 1 thread", 3_000, 8))


def theirs(room: Room, kind: str, count: int) -> float:
    """Jobs per second."""
    with room.folder() as folder, room.redis() as server:
        module = "tests.bench.peers.jobs"
        file = str(folder / "rows.sqlite")
        command = [sys.executable, "-m", module, kind, file, str(count), server.url]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=TOP)
        return count / float(done.stdout.splitlines()[-1])


def ours(room: Room, count: int) -> float:
    """Entries per second."""
    entries = [entry("", number) for number in range(count)]
    with room.folder() as folder, room.redis() as server:
        data = folder / "data"
        spool = folder / "spool"
        with daemon(data, server.url) as writer, Producer(server.url, spool=spool) as producer:
            run = producer.create_run("bench")
            session = run.session("s")
            session.bind()
            writer.settled_at(2)
            started = time()
            for each in entries:
                session.entry(each)
            return count / (writer.settled_at(2 + count) - started)


def measure(room: Room) -> Iterator[Figure]:
    """Jobs per second of each."""
    rates: dict[str, list[tuple[float, float]]] = {kind: [] for kind, *_ in PEERS}
    for number in range(room.rounds):
        for kind, name, jobs, _ in PEERS:
            if find_spec(kind) is None:
                continue
            room.log(f"queues: round {number + 1}, {name}")
            pair = (
                ours(room, ENTRIES // 20 if room.quick else ENTRIES),
                theirs(room, kind, jobs // 10 if room.quick else jobs),
            )
            rates[kind].append(pair)
    for kind, name, _, bound in PEERS:
        title = f"1 KB entries end to end, against jobs of {kind}"
        if not rates[kind]:
            yield skipped(title, f"{kind} is not installed: make bench installs it")
            continue
        yield compare(
            title,
            [mine for mine, _ in rates[kind]],
            "jobs/s",
            name,
            [other for _, other in rates[kind]],
            target=at_least(bound),
        )
