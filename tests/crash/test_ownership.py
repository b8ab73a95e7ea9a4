"""Two daemons, one partition: the second stops, a stand-by takes over, a zombie can not commit."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from statistics import median

import pytest
import redis

from tests.support import checks
from tests.support.processes import Process, wait_taken
from tests.support.scene import Scene, scene
from tests.support.wait import poll
from writer.health import read_health

TTL_MS = 4_000
"""Far more than an owner that lives may be late with renewing it."""
TAKES_S = 20.0
LONG_MS = 600_000
"""A lease that nobody waits for."""
FENCED, TAKEN = 21, 22


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Scene]:
    """A running daemon with a short lease, whose runs are all open."""
    with scene(tmp_path, lease_ttl_ms=TTL_MS) as made:
        made.start()
        made.opens()
        yield made


def standby(on: Scene, name: str = "standby.log") -> Process:
    """A second daemon that waits for its turn."""
    second = on.started.writer(
        on.data, on.url, log=name, wait=False, standby=True, lease_ttl_ms=TTL_MS
    )
    poll(lambda: second.said("standing_by"), message="the stand-by to stand by")
    return second


def test_a_second_daemon_stops_at_once(on: Scene) -> None:
    second = on.started.writer(on.data, on.url, log="second.log", wait=False)
    assert second.wait() == TAKEN
    # Without waiting for anything.
    (ended,) = second.lines()
    assert ended["event"] == "ended"
    assert str(on.running.pid) in ended["cause"]
    assert "stop that daemon" in ended["hint"]
    told = read_health(on.data)
    assert told is not None
    assert told["pids"] == [on.running.pid]
    on.send(200)
    on.all_is_well()


def test_after_a_kill_the_next_one_starts_without_a_cleanup(tmp_path: Path) -> None:
    """Also long before the lease ends: the owner was a process of this host that is gone."""
    with scene(tmp_path, lease_ttl_ms=LONG_MS) as on:
        settings = {"data": str(on.data), "redis": on.url, "partitions": 1}
        for _ in range(3):
            on.writer = on.started.python(
                "tests.support.daemon_main", json.dumps({**settings, **on.settings})
            )
            wait_taken(on.running, timeout_s=LONG_MS / 5_000)
            on.send(100)
            on.running.kill()
        on.start()
        on.all_is_well()


@pytest.mark.parametrize("deaths", [5, pytest.param(200, marks=pytest.mark.soak)])
def test_a_stand_by_takes_over_from_a_dead_writer(on: Scene, deaths: int) -> None:
    took = []
    for number in range(deaths):
        second = standby(on, f"standby-{number}.log")
        on.send(100)
        on.running.kill()
        died = time.time()
        wait_taken(second, timeout_s=TAKES_S)
        took.append(second.said("taken")[0]["at"] - died)
        on.writer = second
        on.send(100)
        on.drained()
    on.all_is_well()
    # One may be late, on a machine that stood still.
    assert median(took) < TTL_MS / 1000 + 1
    print(f"{deaths} take-overs, {median(took):.2f} s in the middle, {max(took):.2f} s at most")


@pytest.mark.slow
@pytest.mark.parametrize("pauses", [4, pytest.param(50, marks=pytest.mark.soak)])
def test_a_zombie_can_not_commit(on: Scene, pauses: int) -> None:
    """Stopped past its lease and woken, the old writer notices, and ends with a code of its own."""
    chance = random.Random(pauses)
    fenced = 0
    for number in count():
        # One that is stopped inside a transaction may have the file again before the other gets it.
        if number >= pauses and fenced:
            break
        assert number < 10 * pauses, "none was ever fenced"
        zombie, second = on.running, standby(on, f"standby-{number}.log")
        on.send(chance.randrange(50, 400))
        time.sleep(chance.uniform(0, 0.02))
        zombie.signal(signal.SIGSTOP)
        acts(second)
        on.send(200)
        zombie.signal(signal.SIGCONT)
        if goes_on(zombie, second):
            second.kill()
        else:
            fenced += 1
            steps_down(on, zombie, stood_by=zombie is not on.first)
            on.writer = second
        on.drained()
        on.is_well()
    on.all_is_well()


def acts(second: Process) -> None:
    """Wait until the stand-by took the partition, or waits for what the zombie has locked.

    A zombie that stands still inside a transaction keeps SQLite's lock; the stand-by says whose.
    """
    poll(lambda: second.said("taken") or second.said("waiting"), TAKES_S, "the stand-by to act")
    for line in second.said("waiting"):
        assert "locked by process" in line["hint"]


def goes_on(zombie: Process, second: Process) -> bool:
    """Whether the zombie woke before the stand-by could get at the file, and has it still."""
    ended = ("taken", "recovered")
    poll(
        lambda: any(map(second.said, ended)) or len(second.said("standing_by")) > 1,
        message="one of the two to have the partition",
    )
    return not any(map(second.said, ended)) and zombie.running()


def steps_down(on: Scene, zombie: Process, *, stood_by: bool) -> None:
    """Wait until the zombie noticed: it ends, or stands by once more if it did before.

    Should the other one be late with its lease, the zombie has it again, and notices only when it
    has something to commit.
    """

    def noticed() -> bool:
        on.send(20)
        return len(zombie.said("standing_by")) > 1 or not zombie.running()

    poll(noticed, message="the zombie to notice")
    if stood_by:
        zombie.kill()
    else:
        assert zombie.wait() == FENCED, zombie.tail()


def test_a_zombie_with_stand_by_joins_again(on: Scene) -> None:
    first = standby(on, "first.log")
    on.running.kill()
    wait_taken(first)
    second = standby(on, "second.log")
    first.signal(signal.SIGSTOP)
    wait_taken(second)
    on.send(100)
    first.signal(signal.SIGCONT)
    # Once more: that is how it had begun.
    poll(lambda: len(first.said("standing_by")) == 2, message="the zombie to stand by")
    second.kill()
    poll(lambda: len(first.said("taken")) == 2, message="the zombie to take the partition again")
    on.writer = first
    on.send(100)
    on.all_is_well()


@pytest.mark.parametrize("rounds", [1, pytest.param(25, marks=pytest.mark.soak)])
def test_many_that_start_together_agree_on_one(tmp_path: Path, rounds: int) -> None:
    with scene(tmp_path, lease_ttl_ms=TTL_MS) as on:
        for number in range(rounds):
            on.send(200)
            rivals = [
                on.started.writer(on.data, on.url, log=f"{number}-{place}.log", wait=False)
                for place in range(4)
            ]
            winner = only_one_left(rivals)
            assert {each.wait() for each in rivals if each is not winner} == {TAKEN}
            on.writer = winner
            on.drained()
            on.stops()
        assert checks.rows(on.data, "SELECT count(*) FROM commits") == [(rounds,)]
        on.start()
        on.all_is_well()


def only_one_left(rivals: list[Process]) -> Process:
    """Wait until all but one have ended."""
    poll(lambda: sum(each.running() for each in rivals) == 1, message="all but one to end")
    (winner,) = [each for each in rivals if each.running()]
    return winner


def test_ownership_works_in_a_full_redis(tmp_path: Path) -> None:
    settings = {"maxmemory": "8mb", "maxmemory-policy": "noeviction"}
    with scene(tmp_path, server=settings, body_bytes=4_000, lease_ttl_ms=TTL_MS) as on:
        on.start()
        on.opens()
        second = standby(on)
        on.running.signal(signal.SIGSTOP)
        on.fills_redis()
        # Full, whatever is trimmed.
        on.client.config_set("maxmemory", "100kb")
        wait_taken(second)
        on.running.signal(signal.SIGCONT)
        assert on.running.wait() == FENCED, on.running.tail()
        on.writer = second
        on.drained()
        third = standby(on, "third.log")
        second.kill()
        wait_taken(third)
        on.writer = third
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            on.send(1)
        on.client.config_set("maxmemory", "8mb")
        on.send(20)
        on.all_is_well()
