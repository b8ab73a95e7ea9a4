"""The bound of the buffer, and threads that share a producer."""

from __future__ import annotations

import signal
import time
from threading import Thread
from typing import Any

import pytest
import redis

from producers import BufferFull, Producer, ProducerClosed, ProducerSettings, Sent
from tests.producers.reading import NOWHERE, PARTITIONS, messages
from tests.support.servers import Kind, RealServer, real_server
from tests.support.wait import poll

BYTES_MAX = 50_000


def fill(producer: Producer) -> list[Sent]:
    """Say things until the buffer is full."""
    handles = []
    run = producer.run("r")
    while producer.status().waiting_bytes + 3_000 < BYTES_MAX:
        handles.append(run.snapshot({"text": "x" * 1_000}))
    return handles


def test_a_full_buffer_raises_at_once_if_told_so_and_uses_up_no_sequence() -> None:
    producer = Producer(
        NOWHERE,
        partitions=1,
        buffer_bytes_max=BYTES_MAX,
        when_full="raise",
        block_timeout_ms=60_000,
    )
    handles = fill(producer)
    started = time.monotonic()
    with pytest.raises(BufferFull):
        producer.run("r").snapshot({"text": "x" * 4_000})
    assert time.monotonic() - started < 30
    assert producer.run("r").resume().seq == handles[-1].seq + 1
    assert producer.status().waiting_bytes <= BYTES_MAX
    assert producer.close(0).undelivered == len(handles) + 1


def test_a_full_buffer_blocks_for_its_time_and_then_raises() -> None:
    producer = Producer(
        NOWHERE, partitions=1, buffer_bytes_max=BYTES_MAX, when_full="block", block_timeout_ms=150
    )
    fill(producer)
    started = time.monotonic()
    with pytest.raises(BufferFull, match="status"):
        producer.run("r").snapshot({"text": "x" * 4_000})
    assert time.monotonic() - started > 0.14
    producer.close(0)


def test_a_blocked_call_goes_on_when_redis_takes_something(server_kind: Kind) -> None:
    with real_server(server_kind) as server:
        server.stop()
        with Producer(
            server.url,
            partitions=PARTITIONS,
            buffer_bytes_max=BYTES_MAX,
            when_full="block",
            block_timeout_ms=60_000,
        ) as producer:
            handles = fill(producer)
            late: list[Sent] = []
            thread = Thread(
                target=lambda: late.append(producer.run("r").snapshot({"text": "x" * 4_000}))
            )
            thread.start()
            server.start()
            thread.join(60)
            assert late[0].seq == handles[-1].seq + 1
            assert producer.flush(60).waiting == 0


def test_a_blocked_call_ends_when_the_producer_is_closed() -> None:
    producer = Producer(
        NOWHERE,
        partitions=1,
        buffer_bytes_max=BYTES_MAX,
        when_full="block",
        block_timeout_ms=60_000,
    )
    fill(producer)
    errors: list[BaseException] = []

    def call() -> None:
        try:
            producer.run("r").snapshot({"text": "x" * 4_000})
        except ProducerClosed as closed:
            errors.append(closed)

    thread = Thread(target=call)
    thread.start()
    producer.close(0.05)
    thread.join(30)
    assert len(errors) == 1


def test_a_command_larger_than_the_buffer_is_refused_without_waiting() -> None:
    producer = Producer(
        NOWHERE,
        partitions=1,
        buffer_bytes_max=BYTES_MAX,
        when_full="block",
        block_timeout_ms=60_000,
    )
    with pytest.raises(BufferFull, match="buffer_bytes_max"):
        producer.run("r").snapshot({"text": "x" * BYTES_MAX})
    producer.close(0)


def test_a_body_of_16_mib_travels_among_small_ones(
    redis_server: RealServer, redis_client: redis.Redis
) -> None:
    with Producer(redis_server.url, partitions=PARTITIONS) as producer:
        run = producer.create_run("w", run_id="r")
        run.snapshot({"text": "x" * (16 * 1024 * 1024 - 100)})
        run.resume()
        assert producer.flush(60).waiting == 0
    assert [message.seq for message in messages(redis_client, "r")] == [1, 2, 3]


