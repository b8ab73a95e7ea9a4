"""Many hosts at once, against processes that each write SQLite themselves.

The same logical step on both sides: an entry of 1 KB appended to a run, in order, under a check of
who holds the run and of whether the command is known. A direct writer does it in a transaction of
its own (tests/bench/peers/crowd.py); of ours, 32 processes have a producer each, and one daemon
does it for all, synchronous FULL, AOF everysec.

*Latency* (open loop): 32 processes, 3,200 commands a second in all, Poisson arrivals, the same ones
on each side; counted from the moment when a command was due, so that a process which is late makes
all that follows late, too. `accepted`: a producer has Redis' answer. `applied`: the commit is
there, as seen by a reader in another process that asks the file a thousand times a second for its
last event (0.03 ms of processor each); so it is late by up to that much, never early. Direct
writers give up half a second after the last arrival; what they did not do counts as done then, so
a figure of theirs may be too good. With *+2 ms* each sync of every process, Redis too, takes 2 ms
longer, since the disks of virtual machines are unusually fast, or answer before it is true.

*Rate* (closed loop): 8 and 32 processes, each as fast as it can. Ours counts until all is
committed.

What it does not say: direct writers with synchronous NORMAL have less latency than ours as long as
they are few or slow; what they lose in a power cut is what NORMAL means.
"""

from __future__ import annotations

import json
import subprocess
import sys
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from threading import Event, Thread
from time import monotonic
from typing import Any, Literal

from tests.bench.outside import environment, processor_s, reading
from tests.bench.peers.crowd import Done, Orders
from tests.bench.room import Room, Skip
from tests.bench.table import Figure, Target, at_most, compare, skipped
from tests.bench.writing import daemon
from tests.support.processes import TOP

PROCESSES = 32
RATE = 3_200
OPEN_S = 5.0
CLOSED_S = 3.0
ALL_MAX = 20_000
BEGIN_AFTER_S = 3.0
LOOK_S = 0.001
SIDES = ("FULL", "NORMAL")


@dataclass
class Crowd:
    """What all processes of a crowd did, and what it cost."""

    latencies: list[float]
    """Milliseconds from when a command was due, sorted."""
    applied: list[float]
    """The same until the commit was seen; ours only."""
    rate: float
    """Commands a second."""
    note: str


def run(folder: Path, orders: Orders) -> list[Done]:
    """What each process says."""
    command = [sys.executable, "-m", "tests.bench.peers.crowd", str(folder)]
    subprocess.run([*command, json.dumps(asdict(orders))], check=True, cwd=TOP)
    found = [folder / f"{number}.json" for number in range(orders.processes)]
    return [Done(**json.loads(path.read_text())) for path in found]


def directly(room: Room, orders: Orders) -> Crowd:
    """Processes that write a file themselves."""
    with room.folder() as folder:
        orders.target = str(folder / "direct.sqlite")
        done = run(folder, orders)
    undone, busy = sum(each.undone for each in done), sum(each.busy for each in done)
    finished = sum(len(each.due) for each in done) - undone
    took = max(each.done[-1] for each in done) - min(each.due[0] for each in done)
    note = f"processors busy {share(done, orders)}"
    note += f", {undone:,} not done" if undone else ""
    note += f", {busy} times locked for 5 s" if busy else ""
    return Crowd(latencies(done), [], finished / took, note)


def through_us(room: Room, orders: Orders) -> Crowd:
    """Processes with a producer each, and our daemon."""
    with room.folder() as folder, room.redis() as server:
        data = folder / "data"
        orders.target = server.url
        with daemon(data, server.url) as writer:
            writer.begin()
            before = processor_s(server.pid)
            with Lookout(data) as lookout:
                done = run(folder, orders)
                count = sum(len(each.due) for each in done)
                writer.settled_at(count + 2 * orders.processes)
                ended = monotonic()
            used = writer.cpu_s(), processor_s(server.pid) - before
            begin = min(each.due[0] for each in done)
            applied = lookout.applied(data, done)
    span = orders.seconds if orders.rate else ended - begin
    parts = f"hosts {share(done, orders, span)}, daemon {used[0] / span:.2f}"
    note = f"processors busy {parts}, redis {used[1] / span:.2f}"
    return Crowd(latencies(done), applied, count / (ended - begin), note)


def share(done: list[Done], orders: Orders, span: float | None = None) -> str:
    """How many processors they used."""
    return f"{sum(each.cpu_s for each in done) / (span or orders.seconds):.2f}"


def latencies(done: list[Done]) -> list[float]:
    """Milliseconds of all commands, sorted."""
    pairs = (pair for each in done for pair in zip(each.due, each.done, strict=True))
    return sorted((at - due) * 1_000 for due, at in pairs)


