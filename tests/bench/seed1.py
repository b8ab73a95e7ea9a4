"""Saves per second of a workflow engine's whole document, one node changing in one run.

    python -m tests.bench.seed1 [saves]

Beside a writer that rewrites the document's rows at each save, as the second seed does, on the same
file settings (WAL, synchronous FULL or NORMAL, 8 KB pages); without its client library. `alone`: a
commit for each save; `batch`: up to 50 saves in a commit, as a busy daemon has them. What comes in
is a message's fields, what counts as done is committed. Nothing of it is Redis.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

import apsw
import orjson

from producers.contract.envelope import encode, seal
from tests.support.engine import created, items, node, workflow_snapshot
from tests.support.world import START_MS
from writer.apply import Aggregates, Applier, Message
from writer.core.decide import RULES_VERSION
from writer.store.database import open_writer
from writer.store.partition import PartitionFile, partition_path

RUN = "run-1"
SIZES = (5, 20, 100)
SAVES = 300
BATCH = 50
ROUNDS = (
    ("full rewrite, NORMAL", "NORMAL", None),
    ("full rewrite, FULL", "FULL", None),
    ("statewriter alone, NORMAL", "NORMAL", 1),
    ("statewriter alone, FULL", "FULL", 1),
    ("statewriter batch, NORMAL", "NORMAL", BATCH),
    ("statewriter batch, FULL", "FULL", BATCH),
)

Document = dict[str, Any]


def documents(nodes: int, saves: int) -> Iterator[Document]:
    """States that follow each other: each changes one node's output (1 KB in, 1 KB out each)."""
    snapshots = {f"node-{number}": _snapshot(f"node-{number}", 0) for number in range(nodes)}
    state = created(RUN)["state"] | {
        "status": "running",
        "queue": [],
        "outputsByNode": {},
        "workflowSnapshot": workflow_snapshot(30),
    }
    for save in range(saves):
        name = f"node-{save % nodes}"
        snapshots = snapshots | {name: _snapshot(name, save + 1)}
        yield state | {"nodeSnapshotsByNodeId": snapshots}


def _snapshot(name: str, save: int) -> Document:
    output = f"out {save} " * 110
    return node(
        RUN,
        name,
        f"act-{name}",
        inputsByPort={"in": items("i" * 1_000)},
        outputs={"main": items(output)},
    )


class FullRewrite:
    """Deletes and inserts all rows of the run at each save, in one transaction, prepared once."""

    def __init__(self, path: Path, synchronous: str) -> None:
        self._connection = open_writer(path, synchronous=synchronous)
        self._connection.execute(
            "CREATE TABLE run (run_id TEXT PRIMARY KEY, revision INTEGER, document TEXT) STRICT;"
            "CREATE TABLE instance (run_id TEXT, instance_id TEXT, status TEXT, input TEXT, "
            "output TEXT, PRIMARY KEY (run_id, instance_id)) STRICT;"
        ).fetchall()

    def save(self, texts: Sequence[bytes]) -> None:
        """A transaction for each."""
        for text in texts:
            state: Document = orjson.loads(text)["state"]
            rows = [
                (
                    RUN,
                    snapshot["activationId"],
                    snapshot["status"],
                    orjson.dumps(snapshot["inputsByPort"]).decode(),
                    orjson.dumps(snapshot["outputs"]).decode(),
                )
                for snapshot in state.pop("nodeSnapshotsByNodeId").values()
            ]
            rest = orjson.dumps(state).decode()
            connection = self._connection
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DELETE FROM instance WHERE run_id = ?", (RUN,))
            connection.executemany("INSERT INTO instance VALUES (?, ?, ?, ?, ?)", rows)
            connection.execute(
                "INSERT INTO run VALUES (?, 1, ?) ON CONFLICT (run_id) DO UPDATE SET "
                "revision = revision + 1, document = excluded.document",
                (RUN, rest),
            )
            connection.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


class Statewriter:
    """Our applier over one file. Messages are as a daemon reads them from Redis."""

    def __init__(self, data: Path, synchronous: str, batch: int) -> None:
        path = partition_path(data, 0)
        self._file = PartitionFile.open(
            path, partition=0, partitions=1, lineage="x", now=START_MS, synchronous=synchronous
        )
        self._file.take("bench", rules_version=RULES_VERSION, now=START_MS)
        self._applier = Applier(self._file, 0, 1, Aggregates(self._file))
        self._batch = batch
        self._seq = 0
        self._apply([self._message("run.create", orjson.dumps(created(RUN)))])

    def _message(self, kind: str, body: bytes) -> Message:
        self._seq += 1
        fields = encode(kind, {}, producer="p", seq=self._seq)
        fields[b"body"] = body
        return Message(RUN, f"{START_MS + self._seq}-0", seal(fields))

    def _apply(self, messages: Sequence[Message]) -> None:
        settled, _ = self._applier.apply(messages, now=START_MS)
        assert {type(each.outcome).__name__ for each in settled} == {"Applied"}

    def save(self, texts: Sequence[bytes]) -> None:
        """A transaction for each batch."""
        messages = [self._message("run.snapshot", text) for text in texts]
        for first in range(0, len(messages), self._batch):
            self._apply(messages[first : first + self._batch])

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Measured(NamedTuple):
    """Saves per second, milliseconds of our processor for each (what neighbours take aside), and
    bytes of the file for each afterwards.
    """

    saves_per_s: float
    cpu_ms: float
    file_bytes: int


def measure(nodes: int, saves: int, synchronous: str, batch: int | None) -> Measured:
    """Save a run of so many nodes so many times."""
    texts = [orjson.dumps({"state": state}) for state in documents(nodes, saves)]
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        path = partition_path(data, 0)
        writer: FullRewrite | Statewriter
        if batch is None:
            writer = FullRewrite(path, synchronous)
        else:
            writer = Statewriter(data, synchronous, batch)
        started, busy = perf_counter(), process_time()
        writer.save(texts)
        took, used = perf_counter() - started, process_time() - busy
        writer.close()
        return Measured(saves / took, used / saves * 1000, path.stat().st_size // saves)


def report(sizes: Sequence[int] = SIZES, saves: int = SAVES) -> Iterator[str]:
    """A heading, then a line for each writer and size."""
    yield f"{'writer':<28}{'nodes':>6}{'saves/s':>10}{'cpu ms/save':>13}{'file bytes/save':>17}"
    for nodes in sizes:
        for name, synchronous, batch in ROUNDS:
            rate, cpu_ms, size = measure(nodes, saves, synchronous, batch)
            yield f"{name:<28}{nodes:>6}{rate:>10,.0f}{cpu_ms:>13.2f}{size:>17,}"


if __name__ == "__main__":
    print(f"SQLite {apsw.sqlite_lib_version()}, Python {sys.version.split()[0]}")
    for shown in report(saves=int(sys.argv[1]) if len(sys.argv) > 1 else SAVES):
        print(shown, flush=True)
