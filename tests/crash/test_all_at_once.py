"""Deaths, pauses and locks in any order, for as long as one likes: it stays bounded, and right."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import apsw
import pytest
import redis

from tests.support import checks
from tests.support.processes import wait_taken
from tests.support.scene import Scene, scene
from tests.support.wait import poll

MIB = 1024 * 1024
RSS_BYTES_MAX, WAL_BYTES_MAX = 256 * MIB, 128 * MIB
TTL_MS = 4_000
SETTINGS = {"appendonly": "yes", "appendfsync": "always"}


def the_writer_dies(on: Scene) -> None:
    on.dies()
    on.start()


def the_writer_stops(on: Scene) -> None:
    on.stops()
    on.start()


def redis_dies(on: Scene) -> None:
    pending = on.traffic.next(20)
    on.server.kill()
    with pytest.raises(redis.ConnectionError):
        on.traffic.put(on.client, pending)
    on.server.start()
    on.traffic.put(on.client, pending)


def redis_stands_still(on: Scene) -> None:
    on.server.pause()
    time.sleep(0.5)
    on.server.resume()


def a_stand_by_takes_over(on: Scene) -> None:
    """The writer is stopped, and never wakes."""
    second = on.started.writer(
        on.data, on.url, log=f"{time.time_ns()}.log", wait=False, standby=True, lease_ttl_ms=TTL_MS
    )
    # A lease that Redis forgot just now is free: then it does not even wait.
    poll(
        lambda: second.said("standing_by") or second.said("taken"), message="the stand-by to begin"
    )
    on.running.signal(signal.SIGSTOP)
    poll(lambda: second.said("taken") or second.said("waiting"), message="the stand-by to act")
    on.running.kill()
    wait_taken(second)
    on.writer = second


def another_holds_the_lock(on: Scene) -> None:
    with closing(apsw.Connection(str(on.data / "p00.sqlite"))) as foreign:
        foreign.set_busy_timeout(60_000)
        foreign.execute("BEGIN IMMEDIATE")
        time.sleep(0.3)
        foreign.execute("ROLLBACK")


ACCIDENTS: list[Callable[[Scene], None]] = [
    the_writer_dies,
    the_writer_stops,
    redis_dies,
    redis_stands_still,
    a_stand_by_takes_over,
    another_holds_the_lock,
]


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [15, pytest.param(1_200, marks=pytest.mark.soak)])
def test_all_at_once(tmp_path: Path, seconds: int) -> None:
    chance = random.Random(seconds)
    until = time.monotonic() + seconds
    happened, rss, wal = 0, 0, 0
    with scene(tmp_path, server=SETTINGS, lease_ttl_ms=TTL_MS) as on:
        on.start()
        on.opens()
        while time.monotonic() < until or happened < len(ACCIDENTS):
            for _ in range(chance.randrange(1, 6)):
                on.send(chance.randrange(20, 200))
            rss = max(rss, on.running.rss_bytes()[1])
            # It comes with the first commit, and goes when all connections are closed.
            with suppress(FileNotFoundError):
                wal = max(wal, (on.data / "p00.sqlite-wal").stat().st_size)
            accident = (
                ACCIDENTS[happened] if happened < len(ACCIDENTS) else chance.choice(ACCIDENTS)
            )
            accident(on)
            happened += 1
        on.drained()
        on.all_is_well()
    print(
        f"{happened} accidents, {on.traffic.total} commands; {rss / MIB:.0f} MiB resident at most"
    )
    assert rss < RSS_BYTES_MAX
    assert wal < WAL_BYTES_MAX
    assert checks.rows(on.data, "SELECT count(*) FROM rejections") == [(0,)]
