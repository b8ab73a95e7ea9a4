"""How long a producer's call takes, beside what a host could do instead, with Redis up and stopped.

    python -m tests.bench.producers [calls]

Prints p50, p99 and p99.9 in microseconds of: a direct SQLite insert with commit (WAL, FULL and
NORMAL), LangGraph's SQLite saver, an RQ enqueue, and the producer's entry, update and snapshot.
Each is one thread of one process, on files in the same folder.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis
import rq
from rich.console import Console
from rich.table import Table

from producers import Producer
from tests.producers.writing import writing
from tests.support.servers import RealServer, real_server

Call = Callable[[int], object]
PACE_S = 0.000_2
"""Between two calls: a host does something else, too."""


def state(size: int) -> dict[str, Any]:
    """A state of about so many bytes of JSON, in members of a kilobyte."""
    return {"status": "running", "parts": {f"p{n}": "x" * 900 for n in range(max(1, size // 920))}}


def measure(call: Call, calls: int) -> list[float]:
    """Microseconds of each call, sorted; those that raised count as `inf`."""
    took = []
    for n in range(calls):
        started = time.perf_counter()
        try:
            call(n)
            took.append((time.perf_counter() - started) * 1e6)
        except redis.RedisError:
            took.append(float("inf"))
        time.sleep(PACE_S)
    return sorted(took)


def sqlite_call(folder: Path, synchronous: str) -> Call:
    """A row with commit."""
    connection = sqlite3.connect(folder / f"direct-{synchronous}.sqlite", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={synchronous}")
    connection.execute("CREATE TABLE entries (id INTEGER PRIMARY KEY, entry TEXT)")
    text = json.dumps({"role": "user", "text": "x" * 400})
    return lambda _: connection.execute("INSERT INTO entries (entry) VALUES (?)", (text,))


def saver_call(folder: Path, size: int) -> Call:
    """`put` of LangGraph's SQLite saver."""
    from langgraph.checkpoint.base import empty_checkpoint
    from langgraph.checkpoint.sqlite import SqliteSaver

    name = folder / f"saver-{size}.sqlite"
    saver = SqliteSaver(sqlite3.connect(name, check_same_thread=False))
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    values = state(size)

    def put(n: int) -> object:
        checkpoint: Any = empty_checkpoint()
        checkpoint["id"] = f"{n:032}"
        checkpoint["channel_values"] = {"state": values}
        return saver.put(config, checkpoint, {"source": "loop", "step": n}, {})

    return put


def rq_call(server: RealServer) -> Call:
    """An RQ job on its queue."""
    queue = rq.Queue(connection=server.client(retry=None))
    return lambda n: queue.enqueue("time.sleep", n)


def producer_calls(producer: Producer, name: str) -> dict[str, Call]:
    """The calls of this package."""
    run = producer.create_run("bench", run_id=name)
    session = run.session("s")
    session.bind()
    small, large = state(2_000), state(200_000)
    entry = {"role": "user", "text": "x" * 400}
    return {
        "entry": lambda n: session.entry({"id": f"e{n}", **entry}),
        "update": lambda n: run.update("progress", "tests", {"completed": n, "total": 10_000}),
        "snapshot 2 KB": lambda n: run.snapshot({**small, "n": n}),
        "snapshot 200 KB": lambda n: run.snapshot({**large, "n": n}),
    }


def main() -> None:
    """Measure all, print one table."""
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 3_000
    few = max(200, calls // 10)
    table = Table("call", "Redis", "calls", "p50 µs", "p99 µs", "p99.9 µs", title="one call takes")

    def show(name: str, where: str, call: Call, count: int) -> None:
        took = measure(call, count)
        cells = [took[min(count - 1, int(count * part))] for part in (0.5, 0.99, 0.999)]
        shown = ["raises" if cell == float("inf") else f"{cell:,.0f}" for cell in cells]
        table.add_row(name, where, f"{count:,}", *shown)

    with tempfile.TemporaryDirectory(prefix="sw-") as place, real_server() as server:
        folder = Path(place)
        for synchronous in ("FULL", "NORMAL"):
            call = sqlite_call(folder, synchronous)
            show(f"SQLite insert, commit, {synchronous}", "-", call, calls)
        for size in (2_000, 200_000):
            name = f"langgraph-checkpoint-sqlite put {size // 1_000} KB"
            show(name, "-", saver_call(folder, size), few if size > 2_000 else calls)
        jobs = rq_call(server)
        show("rq enqueue", "up", jobs, calls)
        producer = Producer(server.url, spool=folder / "spool")
        with writing(folder / "data", server.url):
            for name, call in producer_calls(producer, "up").items():
                show(name, "up", call, few if "200" in name else calls)
            producer.flush(30)
        server.stop()
        show("rq enqueue", "stopped", jobs, few)
        for name, call in producer_calls(producer, "stopped").items():
            show(name, "stopped", call, few if "200" in name else calls)
        producer.close(1)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
