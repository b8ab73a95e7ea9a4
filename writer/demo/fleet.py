"""Agents in several processes, and what they report at the end."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Empty
from threading import Thread
from typing import Any, NamedTuple

from writer.clock import monotonic
from writer.demo.agent import Agent, Told
from writer.errors import WriterError

PROCESSES_MAX = 4
PACE_S = 0.04
REPORT_TIMEOUT_S = 60.0
CLOSE_S = 30.0


class Report(NamedTuple):
    """What one agent says at its end: commands that Redis took, those it did not, and its runs."""

    agent: int
    accepted: int
    undelivered: int
    error: str | None
    told: list[Told]


class Plan(NamedTuple):
    """What agents are to do, and where they reach Redis."""

    url: str
    prefix: str
    agents: int
    steps: int
    seed: int


class FleetFailed(WriterError):
    """A process of simulated agents ended without its report."""


@dataclass(slots=True)
class Fleet:
    """Processes that run; each holds every `n`-th agent, a thread for each."""

    plan: Plan
    said: Any
    """Commands said so far, an integer an agent, in shared memory."""
    reports: Any
    processes: list[Any] = field(default_factory=list)
    collected: list[Report] = field(default_factory=list)

    @property
    def done(self) -> bool:
        """Whether every agent has reported. Collects what has come in; raises FleetFailed."""
        while True:
            try:
                self.collected.append(self.reports.get_nowait())
            except Empty:
                break
        if len(self.collected) == self.plan.agents:
            return True
        for process in self.processes:
            if process.exitcode not in (None, 0):
                raise FleetFailed(f"agents' process {process.name} ended: {process.exitcode}")
        return False


@contextmanager
def fleet(plan: Plan) -> Iterator[Fleet]:
    """Start the processes; at the end none is left."""
    # Spawned, not forked: this process has threads, and a fork would copy their locks.
    context = multiprocessing.get_context("spawn")
    running = Fleet(plan, context.Array("L", plan.agents, lock=False), context.Queue())
    count = min(PROCESSES_MAX, plan.agents)
    try:
        for place in range(count):
            numbers = range(place, plan.agents, count)
            process = context.Process(
                target=run_agents,
                args=(plan, list(numbers), running.said, running.reports),
                name=f"agents-{place}",
            )
            process.start()
            running.processes.append(process)
        yield running
    finally:
        deadline = monotonic() + 5
        for process in running.processes:
            if len(running.collected) < plan.agents:
                process.terminate()
            process.join(max(0.1, deadline - monotonic()))


def run_agents(plan: Plan, numbers: list[int], said: Any, reports: Any) -> None:
    """In a process of its own: these agents, each in a thread, with a producer of its own."""
    # Ctrl-C goes to the whole group; the demo's own process ends us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threads = [Thread(target=_run, args=(plan, number, said, reports)) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _run(plan: Plan, number: int, said: Any, reports: Any) -> None:
    from producers import Producer

    def say(count: int) -> None:
        said[number] += count

    producer = Producer(plan.url, prefix=plan.prefix)
    agent = Agent(number, plan.seed, plan.steps, PACE_S, say)
    told: list[Told] = []
    error = None
    try:
        told = agent.work(producer)
    except Exception as failure:  # noqa: BLE001 - reported, and the demo fails by it
        error = f"{type(failure).__name__}: {failure}"
    closed = producer.close(CLOSE_S)
    reports.put(Report(number, closed.accepted, closed.undelivered, error or closed.error, told))
