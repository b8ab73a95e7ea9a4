"""The whole demonstration: daemon, agents, waiting until all is settled, and the proof."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from writer.clock import monotonic, sleep
from writer.daemon import Daemon
from writer.demo.agent import commands_of
from writer.demo.fleet import Fleet, Plan, Report, fleet
from writer.demo.latency import Sampler
from writer.demo.proof import differences
from writer.notes import Log
from writer.settings import WriterSettings
from writer.store.reader import StateReader

POLL_S = 0.05
STALL_S = 30.0
ENDS = ("applied", "rejected", "duplicates")


class Progress(NamedTuple):
    """How far it is: commands said by each agent, how many that will be, settled ones of all, and
    what is being done.
    """

    said: list[int]
    expected: int
    settled: int
    seconds: float
    doing: str


@dataclass(slots=True)
class Result:
    """What came of it. Times in seconds and ms, sizes in bytes; `wrong` is empty if all is well."""

    commands: int = 0
    applied: int = 0
    rejected: int = 0
    duplicates: int = 0
    runs: int = 0
    seconds: float = 0.0
    latency_p50_ms: int | None = None
    latency_p99_ms: int | None = None
    bytes: dict[str, int] = field(default_factory=dict)
    digest: str = ""
    wrong: list[str] = field(default_factory=list)

    @property
    def commands_per_second(self) -> float:
        """From the first command to the last one settled; agents pause, so it is no limit."""
        return self.commands / self.seconds if self.seconds else 0.0


def demonstrate(
    settings: WriterSettings, plan: Plan, log: Log, show: Callable[[Progress], None]
) -> Result:
    """Run it on the Redis of `plan`; `show` is called about 20 times a second.

    Raises what ends a daemon, and FleetFailed.
    """
    result = Result()
    expected = commands_of(plan.steps)
    with (
        # Its files are closed last: whoever closes them last empties the write-ahead logs.
        _daemon(settings, plan.url, log) as daemon,
        StateReader(settings.data) as reader,
        _sampler(settings) as sampler,
        fleet(plan) as agents,
    ):
        said = _follow(result, daemon, reader, agents, show)
    with StateReader(settings.data) as reader:
        show(Progress(said, expected, _settled(reader), result.seconds, "comparing"))
        _count(result, reader)
        _prove(result, reader, agents.collected, plan)
    result.latency_p50_ms = sampler.percentile(50)
    result.latency_p99_ms = sampler.percentile(99)
    return result


def _follow(
    result: Result,
    daemon: Daemon,
    reader: StateReader,
    agents: Fleet,
    show: Callable[[Progress], None],
) -> list[int]:
    """Until all is settled, or nothing moves any more; returns what each agent has said."""
    started: float | None = None
    moved_at = monotonic()
    before = (0, 0)
    done = False
    expected = commands_of(agents.plan.steps)
    while True:
        if daemon.error is not None:
            raise daemon.error
        done = done or agents.done
        said, settled = list(agents.said), _settled(reader)
        if started is None and any(said):
            started = monotonic()
        if (sum(said), settled) != before:
            before, moved_at = (sum(said), settled), monotonic()
        result.seconds = 0.0 if started is None else moved_at - started
        doing = "settling" if done else "agents at work"
        show(Progress(said, expected, settled, result.seconds, doing))
        accepted = sum(report.accepted for report in agents.collected)
        if (done and settled >= accepted) or monotonic() - moved_at > STALL_S:
            return said
        sleep(POLL_S)


@contextmanager
def _daemon(settings: WriterSettings, url: str, log: Log) -> Iterator[Daemon]:
    daemon = Daemon(settings, url, log)
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop()
        daemon.wait()


@contextmanager
def _sampler(settings: WriterSettings) -> Iterator[Sampler]:
    sampler = Sampler(settings.data)
    sampler.start()
    try:
        yield sampler
    finally:
        sampler.stop()


def _settled(reader: StateReader) -> int:
    totals = reader.status()["totals"]
    return sum(totals[end] for end in ENDS)


def _count(result: Result, reader: StateReader) -> None:
    status = reader.status()
    totals = status["totals"]
    result.applied, result.rejected, result.duplicates = (totals[end] for end in ENDS)
    result.runs = sum(totals["runs"].values())
    result.bytes = {row["file"]: row["bytes"] + row["wal_bytes"] for row in status["partitions"]}
    result.digest = reader.digest(runs=False)["digest"]


def _prove(result: Result, reader: StateReader, reports: list[Report], plan: Plan) -> None:
    """Compare what was said with what is stored, and both with each other."""
    for report in reports:
        result.commands += report.accepted
        if report.error is not None or report.undelivered:
            result.wrong.append(
                f"agent {report.agent}: {report.undelivered} undelivered, {report.error}"
            )
    told = [each for report in reports for each in report.told]
    for each in told:
        result.wrong += differences(reader, each)
    if len(reports) != plan.agents:
        result.wrong.append(f"{plan.agents - len(reports)} agents did not report")
    if result.runs != len(told):
        result.wrong.append(f"{len(told)} runs were told of, {result.runs} are stored")
    said = sum(sum(each.ends.values()) for each in told)
    if said != result.commands:
        result.wrong.append(f"{said} commands were said, {result.commands} arrived")
    ended = result.applied + result.rejected + result.duplicates
    if ended != result.commands:
        result.wrong.append(f"{result.commands} commands were sent, {ended} are settled")
