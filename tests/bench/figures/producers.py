"""How long a producer's call takes, beside what a host could call instead, with Redis up and
stopped.

Ours validates, encodes and buffers; a thread of the same process sends, so that it competes for the
interpreter, and a daemon in another process applies what is sent. Beside it: an insert with COMMIT
on an open connection (synchronous FULL; NORMAL in the notes), `put` of LangGraph's saver, an RQ
enqueue. After each of those the data is in a file, or in Redis; after a call of ours it is in the
process, and with Redis by the next millisecond or two: that is what is bought. Who needs to know
asks for a receipt. With Redis stopped RQ raises; ours goes on, and moves what waits to its spool.

*Paced*: a pause of 0.2 ms between two calls, on all sides, as in a host that mostly does something
else. The processor has cooled down by then: the notes say what `orjson.dumps` of the same entry
takes both ways, which is the part that no code of ours can help. *In a row*: 400 calls without a
pause, then all is sent before the next 400. The peers' calls in a row send as they go. p99.9 stands
in the notes.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from statistics import median
from time import perf_counter, sleep
from typing import Any

import orjson

from producers import Producer
from tests.bench.peers.calls import Call, enqueue, insert, put
from tests.bench.room import Room
from tests.bench.table import Figure, at_most, compare
from tests.bench.writing import daemon
from tests.support.servers import RealServer
from tests.support.workload import text

PAUSE_S = 0.000_2
CALLS = 2_000
FEW = 200
ROW = 400
PARTS = (0.5, 0.99, 0.999)
ENTRY = {"type": "message", "role": "user", "text": text(1, 830)}

Samples = dict[str, list[tuple[float, ...]]]
"""For each name p50, p99 and p99.9 in microseconds, a tuple a round."""


def state(size: int) -> dict[str, Any]:
    """A state of about so many bytes of JSON, in members of a kilobyte."""
    return {
        "status": "running",
        "parts": {f"p{part}": text(part, 900) for part in range(max(1, size // 920))},
    }


def timed(call: Call, calls: int, numbers: Iterator[int], pause_s: float) -> tuple[float, ...]:
    """Microseconds that a call takes: p50, p99, p99.9."""
    took = []
    for _ in range(calls):
        number = next(numbers)
        started = perf_counter()
        call(number)
        took.append((perf_counter() - started) * 1e6)
        if pause_s:
            sleep(pause_s)
    took.sort()
    return tuple(took[min(calls - 1, int(calls * part))] for part in PARTS)


def peers(stack: ExitStack, room: Room, server: RealServer) -> dict[str, Call]:
    """What a host could call instead."""
    folder = stack.enter_context(room.folder())
    said = json.dumps(ENTRY)
    return {
        "orjson": lambda _: orjson.dumps(ENTRY),
        "insert FULL": insert(stack, folder, "FULL", said),
        "insert NORMAL": insert(stack, folder, "NORMAL", said),
        "rq": enqueue(server),
        "saver 2 KB": put(stack, folder, state(2_000)),
        "saver 200 KB": put(stack, folder, state(200_000)),
    }


def ours(producer: Producer) -> dict[str, Call]:
    """The same of ours."""
    run = producer.create_run("bench")
    session = run.session("s")
    session.bind()
    small, large = state(2_000), state(200_000)
    return {
        "entry": lambda n: session.entry({"id": f"e{n}", **ENTRY}),
        "update": lambda n: run.update("progress", "tests", {"completed": n, "total": 10_000}),
        "snapshot 2 KB": lambda n: run.snapshot({**small, "n": n}),
        "snapshot 200 KB": lambda n: run.snapshot({**large, "n": n}),
    }


def calls_of(name: str, room: Room) -> int:
    """How often something is called."""
    return (FEW if "200 KB" in name else CALLS) // (10 if room.quick else 1)


def one_round(room: Room, samples: Samples) -> None:
    """All of them once."""
    numbers = count()
    with ExitStack() as stack:
        server = stack.enter_context(room.redis())
        for name, call in peers(stack, room, server).items():
            samples[f"{name}, paced"].append(timed(call, calls_of(name, room), numbers, PAUSE_S))
            samples[f"{name}, in a row"].append(timed(call, ROW, numbers, 0))
        folder = stack.enter_context(room.folder())
        producer = Producer(server.url, spool=folder / "spool")
        with daemon(folder / "data", server.url):
            said = ours(producer)
            for name, call in said.items():
                taken = timed(call, calls_of(name, room), numbers, PAUSE_S)
                samples[f"{name}, Redis up"].append(taken)
                producer.flush(30)
            for name in ("entry", "update"):
                rows = []
                for _ in range(calls_of(name, room) // ROW or 1):
                    rows.append(timed(said[name], ROW, numbers, 0))
                    producer.flush(30)
                samples[f"{name}, in a row"].append(tuple(map(median, zip(*rows, strict=True))))
        server.stop()
        for name, call in said.items():
            taken = timed(call, calls_of(name, room), numbers, PAUSE_S)
            samples[f"{name}, Redis stopped"].append(taken)
        producer.close(1)


ROWS = (
    ("entry", "insert FULL", "SQLite insert, FULL"),
    ("update", "rq", "rq enqueue"),
    ("snapshot 2 KB", "saver 2 KB", "langgraph put, 2 KB"),
    ("snapshot 200 KB", "saver 200 KB", "langgraph put, 200 KB"),
)


def measure(room: Room) -> Iterator[Figure]:
    """p50 and p99 of each call."""
    samples: Samples = defaultdict(list)
    for number in range(room.rounds):
        room.log(f"producers: round {number + 1}")
        one_round(room, samples)
    normal = shown(samples["insert NORMAL, paced"])
    cooled = " and ".join(
        f"{median(each[0] for each in samples[f'orjson, {way}']):.1f} {way}"
        for way in ("paced", "in a row")
    )
    for name, peer, against in ROWS:
        ways = ["Redis up", "Redis stopped"]
        if f"{name}, in a row" in samples:
            ways.insert(1, "in a row")
        for way in ways:
            mine = samples[f"{name}, {way}"]
            other = samples[f"{peer}, {'in a row' if way == 'in a row' else 'paced'}"]
            note = f"p50/p99/p99.9 µs: {shown(mine)}, theirs {shown(other)}"
            if peer == "insert FULL":
                note += f", insert NORMAL {normal}; orjson alone {cooled}"
            for part, title, bound in ((0, "p50", 15), (1, "p99", 100)):
                yield compare(
                    f"call of {name}, {way}: {title}",
                    [each[part] for each in mine],
                    "µs",
                    against,
                    [each[part] for each in other],
                    less_is_better=True,
                    target=at_most(bound, "ours") if name in ("entry", "update") else None,
                    note=note if part == 0 else "",
                )


def shown(rounds: list[tuple[float, ...]]) -> str:
    """Medians of the rounds."""
    return "/".join(f"{median(part):,.0f}" for part in zip(*rounds, strict=True))
