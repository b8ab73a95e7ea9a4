"""A host beside the measurement: commands at a fixed rate to runs of a crowd, from its own process.

    python -m tests.bench.feeding URL RUNS RATE

It sends until it is ended.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import redis

from tests.bench.crowd import Command, Sender, small_update

TICK_S = 0.01
ACTIVE = 200
"""Runs that are under way at the same time, spread over the crowd."""


def commands(sender: Sender, runs: int) -> Iterator[tuple[int, Command]]:
    """Updates and entries in turns, for one active run after the other."""
    active = min(ACTIVE, runs)
    number = 0
    while True:
        run = number % active * (runs // active)
        yield small_update(run) if number // active % 2 else sender.entry(run)
        number += 1


def feed(client: redis.Redis, runs: int, rate: int) -> None:
    """Send until the process is ended; what a tick was late with goes with the next one."""
    sender = Sender(client, "feeding")
    source = commands(sender, runs)
    begun, sent = time.monotonic(), 0
    while True:
        due = int((time.monotonic() - begun) * rate) - sent
        sent += sender.send(islice(source, due))
        time.sleep(TICK_S)


@contextmanager
def feeding(url: str, runs: int, rate: int) -> Iterator[None]:
    """A process that feeds."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.feeding", url, str(runs), str(rate)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.DEVNULL,
    )
    try:
        yield
        assert process.poll() is None, "the feeding process ended"
    finally:
        process.kill()
        process.wait()


def main() -> None:
    """As a program."""
    url, runs, rate = sys.argv[1:]
    with redis.Redis.from_url(url) as client:
        feed(client, int(runs), int(rate))


if __name__ == "__main__":
    main()
