"""A network that eats replies, cuts and delays, between Redis and the daemon, and its hosts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from producers import Producer
from tests.support import checks
from tests.support.proxy import Proxy, proxy
from tests.support.scene import Scene, scene
from tests.support.wait import poll

GOES_ON_S = 30.0
"""Sooner than the next sweep, which finds all that waits."""
AT_ONCE_S = 1.0


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Scene]:
    """Hosts that reach the server directly; a daemon is not started yet."""
    with scene(tmp_path) as made:
        yield made


@pytest.fixture
def between(on: Scene) -> Iterator[Proxy]:
    """A proxy before the server."""
    with proxy(on.server.folder) as made:
        yield made


def test_replies_to_the_daemon_are_lost(on: Scene, between: Proxy) -> None:
    """Whatever call it was, it was carried out: marks are popped, streams trimmed, unseen."""
    on.url = between.url
    on.start()
    on.opens()
    for count in range(1, 11):
        between.eat_replies(1 + count % 3)
        on.send(100)
        on.drained(GOES_ON_S)
    assert between.eaten >= 10
    on.is_well()
    on.all_is_well()


def test_the_daemon_is_cut_off_again_and_again(on: Scene, between: Proxy) -> None:
    on.url = between.url
    on.start()
    on.opens()
    for _ in range(20):
        on.send(60)
        time.sleep(0.02)
        between.cut()
    on.drained(GOES_ON_S)
    on.all_is_well()


def test_redis_can_not_be_reached(on: Scene, between: Proxy) -> None:
    on.url = between.url
    on.start()
    on.opens()
    between.refuse()
    on.send(200)
    on.says("can not be reached")
    on.is_quiet()
    between.allow()
    on.is_well()
    on.was_quiet()
    on.all_is_well()


def test_each_reply_is_late(on: Scene, between: Proxy) -> None:
    between.delay_s = 0.03
    on.url = between.url
    on.start()
    on.opens()
    on.send(400)
    on.drained()
    on.all_is_well()


def test_redis_stands_still_and_goes_on(on: Scene) -> None:
    on.start()
    on.opens()
    on.server.pause()
    time.sleep(2)
    on.server.resume()
    on.send(100)
    on.drained(GOES_ON_S)
    on.all_is_well()


def test_a_host_whose_client_sends_again_unseen(on: Scene, between: Proxy) -> None:
    """As redis-py's clients do by default: the same XADD lands twice, and is applied once."""
    on.start()
    on.opens()
    with redis.Redis.from_url(between.url, retry=Retry(NoBackoff(), 5)) as client:
        for _ in range(25):
            between.eat_replies(1)
            on.traffic.put(client, on.traffic.next(4))
    on.drained()
    ((duplicates,),) = checks.rows(on.data, "SELECT sum(duplicates) FROM cursors")
    assert duplicates > 0
    on.all_is_well()


def test_our_producer_and_lost_replies(on: Scene, between: Proxy) -> None:
    on.start()
    with Producer(between.url) as producer:
        run = producer.create_run("lossy", run_id="lossy", state={"n": 0})
        assert not producer.flush(60).waiting
        for number in range(100):
            if number % 5 == 0:
                between.eat_replies(1)
            run.update("progress", f"k{number}", {"n": number + 2})
        assert not producer.flush(60).waiting
        name = producer.producer_id
    poll(lambda: checks.waiting(on.client) == 0, message="the backlog to drain")
    on.stops()
    assert checks.sequences(on.data) == {("lossy", name): set(range(1, 102))}
    assert not checks.gaps(on.data)
    checks.check_all(on.data)


def test_an_idle_daemon_takes_up_work_at_once(on: Scene) -> None:
    on.start()
    on.opens()
    # On a busy machine one may be late; one that polls, or that sleeps ever longer, is each time.
    assert any(takes_up_s(on) < AT_ONCE_S for _ in range(5))
    assert not on.running.said("waiting")
    on.all_is_well()


def takes_up_s(on: Scene) -> float:
    """How long some work takes after a while without any."""
    time.sleep(3)
    began = time.monotonic()
    on.send(20)
    on.drained(GOES_ON_S)
    return time.monotonic() - began
