"""What a snapshot of a large state costs of which one step changed, whole and as what changed.

    python -m tests.bench.deltas [snapshots]

Per snapshot: bytes that the server received from the producer, bytes that its append-only file grew
by (receipts and settling included), processor time of the call, of the producer's process and of
the writer's. First all are said with no writer running, then a writer takes them.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from producers import Producer, ProducerSettings
from tests.producers.writing import await_applied, writing
from tests.support.servers import RealServer, real_server

SIZES_KB = (10, 100, 1_000)
DURABLE = {"appendonly": "yes", "auto-aof-rewrite-percentage": "0"}


class Cost(NamedTuple):
    """Of one snapshot; times in microseconds."""

    wire_bytes: float
    file_bytes: float
    call_us: float
    producer_us: float
    writer_us: float


def state(size_kb: int) -> dict[str, Any]:
    """Steps of an agent, about half a kilobyte each."""
    text = "What the tool said. " * 20
    steps = [
        {"id": n, "ok": True, "error": None, "seconds": n / 7, "output": {"text": text, "n": n}}
        for n in range(size_kb * 2)
    ]
    return {"status": "running", "steps": steps}


def counted(server: RealServer, section: str, name: str) -> int:
    """A number of the server's INFO."""
    with server.client() as client:
        info: Any = client.info(section)
        return int(info[name])


def measure(size_kb: int, delta_bytes_min: int, snapshots: int) -> Cost:
    """So many snapshots of a state of that size."""
    with (
        tempfile.TemporaryDirectory(prefix="sw-") as place,
        real_server(settings=DURABLE) as server,
    ):
        settings = ProducerSettings(
            delta_bytes_min=delta_bytes_min,
            partitions=2,
            when_full="block",
            buffer_bytes_max=2**32,
        )
        now = state(size_kb)
        with Producer(server.url, settings=settings) as producer:
            run = producer.create_run("bench", state=now)
            run.snapshot(now)
            producer.flush(60)
            wire = counted(server, "stats", "total_net_input_bytes")
            file = counted(server, "persistence", "aof_current_size")
            process_s = time.process_time()
            call_s = 0.0
            for n in range(snapshots):
                step = now["steps"][n % len(now["steps"])]
                step["output"] = {**step["output"], "n": -n}
                began_s = time.thread_time()
                run.snapshot(now, event="step", payload={"n": n})
                call_s += time.thread_time() - began_s
                producer.flush(60)
            producer_s = time.process_time() - process_s
            wire = counted(server, "stats", "total_net_input_bytes") - wire
            process_s = time.process_time()
            with writing(Path(place) / "data", server.url, partitions=2) as reader:
                await_applied(reader, run.id, snapshots + 2)
                writer_s = time.process_time() - process_s
            file = counted(server, "persistence", "aof_current_size") - file
    sums = (wire, file, call_s * 1e6, producer_s * 1e6, writer_s * 1e6)
    return Cost(*(each / snapshots for each in sums))


def main() -> None:
    """Measure all, print one table."""
    snapshots = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    columns = ("wire bytes", "file bytes", "call µs", "producer µs", "writer µs")
    table = Table("state", "travels", *columns, title=f"one of {snapshots} snapshots")
    for size_kb in SIZES_KB:
        for name, delta_bytes_min in (("whole", 0), ("as what changed", 8 * 1024)):
            cost = measure(size_kb, delta_bytes_min, snapshots)
            table.add_row(f"{size_kb:,} KB", name, *(f"{each:,.0f}" for each in cost))
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
