"""Steps of a durable workflow, against DBOS Transact on SQLite.

A workflow of 50 steps, each of which returns 1 KB, again and again, from one thread of one process.

Theirs as shipped: it never sets WAL, so its file is in SQLite's rollback mode, synchronous FULL; a
step's output is on disk before the next step begins, and its workflow's start and end are rows,
too. Ours: a run per workflow, an update per step with the same output, and a snapshot at its end;
Redis with its AOF on, a daemon in another process, synchronous FULL.

Two figures. *Pipelined*: the clock stops when all is committed; a step does not wait for the one
before it to be on disk, which is how an agent host reports what it does. *Confirmed*: each step's
call waits until the writer has committed it, which is the promise that DBOS makes. DBOS also runs
the workflow and recovers it, which ours does not do: what is compared is what it costs to record.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from time import time

from producers import Producer
from tests.bench.room import Room, Skip
from tests.bench.table import Figure, at_least, compare
from tests.bench.writing import daemon
from tests.support.processes import TOP
from tests.support.workload import text

STEPS = 50
STEP_CHARS = 1_000
WORKFLOWS = 10
RUNS_PER_WORKFLOW = 5
"""We record so many times as many, so that the time is long enough to be measured."""


def theirs(room: Room, workflows: int) -> float:
    """Steps per second."""
    with room.folder() as folder:
        numbers = [str(number) for number in (workflows, STEPS, STEP_CHARS)]
        module = "tests.bench.peers.dbos_steps"
        command = [sys.executable, "-m", module, str(folder / "dbos.sqlite"), *numbers]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=TOP)
        took: list[float] = json.loads(done.stdout.splitlines()[-1])
        return STEPS * workflows / sum(took)


def ours(room: Room, workflows: int, *, confirm: bool) -> float:
    """Steps per second."""
    texts = [text(number, STEP_CHARS) for number in range(STEPS)]
    with room.folder() as folder, room.redis() as server:
        data = folder / "data"
        spool = folder / "spool"
        with daemon(data, server.url) as writer, Producer(server.url, spool=spool) as producer:
            producer.create_run("warm", run_id="warm")
            writer.settled_at(1)
            started = time()
            for _ in range(workflows):
                run = producer.create_run("bench")
                for number, reply in enumerate(texts):
                    output = {"index": number, "reply": reply}
                    run.update("output", f"step-{number}", output, confirm=confirm)
                run.complete()
            ended = writer.settled_at(1 + workflows * (STEPS + 2))
            return STEPS * workflows / (ended - started)


def measure(room: Room) -> Iterator[Figure]:
    """Steps per second, pipelined and confirmed."""
    if find_spec("dbos") is None:
        raise Skip("dbos is not installed: make bench installs it")
    workflows = 2 if room.quick else WORKFLOWS
    rates = []
    for number in range(room.rounds):
        room.log(f"dbos: round {number + 1}, {workflows} workflows of {STEPS} steps")
        pipelined = ours(room, workflows * RUNS_PER_WORKFLOW, confirm=False)
        confirmed = ours(room, max(1, workflows // 3), confirm=True)
        rates.append((pipelined, confirmed, theirs(room, workflows)))
    peer = "dbos, as shipped"
    yield compare(
        f"{STEPS}-step workflow, pipelined: committed",
        [pipelined for pipelined, _, _ in rates],
        "steps/s",
        peer,
        [other for _, _, other in rates],
        target=at_least(15),
    )
    yield compare(
        f"{STEPS}-step workflow, each step confirmed",
        [confirmed for _, confirmed, _ in rates],
        "steps/s",
        peer,
        [other for _, _, other in rates],
    )
