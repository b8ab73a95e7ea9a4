"""Sending as any host may: in order, all of a partition's batch or none of it."""

from __future__ import annotations

from time import monotonic
from typing import Any

import pytest
import redis

from producers.contract.envelope import encode
from producers.contract.keys import Keys, partition_of
from tests.support.servers import real_server
from writer.errors import RedisUnavailable
from writer.streams.backlog import backlog, existing, last_sequence
from writer.streams.link import connect
from writer.streams.publish import Outgoing, Publisher, agree

PARTITIONS = 2
KEYS = Keys()


def outgoing(run: str, seq: int, text: str = "", producer: str = "p") -> Outgoing:
    """A command of a run."""
    body = {"title": text or f"{seq}"}
    return Outgoing(run, encode("run.annotate", body, producer=producer, seq=seq))


def stream(run: str) -> str:
    """The key of a run's stream."""
    return KEYS.run(partition_of(run, PARTITIONS), run)


def test_each_run_keeps_its_order_and_is_marked(redis_client: redis.Redis) -> None:
    runs = ["a", "b", "c", "d"]
    items = [outgoing(run, seq) for seq in range(1, 6) for run in runs]
    ids = Publisher(redis_client, KEYS, PARTITIONS).publish(items)
    for run in runs:
        stored: Any = redis_client.xrange(stream(run))
        assert [int(fields[b"seq"]) for _, fields in stored] == [1, 2, 3, 4, 5]
        expected = [
            message_id for item, message_id in zip(items, ids, strict=True) if item.run == run
        ]
        assert [message_id.decode() for message_id, _ in stored] == expected
    marked: set[bytes] = set()
    for partition in range(PARTITIONS):
        names: Any = redis_client.zrange(KEYS.ready(partition), 0, -1)
        marked.update(names)
    assert marked == {run.encode() for run in runs}


def test_nothing_is_nothing(redis_client: redis.Redis) -> None:
    assert Publisher(redis_client, KEYS, PARTITIONS).publish([]) == []


def test_a_full_server_takes_all_of_a_batch_or_nothing() -> None:
    with (
        real_server(settings={"maxmemory": "8mb", "maxmemory-policy": "noeviction"}) as server,
        connect(server.url) as client,
    ):
        publisher = Publisher(client, KEYS, PARTITIONS)
        taken = 0
        refused = None
        while refused is None:
            batch = [outgoing("full", taken + place, "x" * 900) for place in range(1, 101)]
            try:
                publisher.publish(batch, patience_s=0)
                taken += len(batch)
            except RedisUnavailable as error:
                refused = error
        assert "maxmemory" in f"{refused} {refused.hint}"
        assert client.xlen(stream("full")) == taken


def test_what_will_not_pass_is_told_at_once(redis_client: redis.Redis) -> None:
    redis_client.set(stream("other"), "of another type")
    began = monotonic()
    with pytest.raises(RedisUnavailable, match="WRONGTYPE"):
        Publisher(redis_client, KEYS, PARTITIONS).publish([outgoing("other", 1)], patience_s=120)
    assert monotonic() - began < 60


def test_a_server_that_comes_back_gets_it(redis_client: redis.Redis) -> None:
    with real_server(settings={"appendonly": "yes"}) as server, connect(server.url) as client:
        publisher = Publisher(client, KEYS, PARTITIONS)
        publisher.publish([outgoing("back", 1)])
        server.restart()
        publisher.publish([outgoing("back", 2)], patience_s=60)
        assert client.xlen(stream("back")) == 2


def test_the_first_to_agree_sets_the_number(redis_client: redis.Redis) -> None:
    assert agree(redis_client, KEYS, 3) == 3
    assert agree(redis_client, KEYS, 5) == 3


def test_the_last_sequence_that_waits(redis_client: redis.Redis) -> None:
    publisher = Publisher(redis_client, KEYS, PARTITIONS)
    assert last_sequence(redis_client, KEYS, PARTITIONS, "s", "mine") == 0
    publisher.publish([outgoing("s", seq, producer="mine") for seq in (1, 2, 3)])
    publisher.publish([outgoing("s", seq, producer="other") for seq in range(1, 121)])
    assert last_sequence(redis_client, KEYS, PARTITIONS, "s", "mine") == 3
    assert last_sequence(redis_client, KEYS, PARTITIONS, "s", "other") == 120
    assert last_sequence(redis_client, KEYS, PARTITIONS, "s", "nobody") == 0


def test_which_runs_have_a_stream(redis_client: redis.Redis) -> None:
    Publisher(redis_client, KEYS, PARTITIONS).publish([outgoing("here", 1)])
    assert existing(redis_client, KEYS, PARTITIONS, ["here", "gone"]) == {"here"}
    assert existing(redis_client, KEYS, PARTITIONS, []) == frozenset()


def test_the_backlog_is_what_stands_behind_the_cursors(redis_client: redis.Redis) -> None:
    publisher = Publisher(redis_client, KEYS, 1)
    ids = publisher.publish([outgoing("part", seq) for seq in range(1, 11)])
    publisher.publish([outgoing("new", seq) for seq in range(1, 4)])
    done = publisher.publish([outgoing("done", 1)])
    cursors = {"part": ids[6], "done": done[0]}
    found = backlog(
        redis_client, KEYS, 0, lambda runs: {run: cursors[run] for run in runs if run in cursors}
    )
    assert (found.messages, found.streams) == (3 + 3, 2)
    assert found.oldest_ms is not None
    assert found.oldest_ms >= int(ids[7].partition("-")[0])
    assert found.ahead == {}


def test_a_stream_that_was_replaced_waits_whole(redis_client: redis.Redis) -> None:
    """Its ids run behind the cursor, and it will be read from its start."""
    redis_client.xadd(KEYS.run(0, "replaced"), {"v": "1"}, id="5-1")
    found = backlog(redis_client, KEYS, 0, lambda _: {"replaced": "1700000000000-0"})
    assert found.messages == 1
