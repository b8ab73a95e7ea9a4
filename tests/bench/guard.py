"""Whether the writer has become slower: ratios and counts that mean the same on any machine.

    python -m tests.bench.guard [--write]

For each kind of work: processor time of a command in units of a fixed piece of work in the same
process (`yardstick`), and calls that a command makes, Python's and C's, which do not vary at all.
`--write` keeps what was measured as what `test_guard.py` holds later versions against; do it when a
figure has got better, on a machine at rest, and say in the commit why one got worse.
"""

from __future__ import annotations

import gc
import json
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from time import thread_time
from typing import Any, NamedTuple

import orjson

from tests.bench.workload import (
    Op,
    Packed,
    Sent,
    base_state,
    binding,
    command,
    entry,
    growth_states,
    packed,
    patch,
    run_ids,
    typical_ops,
    update,
    workflow,
)
from tests.bench.writing import applier, apply, as_read
from writer.apply import Applier, Message

FIGURES = Path(__file__).with_name("guard.json")
LOSS = 1.5
"""A rate that is a third lower is a time that is a half longer."""
ROUNDS = 5
BATCH = 100
YARDSTICK_ROWS = 250


class Cost(NamedTuple):
    """Of one command: processor time in yardsticks' rows, and calls."""

    time: float
    calls: float


@cache
def works() -> dict[str, list[Packed]]:
    """Commands by the name of the work that they are."""
    (run,) = run_ids(1)
    begin = [command(Op("init", (workflow(), base_state(run)))), command(Op("bind", binding(run)))]
    batches = [op for op in typical_ops(run) if op.name == "events"][:40]
    kinds: dict[str, Iterator[Sent]] = {
        "entry": (Sent("session.entry", {"entry": entry("", n)}) for n in range(250)),
        "events": map(command, batches),
        "update": (Sent("run.update", update(n)) for n in range(250)),
        "snapshot": (command(Op("snapshot", each)) for each in growth_states(run, 40)),
        "patch": (patch(Op("snapshot", each)) for each in growth_states(run, 80)),
    }
    return {name: list(packed(run, [*begin, *sent])) for name, sent in kinds.items()}


def measure(rounds: int = ROUNDS) -> dict[str, Cost]:
    """What each work costs. Ours and the yardstick take turns, and the fastest of each counts:
    whatever else a machine does makes either slower, never faster.
    """
    costs = {}
    for name, messages in works().items():
        read = as_read(messages)
        commands = len(read) - 2
        ours, theirs = [], []
        for _ in range(rounds):
            theirs.append(yardstick())
            with _begun(read) as (applying, rest), _no_collection():
                started = thread_time()
                _apply(applying, rest)
                ours.append(thread_time() - started)
        per_row = min(theirs) / YARDSTICK_ROWS
        costs[name] = Cost(min(ours) / commands / per_row, count_calls(read) / commands)
    return costs


def count_calls(read: Sequence[Message]) -> int:
    """Calls of functions that applying messages makes."""
    calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    with _begun(read) as (applying, rest), _no_collection():
        before = sys.getprofile()
        sys.setprofile(count)
        try:
            _apply(applying, rest)
        finally:
            sys.setprofile(before)
    return calls


def yardstick() -> float:
    """Processor seconds of a fixed piece of work: JSON, hashes, rows, as plainly as can be."""
    texts = [message.fields[b"body"] for message in works()["entry"][-YARDSTICK_ROWS:]]
    with tempfile.TemporaryDirectory() as folder, _no_collection():
        connection = sqlite3.connect(Path(folder) / "rows.sqlite", isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, name TEXT, value TEXT)")
        connection.execute("CREATE UNIQUE INDEX names ON rows (name)")
        started = thread_time()
        for first in range(0, len(texts), BATCH):
            rows = []
            for text in texts[first : first + BATCH]:
                value: Any = orjson.loads(text)
                body = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
                rows.append((sha256(body).hexdigest(), body.decode()))
            connection.execute("BEGIN")
            connection.executemany("INSERT INTO rows (name, value) VALUES (?, ?)", rows)
            connection.execute("COMMIT")
        took = thread_time() - started
        connection.close()
    return took


@contextmanager
def _begun(read: Sequence[Message]) -> Iterator[tuple[Applier, Sequence[Message]]]:
    """An applier that has created the run, and what is left to apply."""
    with (
        tempfile.TemporaryDirectory() as folder,
        applier(Path(folder), synchronous="NORMAL") as applying,
    ):
        apply(applying, read[:2])
        yield applying, read[2:]


def _apply(applying: Applier, messages: Sequence[Message]) -> None:
    for first in range(0, len(messages), BATCH):
        apply(applying, messages[first : first + BATCH])


@contextmanager
def _no_collection() -> Iterator[None]:
    """How long a collection takes depends on all else that a process holds."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def kept() -> dict[str, Cost]:
    """What it was when it was written down last."""
    known: dict[str, dict[str, float]] = json.loads(FIGURES.read_text())
    return {name: Cost(**cost) for name, cost in known.items()}


if __name__ == "__main__":
    found = measure(rounds=15)
    was = kept() if FIGURES.exists() else {}
    for name, cost in found.items():
        old = was.get(name)
        before = "" if old is None else f"   was {old.time:.1f} and {old.calls:.0f}"
        print(f"{name:<10}{cost.time:8.1f} yardsticks{cost.calls:8.0f} calls{before}")
    if "--write" in sys.argv:
        plain = {
            name: {"time": round(cost.time, 2), "calls": round(cost.calls, 1)}
            for name, cost in found.items()
        }
        FIGURES.write_text(json.dumps(plain, indent=1) + "\n")
