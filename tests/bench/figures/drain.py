"""Commands per second of a backlog of 1 KB transcript entries, one partition, against limits.

Ours: the daemon as it ships, from a preloaded Redis, timed from the moment when it takes the
partition to the commit of the last message. The limit: the same final rows, with the same
statements in the same transactions, through apsw's `executemany`, with checkpoints beside it like
ours, and nothing else: no Redis, no decoding, no deciding, no archive. They are recorded from a run
of the real loop on the same messages. Plain rows of 1 KB into a table without an index tell how
fast the machine is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from tests.bench import stages
from tests.bench.peers import raw
from tests.bench.room import Room
from tests.bench.table import Figure, at_least, compare
from tests.bench.workload import Packed, entry_commands, run_ids
from tests.bench.writing import daemon

RUNS = 80
ENTRIES = 500
PLAIN_ROWS = 100_000
SYNCS = 2_000
SCALE = 30_000 / 150_000
"""Commands for each plain row that the machine takes."""


def measure(room: Room) -> Iterator[Figure]:
    """Our rate against each limit, then the limits of Redis and of the disk."""
    messages = backlog(4 if room.quick else RUNS, 20 if room.quick else ENTRIES)
    recorded = stages.recorded(room, messages)
    rows = raw.rows_of(recorded)
    room.log(f"drain: {len(messages)} commands become {rows} rows in {len(recorded)} commits")
    samples: defaultdict[str, list[float]] = defaultdict(list)
    for _ in range(room.rounds):
        for name, value in one_round(room, messages, recorded).items():
            samples[name].append(value)
        room.log("drain: " + ", ".join(f"{name} {last[-1]:,.0f}" for name, last in samples.items()))
    yield from told(samples, len(messages), len(recorded), rows)


def one_round(room: Room, messages: list[Packed], recorded: raw.Recorded) -> dict[str, float]:
    """Rates a second, and processor microseconds a command (`... µs`)."""
    count = len(messages)
    with room.folder() as folder:
        same = raw.replay(recorded, folder)
    with room.redis() as server, room.folder() as folder:
        xadd = raw.pipelined_xadd(server, messages)
        with daemon(folder / "data", server.url) as running:
            took = running.settled_at(count) - running.taken_at()
            used = running.cpu_s()
    with room.folder() as folder:
        plain = raw.plain_rows(folder, 1_000 if room.quick else PLAIN_ROWS)
        sync = raw.fdatasync(folder, 50 if room.quick else SYNCS)
    return {
        "ours": count / took,
        "ours µs": used / count * 1e6,
        "same": count / same.wall_s,
        "same µs": same.cpu_s / count * 1e6,
        "plain": plain,
        "xadd": xadd,
        "sync": sync,
    }


def told(
    samples: Mapping[str, list[float]], commands: int, commits: int, rows: int
) -> Iterator[Figure]:
    """The rows of what was measured."""
    name, unit, same = "drain of 1 KB entries", "commands/s", "executemany of the same rows"
    ours = samples["ours"]
    yield compare(
        name,
        ours,
        unit,
        same,
        samples["same"],
        target=at_least(0.5),
        note=f"commits of {commands / commits:.0f} commands and {rows / commits:.0f} rows each; "
        "0.6 is the stretch",
    )
    yield compare(
        name,
        ours,
        unit,
        "executemany of plain 1 KB rows",
        samples["plain"],
        target=at_least(SCALE),
        note="30,000/s where the plain rows reach 150,000/s",
    )
    yield compare(
        f"{name}, processor",
        samples["ours µs"],
        "CPU µs/command",
        same,
        samples["same µs"],
        less_is_better=True,
        note="Redis' own time not counted",
    )
    yield compare(name, ours, unit, "XADD, 200 a pipeline, AOF everysec", samples["xadd"])
    yield compare(name, ours, unit, "fdatasync of 4 KB", samples["sync"])


def backlog(runs: int, entries: int) -> list[Packed]:
    """Entries of many runs, in turns."""
    own = [list(entry_commands(run, entries)) for run in run_ids(runs)]
    return [message for turn in zip(*own, strict=True) for message in turn]


def profile(room: Room) -> Iterator[str]:
    """Where the time of an entry goes."""
    yield from stages.all_of(room, backlog(4 if room.quick else 20, 500))