def test_twenty_threads_share_a_producer_and_each_runs_order_holds(
    redis_server: RealServer, redis_client: redis.Redis
) -> None:
    calls = 100
    with Producer(redis_server.url, partitions=PARTITIONS) as producer:
        handles: dict[int, list[Sent]] = {number: [] for number in range(20)}

        def talk(number: int) -> None:
            own, shared = producer.run(f"own-{number}"), producer.run("shared")
            for n in range(calls):
                handles[number].append(own.snapshot({"n": n}))
                shared.update("progress", f"key-{number}", {"n": n})

        threads = [Thread(target=talk, args=(number,)) for number in handles]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert producer.flush(60) == (20 * calls * 2, 0, None)

    for number, sent in handles.items():
        own = messages(redis_client, f"own-{number}")
        assert [message.seq for message in own] == list(range(1, calls + 1))
        assert [message.message_id for message in own] == [handle.message_id for handle in sent]
        assert [(message.body or {})["state"]["n"] for message in own] == list(range(calls))
    shared = messages(redis_client, "shared")
    assert [message.seq for message in shared] == list(range(1, 20 * calls + 1))
    for number in handles:
        said = [message.body for message in shared if message.body]
        of_thread = [body["data"]["n"] for body in said if body["key"] == f"key-{number}"]
        assert of_thread == list(range(calls))


def test_a_flush_does_not_wait_for_what_is_said_after_it(server_kind: Kind) -> None:
    # However far the sender is behind who talks, a flush has no more to wait for than this holds.
    settings = ProducerSettings(when_full="block", block_timeout_ms=60_000)
    with (
        real_server(server_kind) as server,
        Producer(
            server.url, partitions=PARTITIONS, settings=settings, buffer_bytes_max=2_000_000
        ) as producer,
    ):
        talking = True

        def talk() -> None:
            while talking:
                producer.run("busy").resume()

        thread = Thread(target=talk)
        thread.start()
        poll(lambda: producer.status().accepted > 100)
        flushed = [producer.flush(60).waiting for _ in range(5)]
        talking = False
        thread.join()
        assert flushed == [0] * 5


def test_a_signal_handler_may_speak_and_close_whatever_it_interrupts(
    redis_server: RealServer, redis_client: redis.Redis
) -> None:
    said = 0
    ends = False

    def speak(*_: object) -> None:
        nonlocal said
        said += 1
        session.event("signal", {})
        # The next one comes after this one: else those that wait for a lock pile up.
        if not ends:
            signal.setitimer(signal.ITIMER_REAL, 0.000_3)

    with Producer(redis_server.url, partitions=PARTITIONS) as producer:
        session = producer.run("r").session("s")
        session.bind()
        before = signal.signal(signal.SIGALRM, speak)
        signal.setitimer(signal.ITIMER_REAL, 0.000_3)
        try:
            run = producer.run("r")
            calls = 0
            while said < 200:
                run.resume()
                calls += 1
        finally:
            ends = True
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert producer.flush(60).waiting == 0
    seqs = sorted(message.seq or 0 for message in messages(redis_client, "r"))
    assert seqs == list(range(1, 1 + calls + said + 1))


def test_commands_close_after_each_other_travel_together(
    redis_server: RealServer, redis_client: redis.Redis
) -> None:
    with Producer(redis_server.url, partitions=1) as producer:
        run = producer.create_run("w")
        producer.flush(60)
        redis_client.config_resetstat()
        started = time.monotonic()
        for _ in range(300):
            run.resume()
        producer.flush(60)
        took_ms = (time.monotonic() - started) * 1_000
        # A mark for each batch.
        statistics: Any = redis_client.info("commandstats")
        assert statistics["cmdstat_xadd"]["calls"] == 300
        assert statistics["cmdstat_zadd"]["calls"] <= took_ms + 2
