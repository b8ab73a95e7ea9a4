"""Where a command's time goes: processor microseconds by kind and stage, by table, by function.

Processor time of the thread that works, in the middle of all calls, or batches, that were timed one
by one: so that neighbours on the machine count as little as can be.
"""

from __future__ import annotations

import cProfile
import pstats
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median
from time import thread_time_ns
from typing import Any, TypeVar

from producers.contract.envelope import Decoded, decode, seal
from tests.bench.peers import raw
from tests.bench.room import Room
from tests.bench.workload import Packed, load
from tests.bench.writing import applier, apply, as_read, loop
from writer.apply import Applier, Message, arrival_ms
from writer.core.decide import decide
from writer.core.facts import Wanted, want
from writer.core.outcome import Applied
from writer.core.run import Run
from writer.dialects import DIALECTS
from writer.store.commit import Batch

BATCH = 500
FUNCTIONS = 30
SHOWN_NAME = 60
T = TypeVar("T")


class Spent:
    """Microseconds of each call, by key."""

    def __init__(self) -> None:
        self.us: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        self._cost = min(self._empty() for _ in range(1_000))

    @staticmethod
    def _empty() -> int:
        started = thread_time_ns()
        return thread_time_ns() - started

    def on(self, kind: str, stage: str, work: Callable[[], T]) -> T:
        """Do it, and note how long it took, less what timing costs."""
        started = thread_time_ns()
        done = work()
        self.us[kind, stage].append((thread_time_ns() - started - self._cost) / 1000)
        return done

    def usual(self, kind: str, stage: str) -> float:
        """The middle of all calls."""
        return median(self.us[kind, stage] or [0.0])


def by_kind(room: Room, messages: Sequence[Packed]) -> Iterator[str]:
    """A line a kind: sealing, decoding and deciding one; then what is done by batch."""
    spent, kinds = Spent(), Counter(_kind(each.fields) for each in messages)
    read = as_read(messages)
    with room.folder() as folder, applier(folder / "data") as applying:
        for first in range(0, len(read), BATCH):
            _walk(applying, read[first : first + BATCH], spent)
    yield f"{'kind':<18}{'count':>8}{'seal':>8}{'decode':>8}{'decide':>8}   CPU µs a command"
    for kind, count in sorted(kinds.items()):
        cells = [spent.usual(kind, stage) for stage in ("seal", "decode", "decide")]
        yield f"{kind:<18}{count:>8}" + "".join(f"{cell:>8.1f}" for cell in cells)
    for stage in ("want", "facts", "commit"):
        per_batch = spent.usual("batch", stage)
        per_command = per_batch * len(spent.us["batch", stage]) / len(messages)
        yield f"{stage + ', all kinds':<18}{len(messages):>8}{per_command:>24.1f}"


def _walk(applying: Applier, messages: Sequence[Message], spent: Spent) -> None:
    """What `Applier.apply` does with a batch of messages that are all applied, step by step."""
    runs: dict[str, list[Message]] = {}
    for message in messages:
        runs.setdefault(message.run, []).append(message)
    batch = Batch(messages=len(messages))
    for run_id, own in runs.items():
        run = applying.aggregates.get(run_id)
        batch.runs.append(run)
        decoded: list[Decoded] = []
        for message in own:
            kind = _kind(message.fields)
            fields = spent.on(kind, "seal", partial(seal, message.fields))
            decoded.append(spent.on(kind, "decode", partial(decode, run_id, message.id, fields)))
        wanted = Wanted()
        spent.on("batch", "want", partial(_want, run, decoded, wanted))
        facts = spent.on("batch", "facts", partial(applying.file.facts, run, wanted))
        for each in decoded:
            deciding = partial(decide, run, each, arrival_ms(each.message_id), facts, DIALECTS)
            outcome = spent.on(str(each.kind), "decide", deciding)
            assert isinstance(outcome, Applied)
            batch.rows.extend(outcome.rows)
    spent.on("batch", "commit", partial(applying.file.commit, batch))
    applying.aggregates.weigh(batch.runs)


def _want(run: Run, messages: Sequence[Decoded], wanted: Wanted) -> None:
    for each in messages:
        want(run, each, wanted)


