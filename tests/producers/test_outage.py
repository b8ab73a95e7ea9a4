"""Redis away, killed, slow, full, refusing: everything arrives afterwards, in order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import orjson
import pytest
import redis

from producers import MetaMismatch, Producer, ProducerSettings, Sent
from producers.contract.keys import partition_of
from producers.contract.limits import PARTITIONS_MAX
from tests.producers.reading import (
    NOWHERE,
    PARTITIONS,
    first_arrivals,
    messages,
    ready_of,
    stream_of,
)
from tests.support.servers import Kind, RealServer, real_server
from tests.support.wait import poll


def assert_arrived(client: redis.Redis, run: str, handles: list[Sent]) -> None:
    """The run's stream holds these commands in order; some may be there more than once."""
    arrived = first_arrivals(messages(client, run))
    assert [message.seq for message in arrived] == [handle.seq for handle in handles]
    ids = {message.message_id for message in messages(client, run)}
    assert all(handle.message_id in ids for handle in handles)


def await_accepted(producer: Producer, wanted: int) -> None:
    """Wait until Redis has accepted so many commands at least."""
    poll(lambda: producer.status().accepted >= wanted, message=f"{wanted} to be accepted")


@contextmanager
def stopped_server(kind: Kind) -> Iterator[RealServer]:
    """A server of this test's own, not running yet."""
    with real_server(kind) as server:
        server.stop()
        yield server
        if not server.running():
            server.start()


def test_what_is_said_before_redis_runs_arrives_when_it_does(
    server_kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="statewriter.producer")
    # All of it stays in memory, however long saying it takes.
    settings = ProducerSettings(spool_after_ms=600_000)
    with stopped_server(server_kind) as server:
        with Producer(server.url, partitions=PARTITIONS, settings=settings) as producer:
            runs = [f"r{n}" for n in range(5)]
            handles: dict[str, list[Sent]] = {run: [] for run in runs}
            for _ in range(300):
                for run in runs:
                    handles[run].append(producer.run(run).snapshot({}))
            poll(lambda: producer.status().error, message="the sender to notice")
            assert producer.status().waiting == 1_500
            assert producer.status().waiting_bytes > 1_500 * 1_000
            assert not producer.status().connected
            server.start()
            assert producer.flush(60).waiting == 0
            poll(lambda: "action=redis_regained" in caplog.text)
            assert producer.status().error is None
            assert producer.status().accepted == 1_500
        with server.client() as client:
            for run in runs:
                assert_arrived(client, run, handles[run])
                assert len(messages(client, run)) == 300
    actions = [record.getMessage().split()[0] for record in caplog.records]
    assert actions == ["action=redis_lost", "action=redis_regained"]
    assert f"redis={server.url} " in caplog.records[0].getMessage()


def test_a_server_killed_under_load_loses_nothing_that_was_accepted_and_gets_the_rest(
    server_kind: Kind,
) -> None:
    durable = {"appendonly": "yes", "appendfsync": "always"}
    with real_server(server_kind, durable) as server:
        handles: dict[str, list[Sent]] = {f"r{n}": [] for n in range(4)}
        with Producer(server.url, partitions=PARTITIONS) as producer:

            def talk(run: str) -> None:
                spoken = producer.run(run)
                for n in range(1_000):
                    handles[run].append(spoken.snapshot({"n": n, "text": "x" * 500}))

            threads = [Thread(target=talk, args=(run,)) for run in handles]
            for thread in threads:
                thread.start()
            for wanted in (300, 1_500):
                await_accepted(producer, wanted)
                server.kill()
                server.start()
            for thread in threads:
                thread.join()
            assert producer.flush(60).waiting == 0
        with server.client() as client:
            for run, sent in handles.items():
                assert len(sent) == 1_000
                assert_arrived(client, run, sent)


def test_answers_that_come_too_late_make_repeats_under_the_same_sequences(
    server_kind: Kind,
) -> None:
    with real_server(server_kind) as server:
        with server.client() as client:
            client.hset("sw:meta", "partitions", PARTITIONS)
        settings = ProducerSettings(reply_timeout_ms=500, connect_timeout_ms=500)
        with Producer(server.url, partitions=PARTITIONS, settings=settings) as producer:
            run = producer.run("r")
            handles = [run.snapshot({"n": 0})]
            producer.flush(60)
            server.pause()
            handles += [run.snapshot({"n": n}) for n in range(1, 200)]
            poll(lambda: producer.status().error, message="the timeout")
            server.resume()
            assert producer.flush(60).waiting == 0
        with server.client() as client:
            assert_arrived(client, "r", handles)
            assert len(messages(client, "r")) > 200


def fill(client: redis.Redis) -> None:
    client.config_set("maxmemory", "1")


def empty(client: redis.Redis) -> None:
    client.config_set("maxmemory", "0")


def demote(client: redis.Redis) -> None:
    client.replicaof("127.0.0.1", 1)


def promote(client: redis.Redis) -> None:
    client.replicaof("NO", "ONE")


