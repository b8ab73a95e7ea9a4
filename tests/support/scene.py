"""A server, a daemon in a process of its own, and traffic: what most attacks begin with."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.support import checks
from tests.support.processes import Process, Processes, lines_per_s, processes
from tests.support.servers import Kind, RealServer, real_server
from tests.support.traffic import Traffic, names
from tests.support.wait import PATIENCE_S, poll
from writer.health import read_health

LINES_PER_S_MAX = 5.0
CPU_MAX = 0.5
"""Processor seconds a second while nothing can be done."""
WATCHED_S = 1.0
LOOKS = 10
AHEAD_MAX = 2_000
"""Messages that may wait while one sends until something happens: they are to be applied later."""


class Scene:
    """All of it. Ends with the test."""

    def __init__(
        self,
        folder: Path,
        server: RealServer,
        started: Processes,
        client: Any,
        settings: Mapping[str, Any],
        body_bytes: int,
    ) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.server = server
        self.started = started
        self.client = client
        self.settings = dict(settings)
        self.url = server.url
        self.traffic = Traffic(names(20), body_bytes=body_bytes)
        self.writer: Process | None = None
        self.first: Process | None = None

    def start(self, **settings: Any) -> Process:
        """Start a daemon, and wait until it has taken its partition."""
        self.writer = self.started.writer(
            self.data, self.url, **{"retry_ms_max": 500, **self.settings, **settings}
        )
        return self.writer

    @property
    def running(self) -> Process:
        """The daemon that was started last."""
        assert self.writer is not None
        self.first = self.first or self.writer
        return self.writer

    def opens(self) -> None:
        """Every run is there: what is lost afterwards leaves only gaps."""
        self.send(len(self.traffic.runs) * 3)
        self.drained()

    def send(self, count: int) -> None:
        """Send the next commands."""
        self.traffic.send(self.client, count)

    def sends_until_it_waits(self) -> None:
        """Send until the daemon says that it can not go on for now."""

        def waits() -> bool:
            assert self.running.running(), self.running.tail()
            if checks.waiting(self.client) < AHEAD_MAX:
                self.send(100)
            return bool(self.running.said("waiting"))

        poll(waits, message="the daemon to wait")

    def fills_redis(self) -> None:
        """Send until Redis takes no more."""
        try:
            for _ in range(1_000):
                self.send(100)
        except redis.exceptions.OutOfMemoryError:
            return
        pytest.fail("Redis took all of it")

    def drained(self, timeout_s: float = 240.0) -> None:
        """Wait until all that was confirmed has ended and Redis holds none of it any more."""
        checks.drained(self.client, self.data, self.traffic, timeout_s)

    def says(self, *causes: str, timeout_s: float = PATIENCE_S) -> str:
        """Wait until the daemon's health says one of these; returns what it says."""

        def said() -> str:
            cause: str = self._told().get("cause", "")
            return cause if any(each in cause for each in causes) else ""

        return poll(said, timeout_s, f"health to say {' or '.join(causes)}")

    def is_well(self, timeout_s: float = PATIENCE_S) -> None:
        """Wait until the daemon's health says that it runs."""
        poll(
            lambda: self._told().get("state") == "running", timeout_s, "health to say that it runs"
        )

    def _told(self) -> dict[str, Any]:
        """What health says of the partition; nothing before the daemon has come to it."""
        told = read_health(self.data)
        found: dict[str, Any] = {} if told is None else told["partitions"].get("0", {})
        return found

    def is_quiet(self) -> None:
        """While the fault lasts, it logs less than 5 lines a second and uses little CPU.

        Its first tries may fall into the first looks: they cost more, on a slow machine a lot.
        """
        for _ in range(LOOKS):
            began, at, used = time.monotonic(), time.time(), self.running.cpu_s()
            time.sleep(WATCHED_S)
            cpu = (self.running.cpu_s() - used) / (time.monotonic() - began)
            rate = lines_per_s(self.running, at, time.time())
            if cpu < CPU_MAX and rate < LINES_PER_S_MAX:
                return
        pytest.fail(f"{cpu:.2f} of a core, {rate:.1f} lines/s:\n{self.running.tail()}")

    def was_quiet(self) -> None:
        """In no 2 seconds of its life it logged 5 lines a second or more."""
        times = [line["at"] for line in self.running.lines() if "at" in line]
        for place, at in enumerate(times):
            count = sum(at <= other < at + 2 for other in times[place:])
            assert count < 2 * LINES_PER_S_MAX, f"{count} lines in 2 s:\n{self.running.tail()}"

    def stops(self, timeout_s: float = PATIENCE_S) -> None:
        """SIGTERM ends it with code 0, in time."""
        self.running.signal(signal.SIGTERM)
        assert self.running.wait(timeout_s) == 0, self.running.tail()

    def dies(self) -> None:
        """SIGKILL."""
        self.running.kill()

    def all_is_well(self, *, may_be_lost: bool = False) -> int:
        """All is drained; the daemon stops; every command is accounted for; a replay is equal.

        Returns how many confirmed commands Redis lost: none, unless it may have. Missing sequences
        are told exactly, either way.
        """
        self.drained()
        self.stops()
        lost = lost_of(self.traffic, self.data) if may_be_lost else {}
        checks.accounted(self.data, self.traffic, lost)
        checks.check_all(self.data)
        return sum(map(len, lost.values()))


@contextmanager
def scene(
    folder: Path,
    *,
    kind: Kind | None = None,
    server: Mapping[str, str] | None = None,
    body_bytes: int = 200,
    **settings: Any,
) -> Iterator[Scene]:
    """A scene with a server of these settings; the daemon is not started yet."""
    with (
        real_server(kind, server) as running,
        running.client() as client,
        processes(folder) as started,
    ):
        yield Scene(folder, running, started, client, settings, body_bytes)


def lost_of(traffic: Traffic, data: Path) -> dict[str, set[int]]:
    """Confirmed commands that were not applied, by run: what Redis lost."""
    applied = checks.sequences(data)
    return {
        run: set(acked) - applied[run, traffic.producer] for run, acked in traffic.acked.items()
    }
