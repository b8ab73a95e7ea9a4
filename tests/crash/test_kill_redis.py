"""kill -9 to Redis, its disk being busy: `always` loses nothing, `everysec` tells what it lost."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
import redis

from tests.support.processes import busy_disk
from tests.support.scene import Scene, scene
from tests.support.servers import KINDS, Kind

SHORT, LONG = 4, pytest.param(50, marks=pytest.mark.soak)


def send_for(on: Scene, seconds: float) -> None:
    """Send pipelines for a while; the last one may fail, and is then sent again later."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        on.send(50)


def kill_redis(on: Scene, kills: int) -> None:
    """Kill and start the server again and again under load, while the daemon lives on.

    At most once a second: the daemon says each time that it waits, and that it goes on.
    """
    chance = random.Random(kills)
    for _ in range(kills):
        began = time.monotonic()
        send_for(on, chance.uniform(0.1, 0.4))
        on.server.kill()
        pending = on.traffic.next(20)
        with pytest.raises(redis.ConnectionError):
            on.traffic.put(on.client, pending)
        on.server.start()
        # What nobody confirmed is sent again, under the same sequences.
        on.traffic.put(on.client, pending)
        time.sleep(max(0.0, began + 1 - time.monotonic()))
    on.send(len(on.traffic.runs))


def settings(fsync: str) -> dict[str, str]:
    return {"appendonly": "yes", "appendfsync": fsync, "save": ""}


@pytest.mark.slow
@pytest.mark.parametrize("kills", [SHORT, LONG])
@pytest.mark.parametrize("kind", KINDS)
def test_always_loses_nothing(tmp_path: Path, kind: Kind, kills: int) -> None:
    with scene(tmp_path, kind=kind, server=settings("always")) as on, busy_disk(on.server.folder):
        on.start()
        on.opens()
        kill_redis(on, kills)
        on.drained()
        on.all_is_well()
        on.was_quiet()


@pytest.mark.slow
@pytest.mark.parametrize("kills", [SHORT, LONG])
def test_everysec_tells_what_it_lost(tmp_path: Path, kills: int) -> None:
    with scene(tmp_path, server=settings("everysec")) as on, busy_disk(on.server.folder):
        on.start()
        on.opens()
        kill_redis(on, kills)
        on.drained()
        lost = on.all_is_well(may_be_lost=True)
        print(f"lost {lost} of {on.traffic.total} in {kills} kills; all of them are told as gaps")
        on.was_quiet()


@pytest.mark.slow
def test_a_server_without_persistence_loses_all_that_waits(tmp_path: Path) -> None:
    """While no daemon runs, so that something waits."""
    with scene(tmp_path, server={"appendonly": "no"}) as on:
        on.start()
        on.opens()
        for _ in range(3):
            on.stops()
            on.send(400)
            on.server.kill()
            on.server.start()
            on.start()
            on.send(100)
            on.drained()
        assert on.all_is_well(may_be_lost=True) == 3 * 400