def lock_out(client: redis.Redis) -> None:
    client.acl_setuser("default", enabled=True, reset=True, nopass=True, commands=["+acl"])


def let_in(client: redis.Redis) -> None:
    client.acl_setuser("default", enabled=True, nopass=True, categories=["+@all"], keys=["*"])


@pytest.mark.parametrize(
    "harm, mend, says",
    [
        pytest.param(fill, empty, "maxmemory", id="full"),
        pytest.param(demote, promote, "read only replica", id="a replica"),
        pytest.param(lock_out, let_in, "permission", id="not allowed"),
    ],
)
def test_a_server_that_refuses_gets_everything_in_order_when_it_takes_it_again(
    harm: Callable[[redis.Redis], None],
    mend: Callable[[redis.Redis], None],
    says: str,
    server_kind: Kind,
) -> None:
    with real_server(server_kind) as server, server.client() as client:
        with Producer(server.url, partitions=PARTITIONS) as producer:
            run = producer.run("r")
            handles = [run.snapshot({}) for _ in range(10)]
            producer.flush(60)
            harm(client)
            handles += [run.snapshot({}) for _ in range(300)]
            poll(lambda: producer.status().error, message="the refusal")
            flushed = producer.flush(0.05)
            assert flushed.waiting == 300
            assert says in (flushed.error or "")
            mend(client)
            assert producer.flush(60).waiting == 0
        assert_arrived(client, "r", handles)


