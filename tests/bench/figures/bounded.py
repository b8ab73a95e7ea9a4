"""What the daemon needs with many runs, large commands or a long backlog: bounds of our own.

There is no peer: each figure is held against a limit, on one partition. A crowd of runs is made as
`tests.bench.crowd` says; the daemon is the program itself, and everything in its process counts.
With `--long` the crowd has 5 million events, the large commands are 2,000, and a million entries
are drained onto that file.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tests.bench.crowd import Crowd, Sender, crowd_of, make_streams, small_update
from tests.bench.proc import cpu_s, memory_bytes
from tests.bench.room import Room
from tests.bench.table import Figure, at_least, at_most, compare
from tests.bench.workload import Sent, load, packed, run_ids
from tests.bench.writing import Running, daemon, settled
from tests.support.servers import RealServer
from writer.store.database import open_reader
from writer.store.partition import partition_path

RUNS = 100_000
EVENTS, EVENTS_LONG = 6, 50
LARGE, LARGE_LONG = 300, 2_000
LARGE_RUNS = 20
BACKLOG = 1_000_000
BACKLOG_RUNS = 100
IDLE_S, IDLE_LONG_S = 60, 180
REST_S = 10
DEADLINE_S = 1_800
TICK_S = 0.01
"""What a processor's time is told in."""
MB = 1024 * 1024


def measure(room: Room) -> Iterator[Figure]:
    """Many runs, then large commands."""
    runs = 300 if room.quick else RUNS
    crowd = crowd_of(room, runs, EVENTS_LONG if room.long else EVENTS)
    with room.redis() as server, server.client() as client:
        make_streams(client, crowd)
        sender = Sender(client, "bounded")
        yield start(room, server, crowd, sender)
        yield from many_runs(room, server, crowd, sender)
        if room.long:
            yield backlog(room, server, crowd, sender)
    yield large_commands(room)


def stored(path: Path) -> int:
    """Messages that a partition's file holds."""
    with closing(open_reader(path)) as connection:
        return settled(connection)


def wait_for(path: Path, messages: int) -> float:
    """The time (s) at which a partition's file held so many messages."""
    until = time.monotonic() + DEADLINE_S
    with closing(open_reader(path)) as connection:
        while settled(connection) < messages:
            assert time.monotonic() < until, f"waited {DEADLINE_S} s for {messages} messages"
            time.sleep(0.005)
    return time.time()


def start(room: Room, server: RealServer, crowd: Crowd, sender: Sender) -> Figure:
    """From starting the program to its first commit, with all runs known and with none."""
    ours: list[float] = []
    empty: list[float] = []
    used: list[float] = []
    for number in range(room.rounds):
        before = stored(crowd.path)
        sender.send([small_update(number)])
        begun = time.time()
        with daemon(crowd.data, server.url) as running:
            ours.append(wait_for(crowd.path, before + 1) - begun)
            used.append(cpu_s(running.pid))
        with room.redis() as other, room.folder() as folder:
            load(other, list(packed("run-1", [Sent("run.create", {"state": {}})])))
            begun = time.time()
            with daemon(folder / "data", other.url):
                empty.append(wait_for(partition_path(folder / "data", 0), 1) - begun)
    return compare(
        f"start to first apply, {crowd.runs:,} known runs",
        ours,
        "s",
        "the same with none",
        empty,
        target=at_most(1, of="ours"),
        note=f"{median(used):.2f} s of processor time",
    )


def many_runs(room: Room, server: RealServer, crowd: Crowd, sender: Sender) -> Iterator[Figure]:
    """Each run gets one command, then all rest."""
    before = stored(crowd.path)
    with daemon(crowd.data, server.url) as running:
        begun = time.time()
        sent = sender.send(small_update(run) for run in range(crowd.runs))
        took = wait_for(crowd.path, before + sent) - begun
        each = running.cpu_s() / sent * 1e6
        yield compare(
            f"one command for each of {crowd.runs:,} runs, sent and applied",
            [sent / took],
            "commands/s",
            note=f"{each:.0f} us of processor time each",
        )
        time.sleep(1 if room.quick else REST_S)
        used, rested = cpu_s(running.pid), time.monotonic()
        time.sleep(1 if room.quick else IDLE_LONG_S if room.long else IDLE_S)
        seconds = time.monotonic() - rested
        share = (cpu_s(running.pid) - used) / seconds * 100
        now, most = memory_bytes(running.pid)
    yield compare(
        f"memory, {crowd.runs:,} open idle runs, all written just before",
        [now / MB],
        "MB",
        target=at_most(150, of="ours"),
        note=f"{most / MB:.0f} MB at most",
    )
    yield compare(
        f"processor, {crowd.runs:,} open idle runs",
        [share],
        "%",
        target=at_most(1, of="ours"),
        note=f"over {seconds:.0f} s",
    )


