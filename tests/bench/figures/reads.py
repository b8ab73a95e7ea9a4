"""Reads beside a busy writer: pages and changes of 100,000 runs and 5 million events.

The file is made as `tests.bench.crowd` says. A process of its own sends 2,000 commands a second to
runs all over it, the daemon applies them, and this process reads as dashboards do: each kind of
read ten times a second, with `StateReader`. How much the writer loses by it is seen while it
drains a backlog, in turns with and without the reads.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tests.bench.crowd import Crowd, Sender, crowd_of, make_streams, name_of
from tests.bench.feeding import commands, feeding
from tests.bench.figures.bounded import DEADLINE_S, stored, wait_for
from tests.bench.proc import cpu_s
from tests.bench.room import Room
from tests.bench.table import Figure, at_least, at_most, compare
from tests.bench.writing import daemon
from tests.support.servers import RealServer
from writer.store.database import open_reader
from writer.store.reader import StateReader
from writer.store.reader.tokens import encode

LONG = True
RUNS, EVENTS = 100_000, 50
RATE = 2_000
READING_S = 30
DRAINED = 40_000
EVERY_S = 0.1
PAGE = 50
CHANGES = 1_000

CONTEXT = multiprocessing.get_context("spawn")

Read = Callable[[], object]


def measure(room: Room) -> Iterator[Figure]:
    """The time of each read, then what they cost the writer."""
    runs, events = (300, 12) if room.quick else (RUNS, EVENTS)
    crowd = crowd_of(room, runs, events)
    with room.redis() as server, server.client() as client:
        make_streams(client, crowd)
        size = f"{runs:,} runs, {runs * events:,} events, {crowd.path.stat().st_size / 1e9:.1f} GB"
        with (
            daemon(crowd.data, server.url),
            StateReader(crowd.data) as reader,
            feeding(server.url, runs, RATE),
        ):
            wait_for(crowd.path, stored(crowd.path) + 1)
            before, begun = stored(crowd.path), time.monotonic()
            took = read_for(reads(reader, crowd), 2 if room.quick else READING_S)
            rate = (stored(crowd.path) - before) / (time.monotonic() - begun)
        for name, samples in took.items():
            yield latency(name, samples, f"{size}; {rate:,.0f} commands/s were applied meanwhile")
        yield lost(room, server, crowd)


def reads(reader: StateReader, crowd: Crowd) -> dict[str, Read]:
    """What a dashboard asks, by name. Each call is another page or run."""
    chance = random.Random(1)
    pages: list[str | None] = [None]
    tokens = {"old": reader.changes(limit=1).token, "new": newest(crowd.path)}

    def page() -> object:
        found = reader.list_runs(after=pages[0], limit=PAGE)
        pages[0] = found.next
        return found

    def filtered() -> object:
        return reader.list_runs(workflow="crowd", status="running", limit=PAGE)

    def one() -> object:
        return reader.run(name_of(chance.randrange(crowd.runs)))

    def state() -> object:
        return reader.state(name_of(chance.randrange(crowd.runs)))

    def trace() -> object:
        return reader.trace(name_of(chance.randrange(crowd.runs)), limit=100)

    def follow(which: str) -> object:
        found = reader.changes(since=tokens[which], limit=CHANGES)
        tokens[which] = found.token
        return found

    return {
        f"runs page, {PAGE} of all": page,
        f"runs page, {PAGE} of a workflow and status": filtered,
        "one run": one,
        "one run's state": state,
        "one run's trace, 100 events": trace,
        f"changes(since=), {CHANGES:,} old events": partial(follow, "old"),
        "changes(since=), what is new": partial(follow, "new"),
    }


def newest(path: Path) -> str:
    """The token of a follower that has read all."""
    with closing(open_reader(path)) as file:
        query = "SELECT lineage, (SELECT max(event_seq) FROM events) FROM file"
        return encode({"0": file.execute(query).fetchone()})


class Took(NamedTuple):
    """One call, in ms: until it was answered, and what it used of the processor."""

    whole: float
    used: float


def read_for(asked: dict[str, Read], seconds: float) -> dict[str, list[Took]]:
    """How long each call took; the kinds take turns at a steady pace."""
    took: dict[str, list[Took]] = {name: [] for name in asked}
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        turn = time.monotonic()
        for name, read in asked.items():
            begun, used = time.perf_counter(), time.thread_time()
            read()
            whole, used = time.perf_counter() - begun, time.thread_time() - used
            took[name].append(Took(whole * 1000, used * 1000))
        time.sleep(max(0.0, turn + EVERY_S - time.monotonic()))
    return took


def latency(name: str, samples: list[Took], note: str) -> Figure:
    """One row: the 99th percentile against the bound."""
    whole, used = sorted(took.whole for took in samples), sorted(took.used for took in samples)
    p99 = len(samples) * 99 // 100
    return compare(
        f"{name}, p99",
        [whole[p99]],
        "ms",
        target=at_most(50, of="ours"),
        note=f"median {median(whole):.2f} ms of {len(samples)} reads; of the processor "
        f"{used[p99]:.2f}, median {median(used):.2f} ms; {note}",
    )


def lost(room: Room, server: RealServer, crowd: Crowd) -> Figure:
    """The rate at which a backlog is drained while dashboards read, against while they do not."""
    rates: dict[bool, list[float]] = {False: [], True: []}
    costs: dict[bool, list[float]] = {False: [], True: []}
    count = 500 if room.quick else DRAINED
    with server.client() as client, daemon(crowd.data, server.url) as running:
        sender = Sender(client, "backlog")
        source = commands(sender, crowd.runs)
        for turn in range(2 * room.rounds + 2):
            reading = turn % 2 == 1
            before = stored(crowd.path)
            sent = sender.send(islice(source, count), mark=False)
            with dashboards(crowd) if reading else nullcontext():
                begun, used = time.time(), cpu_s(running.pid)
                sender.mark()
                took = wait_for(crowd.path, before + sent) - begun
            if turn > 1:
                rates[reading].append(sent / took)
                costs[reading].append((cpu_s(running.pid) - used) / sent * 1e6)
    return compare(
        "drain while dashboards read",
        rates[True],
        "commands/s",
        "while none do",
        rates[False],
        target=at_least(0.9),
        note="each kind of read ten times a second; processor time of the writer "
        f"{median(costs[True]):.0f} against {median(costs[False]):.0f} us a command",
    )


@contextmanager
def dashboards(crowd: Crowd) -> Iterator[None]:
    """Reads at their pace from a process of their own, which has begun."""
    begun, ended = CONTEXT.Event(), CONTEXT.Event()
    process = CONTEXT.Process(target=_read_until, args=(crowd, begun, ended))
    process.start()
    try:
        assert begun.wait(DEADLINE_S), "the reading process did not begin"
        yield
    finally:
        ended.set()
        process.join()


def _read_until(crowd: Crowd, begun: Any, ended: Any) -> None:
    with StateReader(crowd.data) as reader:
        asked = reads(reader, crowd)
        begun.set()
        while not ended.is_set():
            read_for(asked, EVERY_S)
