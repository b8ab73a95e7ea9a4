"""Our side: the daemon as a process of its own, its loop in this process, the applier alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import apsw

from tests.bench.workload import Packed
from tests.support.silence import SilentLog
from tests.support.world import START_MS
from writer.apply import Aggregates, Applier, Message
from writer.core.decide import RULES_VERSION
from writer.core.outcome import Applied
from writer.settings import WriterSettings
from writer.store.database import open_reader
from writer.store.partition import PartitionFile, partition_path
from writer.streams.link import connect
from writer.tenure import Outside, Tenure

PROGRAM = Path(sys.executable).with_name("statewriter")
POLL_S = 0.005
DEADLINE_S = 300.0


class Running:
    """A daemon that writes one data folder."""

    def __init__(self, data: Path, log: Path, process: subprocess.Popen[bytes]) -> None:
        self._data = data
        self._log = log
        self._process = process
        self._used_before = 0.0

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def taken_at(self, partition: int = 0) -> float:
        """Wall clock (s) of the moment when it had the partition and began to read."""
        for _ in _deadline(f"partition {partition} to be taken"):
            # A line that is just being written is looked at the next time.
            for line in self._log.read_text().split("\n")[:-1]:
                said = json.loads(line)
                is_taken = said["action"] in ("taken", "recovered")
                if is_taken and said["partition"] == partition:
                    return datetime.fromisoformat(said["at"]).timestamp()
            self._assert_alive()
        raise AssertionError

    def settled_at(self, messages: int, partition: int = 0) -> float:
        """Wall clock (s) of the moment when so many messages of a partition were committed."""
        connection = open_reader(partition_path(self._data, partition))
        try:
            for _ in _deadline(f"{messages} messages to be settled"):
                if settled(connection) >= messages:
                    at = time.time()
                    assert _unapplied(connection) == 0
                    return at
                self._assert_alive()
        finally:
            connection.close()
        raise AssertionError

    def cpu_s(self) -> float:
        """Processor seconds that it has used since it took its first partition."""
        return self._used() - self._used_before

    def begin(self) -> None:
        """Count from here."""
        self._used_before = self._used()

    def _used(self) -> float:
        parts = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(parts[11]) + int(parts[12])) / 100

    def _assert_alive(self) -> None:
        assert self._process.poll() is None, f"the daemon ended:\n{self._log.read_text()[-2000:]}"


def settled(connection: apsw.Connection) -> int:
    """Messages that a file's commits hold."""
    row = connection.execute("SELECT coalesce(sum(messages), 0) FROM commits").fetchone()
    assert row is not None
    return int(row[0])


def _unapplied(connection: apsw.Connection) -> int:
    row = connection.execute("SELECT sum(rejected + duplicates) FROM cursors").fetchone()
    assert row is not None
    return int(row[0])


def _deadline(wanted: str) -> Iterator[None]:
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        yield
        time.sleep(POLL_S)
    raise TimeoutError(f"waited {DEADLINE_S:.0f} s for {wanted}")


@contextmanager
def daemon(
    data: Path,
    url: str,
    *,
    partitions: int = 1,
    environment: Mapping[str, str] | None = None,
    **settings: Any,
) -> Iterator[Running]:
    """`statewriter daemon` with these settings, stopped at the end.

    `environment`: what `Room.slow_sync` returns.
    """
    named = {"data": data, "redis": url, "log_format": "json", **settings}
    given = {f"STATEWRITER_{name.upper()}": str(value) for name, value in named.items()}
    log = data.parent / f"{data.name}.log"
    with log.open("ab") as stderr:
        process = subprocess.Popen(
            [PROGRAM, "daemon", "--partitions", str(partitions)],
            cwd=data.parent,
            stdin=subprocess.DEVNULL,
            stderr=stderr,
            env={**(os.environ if environment is None else environment), **given},
        )
    running = Running(data, log, process)
    try:
        running.taken_at()
        running.begin()
        yield running
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def loop(data: Path, url: str, **settings: Any) -> Iterator[Any]:
    """The daemon's loop of the only partition, to be stepped by hand: no threads beside it."""
    data.mkdir(parents=True, exist_ok=True)
    given = WriterSettings(data=data, redis=url, partitions=1, **settings)
    with Tenure(given, Outside(lambda: connect(url)), SilentLog(), 0, 1) as stepping:
        yield stepping


@contextmanager
def applier(data: Path, synchronous: str = "FULL") -> Iterator[Applier]:
    """What the loop applies batches with, over a new file: no Redis, no archive."""
    data.mkdir(parents=True, exist_ok=True)
    file = PartitionFile.open(
        partition_path(data, 0),
        partition=0,
        partitions=1,
        lineage="x",
        now=START_MS,
        synchronous=synchronous,
    )
    try:
        file.take("bench", rules_version=RULES_VERSION, now=START_MS)
        yield Applier(file, 0, 1, Aggregates(file))
    finally:
        file.close()


def apply(applying: Applier, messages: Sequence[Message]) -> None:
    """Apply in one transaction; a figure of commands that were refused would be worth nothing."""
    settled, _ = applying.apply(messages, now=START_MS)
    assert all(isinstance(each.outcome, Applied) for each in settled)


def as_read(messages: Sequence[Packed], first: int = 0) -> list[Message]:
    """Messages as a loop reads them; `first` is how many came before."""
    return [
        Message(run, f"{START_MS + place}-0", fields)
        for place, (run, fields) in enumerate(messages, first)
    ]