class Mark(NamedTuple):
    """A moment of a drain: wall clock and processor time (s), bytes of the file."""

    at: float
    cpu: float
    size: int


def backlog(room: Room, server: RealServer, crowd: Crowd, sender: Sender) -> Figure:
    """A million entries onto the crowd's file: the last tenth against the first."""
    count = 5_000 if room.quick else BACKLOG
    room.log(f"bounded: sending {count:,} entries")
    before = stored(crowd.path)
    runs = min(BACKLOG_RUNS, crowd.runs)
    sender.send(sender.entry(number % runs) for number in range(count))
    with daemon(crowd.data, server.url) as running:
        marks = [mark(running, crowd.path)]
        for tenth in range(1, 11):
            wait_for(crowd.path, before + count * tenth // 10)
            marks.append(mark(running, crowd.path))
            room.log(f"bounded: {tenth} tenths, {marks[-1].size / 1e9:.2f} GB")
    spans = list(pairwise(marks))
    rates = [count / 10 / (end.at - begin.at) for begin, end in spans]
    costs = [(end.cpu - begin.cpu) / (count / 10) * 1e6 for begin, end in spans]
    told = ", ".join(
        f"{rate:,.0f}/s {cost:.0f} us" for rate, cost in zip(rates, costs, strict=True)
    )
    return compare(
        f"drain of {count:,} entries of 1 KB, last tenth, one partition",
        rates[-1:],
        "commands/s",
        "its first tenth",
        rates[:1],
        target=at_least(0.9),
        note=f"{marks[0].size / 1e9:.1f} to {marks[-1].size / 1e9:.1f} GB; wall rate and processor "
        f"time of each tenth: {told}",
    )


def mark(running: Running, path: Path) -> Mark:
    """Now."""
    return Mark(time.time(), cpu_s(running.pid), path.stat().st_size)


def large_commands(room: Room) -> Figure:
    """Commands of 1 MB: transcript entries of one text, of many members, and states."""
    count = 6 if room.quick else LARGE_LONG if room.long else LARGE
    runs = run_ids(min(LARGE_RUNS, count))
    messages = 0
    # What matters is the daemon's memory, not how the server keeps 2 GB.
    with room.redis({"appendonly": "no"}) as server, room.folder() as folder:
        for place, run in enumerate(runs):
            sent = list(large(place, count // len(runs)))
            load(server, list(packed(run, sent)))
            messages += len(sent)
        with daemon(folder / "data", server.url) as running:
            wait_for(partition_path(folder / "data", 0), messages)
            _, most = memory_bytes(running.pid)
            rate = count / max(running.cpu_s(), TICK_S)
    return compare(
        f"memory at most, backlog of {count:,} commands of 1 MB",
        [most / MB],
        "MB",
        target=at_most(256, of="ours"),
        note=f"{rate:.0f} MB per second of processor time",
    )


def large(place: int, count: int) -> Iterator[Sent]:
    """A run's commands of 1 MB each, of the three shapes in turns."""
    yield Sent("run.create", {"state": {"status": "running"}})
    yield Sent("session.bind", {"session": "session-1"})
    for number in range(place, place + count):
        yield (text_entry, member_entry, state)[number % 3](number)


def text_entry(number: int) -> Sent:
    """An entry of one long text."""
    return Sent(
        "session.entry", {"entry": {"id": f"text-{number}", "text": "0123456789" * 100_000}}
    )


def member_entry(number: int) -> Sent:
    """An entry of 33,000 small members."""
    items: list[Any] = [{"n": place, "v": f"value {place}"} for place in range(33_000)]
    return Sent("session.entry", {"entry": {"id": f"members-{number}", "items": items}})


def state(number: int) -> Sent:
    """A state of which every part is new."""
    parts = {f"part-{place}": f"{number} " + "x" * 900 for place in range(1_080)}
    return Sent("run.snapshot", {"state": {"status": "running", "parts": parts}})