class Lookout(Thread):
    """Notes when which event was the newest one committed."""

    def __init__(self, data: Path) -> None:
        super().__init__(name="lookout", daemon=True)
        self._data = data
        self._ended = Event()
        self._times: list[float] = []
        self._newest: list[int] = []

    def __enter__(self) -> Lookout:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        """Look until told to end, and once more."""
        newest = -1
        with closing(reading(self._data)) as connection:
            cursor = connection.cursor()
            while True:
                last = self._ended.wait(LOOK_S)
                row = cursor.execute(
                    "SELECT seq FROM sqlite_sequence WHERE name = 'events'"
                ).fetchone()
                if row is not None and row[0] > newest:
                    newest = row[0]
                    self._times.append(monotonic())
                    self._newest.append(newest)
                if last:
                    return

    def applied(self, data: Path, done: list[Done]) -> list[float]:
        """Milliseconds from when a command was due until its event was seen, sorted."""
        due = {f"run-{number}": iter(each.due) for number, each in enumerate(done)}
        with closing(reading(data)) as connection:
            rows = connection.execute(
                "SELECT event_seq, run_id FROM events JOIN cursors USING (run_key) "
                "WHERE type = 'session.entry' ORDER BY event_seq"
            ).fetchall()
        return sorted(
            (self._times[bisect_left(self._newest, event_seq)] - next(due[run_id])) * 1_000
            for event_seq, run_id in rows
        )


def percentile(values: list[float], part: float) -> float:
    """A value that so large a part of the sorted ones does not pass."""
    return values[min(len(values) - 1, int(len(values) * part))]


def measure(room: Room) -> Iterator[Figure]:
    """Latencies, as they are and with slow syncs, then rates."""
    yield from open_loop(room, {}, "", 20)
    try:
        slow = room.slow_sync()
    except Skip as why:
        yield skipped(f"{PROCESSES} hosts, {RATE:,}/s, +2 ms a sync", str(why))
    else:
        yield from open_loop(room, slow, ", +2 ms a sync", 30)
    yield from closed_loop(room)


def orders_of(room: Room, way: Literal["direct", "producer"], processes: int) -> Orders:
    """What is the same for all crowds."""
    return Orders(way, "", processes, OPEN_S, begin_after_s=1.0 if room.quick else BEGIN_AFTER_S)


def open_loop(
    room: Room, changes: dict[str, str], suffix: str, applied_ms: float
) -> Iterator[Figure]:
    """p99 of ours beside that of direct writers."""
    processes, rate = (4, 400) if room.quick else (PROCESSES, RATE)
    title = f"{processes} hosts, {rate:,}/s{suffix}"
    mine: list[Crowd] = []
    theirs: dict[str, list[Crowd]] = {synchronous: [] for synchronous in SIDES}
    with environment(changes):
        for seed in range(room.rounds):
            room.log(f"direct: {title}, round {seed + 1}")
            seconds = 1.0 if room.quick else OPEN_S
            same: dict[str, Any] = {"seconds": seconds, "rate": rate, "seed": seed}
            mine.append(through_us(room, replace(orders_of(room, "producer", processes), **same)))
            for synchronous, crowds in theirs.items():
                orders = replace(orders_of(room, "direct", processes), **same)
                crowds.append(directly(room, replace(orders, synchronous=synchronous)))

    def row(name: str, ours: list[list[float]], against: str, target: Target | None) -> Figure:
        other = theirs[against]
        halves = [percentile(each, 0.5) for each in ours]
        other_half = median(percentile(each.latencies, 0.5) for each in other)
        return compare(
            f"{title}: {name} p99",
            [percentile(each, 0.99) for each in ours],
            "ms",
            f"direct writers, {against}",
            [percentile(each.latencies, 0.99) for each in other],
            less_is_better=True,
            target=target,
            note=f"p50 {median(halves):.1f} / {other_half:.1f} ms; {mine[-1].note}; "
            f"theirs: {other[-1].note}",
        )

    accepted = [each.latencies for each in mine]
    applied = [each.applied for each in mine]
    yield row("accepted", accepted, "FULL", at_most(10, "ours") if not suffix else None)
    yield row("applied (FULL)", applied, "FULL", at_most(applied_ms, "ours"))
    yield row("applied (FULL)", applied, "NORMAL", None)


def closed_loop(room: Room) -> Iterator[Figure]:
    """Rates of ours beside those of direct writers."""
    for processes in (4,) if room.quick else (8, PROCESSES):
        room.log(f"direct: {processes} hosts, as fast as they can")
        each_max = 100 if room.quick else ALL_MAX // processes
        ours = orders_of(room, "producer", processes)
        mine = through_us(room, replace(ours, seconds=60.0, each_max=each_max))
        for synchronous in SIDES:
            orders = orders_of(room, "direct", processes)
            seconds = 1.0 if room.quick else CLOSED_S
            other = directly(room, replace(orders, seconds=seconds, synchronous=synchronous))
            yield compare(
                f"{processes} hosts, as fast as they can",
                [mine.rate],
                "commands/s",
                f"direct writers, {synchronous}",
                [other.rate],
                note=f"{mine.note}; theirs: p99.9 {percentile(other.latencies, 0.999):,.0f} ms, "
                f"max {other.latencies[-1]:,.0f} ms; {other.note}",
            )