def by_layer(room: Room, messages: Sequence[Packed]) -> Iterator[str]:
    """The loop's time, the applier's with and without what is around it."""
    read = as_read(messages)
    batches = []
    with room.folder() as folder, applier(folder / "data") as applying:
        for first in range(0, len(read), BATCH):
            batch = read[first : first + BATCH]
            started = thread_time_ns()
            apply(applying, batch)
            batches.append((thread_time_ns() - started) / len(batch) / 1000)
    archived = _looped(room, messages, archive=True)
    bare = _looped(room, messages, archive=False)
    yield f"loop from Redis, as it ships  {archived:8.1f} CPU µs a command"
    yield f"loop without its archive      {bare:8.1f}"
    yield f"applier alone                 {median(batches):8.1f}"


def _looped(room: Room, messages: Sequence[Packed], *, archive: bool) -> float:
    """Microseconds a command in the middle of all rounds."""
    rounds = []
    with room.redis() as server, room.folder() as folder:
        load(server, messages)
        with loop(folder / "data", server.url, archive=archive) as stepping:
            left = len(messages)
            while left:
                started = thread_time_ns()
                done = stepping.step()
                if done:
                    rounds.append((thread_time_ns() - started) / done / 1000)
                left -= done
    return float(median(rounds))


def recorded(room: Room, messages: Sequence[Packed]) -> raw.Recorded:
    """What the loop writes when it drains these messages."""
    with room.redis() as server, room.folder() as folder:
        load(server, messages)
        with loop(folder / "data", server.url) as stepping, raw.recording(stepping.file) as found:
            left = len(messages)
            while left:
                left -= stepping.step()
    return found


def by_table(room: Room, messages: Sequence[Packed]) -> Iterator[str]:
    """What each statement of the commits costs, when nothing else is done."""
    found = recorded(room, messages)
    spent, rows = Spent(), Counter[str]()

    def timed(sql: str, write: Callable[[], Any]) -> None:
        spent.on(sql, "sql", write)

    for statements in found:
        rows.update({each.sql: len(each.rows) for each in statements})
    with room.folder() as folder:
        raw.replay(found, folder, timed)
    yield f"{'statement':<62}{'rows':>9}{'µs/row':>9}{'µs/command':>12}"
    usual = {sql: spent.usual(sql, "sql") * len(all_) for (sql, _), all_ in spent.us.items()}
    for sql, us in sorted(usual.items(), key=lambda item: -item[1]):
        shown = " ".join(sql.split())[:SHOWN_NAME]
        many = rows[sql] or len(spent.us[sql, "sql"])
        per_row, per_command = us / many, us / len(messages)
        yield f"{shown:<62}{many:>9}{per_row:>9.2f}{per_command:>12.2f}"


def by_function(room: Room, messages: Sequence[Packed]) -> Iterator[str]:
    """The loop's functions by their own time, under cProfile: calls look dearer than they are."""
    profile = cProfile.Profile(lambda: thread_time_ns() / 1e9)
    with room.redis() as server, room.folder() as folder:
        load(server, messages)
        with loop(folder / "data", server.url) as stepping:
            left = len(messages)
            profile.enable()
            while left:
                left -= stepping.step()
            profile.disable()
    found: Any = pstats.Stats(profile)
    count = len(messages)
    yield f"{'function':<62}{'calls/cmd':>10}{'own µs/cmd':>12}{'all µs/cmd':>12}"
    ordered = sorted(found.stats.items(), key=lambda item: -item[1][2])
    for (file, line, name), (_, calls, own, everything, _) in ordered[:FUNCTIONS]:
        place = "/".join(file.split("/")[-2:]) + f":{line} {name}" if line else name
        cells = f"{calls / count:>10.2f}{own / count * 1e6:>12.2f}{everything / count * 1e6:>12.2f}"
        yield f"{place[:SHOWN_NAME]:<62}{cells}"


def of_work(room: Room, messages: Sequence[Packed]) -> Iterator[str]:
    """By kind and by function."""
    yield from by_kind(room, messages)
    yield from by_function(room, messages)


def all_of(room: Room, messages: Sequence[Packed]) -> Iterator[str]:
    """Everything above."""
    for view in (by_layer, by_kind, by_table, by_function):
        room.log(view.__name__)
        yield f"\n{view.__name__.replace('_', ' ')}"
        yield from view(room, messages)


def _kind(fields: Any) -> str:
    kind: str = fields[b"kind"].decode()
    return kind
