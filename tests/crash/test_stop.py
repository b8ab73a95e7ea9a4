"""SIGTERM and SIGINT at any moment, under load: code 0, soon, and nothing is half done."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path
from statistics import median
from threading import Event, Thread

import pytest

from tests.support.scene import Scene, scene
from tests.support.wait import poll

STOPS_S = 4.0
"""What a user may expect; one of many may be late, on a machine that stood still."""
STOP_S = 8.0
"""Less than the ten seconds that a reply may take: a stop does not wait for one."""
LOADED_S = 20.0
"""With a batch to commit and a file to close, on a disk that others use."""


def load(on: Scene, ended: Event, wanted: Event) -> None:
    """Send some more than the daemon applies meanwhile, each time that it is wanted."""
    with on.server.client() as client:
        while not ended.is_set():
            if wanted.wait(0.05):
                wanted.clear()
                for _ in range(10):
                    on.traffic.send(client, 40)


@pytest.mark.slow
@pytest.mark.parametrize("stops", [30, pytest.param(300, marks=pytest.mark.soak)])
def test_it_stops_in_peace_under_load(tmp_path: Path, stops: int) -> None:
    chance = random.Random(stops)
    took = []
    with scene(tmp_path, batch_messages_max=50) as on:
        ended, wanted = Event(), Event()
        sender = Thread(target=load, args=(on, ended, wanted))
        sender.start()
        try:
            for number in range(stops):
                on.start()
                wanted.set()
                time.sleep(chance.uniform(0, 0.1))
                for again in range(1 + number % 3):
                    on.running.signal(signal.SIGINT if (number + again) % 2 else signal.SIGTERM)
                began = time.monotonic()
                assert on.running.wait(LOADED_S) == 0, on.running.tail()
                took.append(time.monotonic() - began)
        finally:
            ended.set()
            sender.join()
        on.start()
        on.drained()
        on.all_is_well()
    assert median(took) < STOPS_S
    print(f"{stops} stops, {median(took):.2f} s in the middle, {max(took):.2f} s at most")


def test_it_stops_while_redis_does_not_answer(tmp_path: Path) -> None:
    with scene(tmp_path) as on:
        on.start()
        on.opens()
        on.server.pause()
        try:
            time.sleep(0.6)
            on.stops(STOP_S)
        finally:
            on.server.resume()
        on.start()
        on.all_is_well()


def test_it_stops_while_redis_is_away(tmp_path: Path) -> None:
    with scene(tmp_path, server={"appendonly": "yes"}) as on:
        on.start()
        on.opens()
        on.server.kill()
        on.says("can not be reached")
        on.stops(STOP_S)
        # And one that never saw it.
        on.writer = on.started.writer(on.data, on.url, wait=False)
        poll(lambda: on.running.said("waiting"), message="the daemon to wait")
        on.stops(STOP_S)
        on.server.start()
        on.start()
        on.all_is_well()


def test_it_stops_while_the_file_is_locked(tmp_path: Path) -> None:
    import apsw

    with scene(tmp_path) as on:
        on.start()
        on.opens()
        connection = apsw.Connection(str(on.data / "p00.sqlite"))
        connection.set_busy_timeout(60_000)
        connection.execute("BEGIN IMMEDIATE")
        on.send(100)
        time.sleep(0.3)
        on.stops(STOP_S)
        connection.execute("ROLLBACK")
        connection.close()
        on.start()
        on.all_is_well()