def test_a_wrong_password_is_surfaced_once_and_nothing_is_dropped(
    server_kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    with real_server(server_kind) as server, server.client() as client:
        client.config_set("requirepass", "right")
        url = f"unix://:wrong-pw@{server.url.removeprefix('unix://')}"
        with Producer(url, partitions=PARTITIONS) as producer:
            run = producer.run("r")
            handles = [run.snapshot({})]
            poll(lambda: producer.status().error)
            handles.append(run.snapshot({}))
            assert producer.flush(0.3).error
            client.config_set("requirepass", "wrong-pw")
            assert producer.flush(60).waiting == 0
        assert_arrived(client, "r", handles)
    denials = [record for record in caplog.records if "redis_denies" in record.getMessage()]
    assert len(denials) == 1
    assert "wrong-pw" not in caplog.text


def test_one_run_that_redis_refuses_holds_up_no_other(
    redis_server: RealServer, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    redis_client.set(stream_of("bad"), "not a stream")
    with Producer(redis_server.url, partitions=PARTITIONS) as producer:
        bad = [producer.run("bad").snapshot({}) for _ in range(700)]
        good = []
        for _ in range(20):
            good += [producer.run("good").snapshot({}) for _ in range(50)]
            await_accepted(producer, len(good))
        assert producer.flush(0.05).waiting == 700
        assert "WRONGTYPE" in (producer.status().error or "")
        redis_client.delete(stream_of("bad"))
        assert producer.flush(60).waiting == 0
    assert_arrived(redis_client, "good", good)
    assert_arrived(redis_client, "bad", bad)
    assert len([r for r in caplog.records if "redis_refuses" in r.getMessage()]) == 1


def test_what_redis_refuses_amid_a_run_keeps_back_all_that_follows(
    redis_server: RealServer, redis_client: redis.Redis
) -> None:
    last = 2**64 - 1
    # Room for two more ids: the third command fails, in one script with the two before it.
    redis_client.xadd(stream_of("r"), {"x": "y"}, id=f"{last}-{last - 2}")
    with Producer(redis_server.url, partitions=PARTITIONS) as producer:
        run = producer.run("r")
        handles = [run.snapshot({"n": n}) for n in range(300)]
        poll(lambda: handles[1].message_id)
        poll(lambda: producer.status().error)
        assert producer.flush(0.05).waiting == 298
        assert [handle.message_id for handle in handles[:3]] == [
            f"{last}-{last - 1}",
            f"{last}-{last}",
            None,
        ]
        redis_client.delete(stream_of("r"))
        assert producer.flush(60).waiting == 0
    arrived = messages(redis_client, "r")
    assert [message.seq for message in arrived] == list(range(3, 301))


def test_a_refused_mark_keeps_the_commands_back_too(
    redis_server: RealServer, redis_client: redis.Redis
) -> None:
    redis_client.set(ready_of("r"), "no set of marks")
    with Producer(redis_server.url, partitions=PARTITIONS) as producer:
        handles = [producer.run("r").snapshot({})]
        poll(lambda: producer.status().error)
        assert not redis_client.exists(stream_of("r"))
        redis_client.delete(ready_of("r"))
        producer.flush(60)
    assert_arrived(redis_client, "r", handles)
    assert redis_client.zscore(ready_of("r"), "r")


def test_a_mark_that_is_refused_later_costs_one_copy_at_most(
    redis_server: RealServer, redis_client: redis.Redis
) -> None:
    with Producer(redis_server.url, partitions=PARTITIONS) as producer:
        run = producer.run("r")
        handles = [run.snapshot({"n": 0})]
        producer.flush(60)
        redis_client.set(ready_of("r"), "no set of marks")
        handles.append(run.snapshot({"n": 1}))
        for _ in range(3):
            redis_client.config_resetstat()
            poll(lambda: "cmdstat_eval" in redis_client.info("commandstats"))
        assert producer.status().waiting == 1
        redis_client.delete(ready_of("r"))
        producer.flush(60)
    assert len(messages(redis_client, "r")) <= len(handles) + 1
    assert_arrived(redis_client, "r", handles)
    assert redis_client.zscore(ready_of("r"), "r")


# --- finding the server and the number of partitions ------------------------------------------


def test_the_data_folders_server_is_found_when_it_comes_and_again_when_it_moves(
    server_kind: Kind, tmp_path: Path
) -> None:
    endpoint = tmp_path / "redis" / "endpoint.json"
    with Producer(data=tmp_path, partitions=PARTITIONS) as producer:
        run = producer.run("r")
        first = [run.snapshot({})]
        poll(lambda: "endpoint.json" in (producer.status().error or ""))
        endpoint.parent.mkdir()
        endpoint.write_text('{"url": "unix:///half-wri')
        with real_server(server_kind) as one, real_server(server_kind) as two:
            endpoint.write_bytes(orjson.dumps({"url": one.url, "label": "any"}))
            assert producer.flush(60).waiting == 0
            endpoint.write_bytes(orjson.dumps({"url": two.url}))
            one.stop()
            second = [run.snapshot({})]
            assert producer.flush(60).waiting == 0
            with two.client() as client:
                assert_arrived(client, "r", second)
            one.start()
    assert first[0].message_id


def test_without_a_number_of_partitions_commands_wait_for_the_first_writer(
    redis_server: RealServer, redis_client: redis.Redis
) -> None:
    with Producer(redis_server.url) as producer:
        handles = [producer.run(f"r{n}").snapshot({}) for n in range(20)]
        poll(lambda: "sw:meta" in (producer.status().error or ""))
        assert producer.status().partitions is None
        assert redis_client.keys("sw:{*") == []
        redis_client.hset("sw:meta", mapping={"partitions": "7", "contract_version": "1"})
        assert producer.flush(60).waiting == 0
        assert producer.status().partitions == 7
    for handle in handles:
        assert redis_client.xlen(f"sw:{{{partition_of(handle.run, 7)}}}:run:{handle.run}") == 1


def test_two_numbers_of_partitions_are_an_error_at_the_call_until_they_agree(
    redis_server: RealServer, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    redis_client.hset("sw:meta", "partitions", "3")
    with Producer(redis_server.url, partitions=PARTITIONS) as producer:
        run = producer.run("r")
        handles = [run.resume()]
        poll(lambda: "3" in (producer.status().error or ""))
        with pytest.raises(MetaMismatch, match=r"2 partitions.* 3"):
            run.resume()
        assert redis_client.keys("sw:{*") == []
        redis_client.hset("sw:meta", "partitions", PARTITIONS)
        assert producer.flush(60).waiting == 0
        handles.append(run.resume())
        assert [handle.seq for handle in handles] == [1, 2]
    assert [r.levelname for r in caplog.records if "meta_mismatch" in r.getMessage()] == ["ERROR"]


def test_a_number_of_partitions_is_looked_for_until_the_first_writer_named_it(
    redis_server: RealServer, redis_client: redis.Redis
) -> None:
    producer = Producer(redis_server.url, partitions=PARTITIONS)
    run = producer.run("r")
    run.resume()
    assert producer.flush(60).waiting == 0
    redis_client.hset("sw:meta", "partitions", "3")
    run.resume()
    poll(lambda: producer.status().error)
    assert producer.close(0).spooled == 1
    assert redis_client.xlen(stream_of("r")) == 1


@pytest.mark.parametrize("value", ["", "0", "x", "-1", "1.0", str(PARTITIONS_MAX + 1)])
def test_a_number_of_partitions_that_is_none_is_an_error(
    value: str, redis_server: RealServer, redis_client: redis.Redis
) -> None:
    redis_client.hset("sw:meta", "partitions", value)
    producer = Producer(redis_server.url)
    producer.run("r").resume()
    poll(lambda: "prefix" in (producer.status().error or ""))
    assert producer.close(0).spooled == 1


def test_a_closed_producer_reports_what_it_could_not_deliver(
    caplog: pytest.LogCaptureFixture,
) -> None:
    producer = Producer(NOWHERE, partitions=1, when_full="block")
    for _ in range(3):
        producer.run("r").resume()
    poll(lambda: producer.status().error, message="the sender to notice")
    closed = producer.close(timeout_s=0.1)
    assert (closed.accepted, closed.undelivered) == (0, 3)
    assert closed.error
    assert producer.close() == closed
    lines = [r.getMessage() for r in caplog.records if "closed_undelivered" in r.getMessage()]
    assert len(lines) == 1
    assert "undelivered=3" in lines[0]
