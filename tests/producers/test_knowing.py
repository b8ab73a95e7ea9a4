"""How a host knows that its commands arrived and were applied: receipts, confirmation, leases."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event

import pytest
import redis

from producers import (
    AsyncProducer,
    BufferFull,
    CommandRejected,
    LeaseLost,
    NotConfirmed,
    Producer,
    ProducerSettings,
    Receipt,
)
from producers.contract.keys import Keys, partition_of
from tests.producers.reading import NOWHERE, PARTITIONS
from tests.producers.writing import await_applied, numbers, say, writing
from tests.support.servers import RealServer
from tests.support.wait import poll
from writer.store.reader import StateReader


@pytest.fixture
def reader(redis_server: RealServer, tmp_path: Path) -> Iterator[StateReader]:
    with writing(tmp_path / "data", redis_server.url) as made:
        yield made


@pytest.fixture
def producer(redis_server: RealServer) -> Iterator[Producer]:
    with Producer(redis_server.url) as made:
        yield made


def test_a_confirmed_call_returns_when_the_writer_has_applied_it(
    producer: Producer, reader: StateReader
) -> None:
    run = producer.create_run("w", confirm=True)
    sent = run.snapshot({"n": 1}, confirm=True)
    assert sent.receipt is not None
    assert (sent.receipt.outcome, sent.receipt.revision) == ("applied", 2)
    assert reader.state(run.id) == {"n": 1}


def test_a_confirmed_call_that_the_writer_refuses_raises_with_the_reason(
    producer: Producer, reader: StateReader
) -> None:
    run = producer.run("never-created")
    with pytest.raises(CommandRejected, match="run_unknown") as caught:
        run.snapshot({}, confirm=True)
    assert caught.value.receipt is not None
    assert caught.value.receipt.reason == "run_unknown"


def test_any_handle_can_be_waited_for_and_says_what_the_first_one_came_to(
    producer: Producer, reader: StateReader
) -> None:
    run = producer.create_run("w")
    handles = [say(run, n) for n in range(5)]
    receipts = [producer.wait_applied(handle, 60) for handle in handles]
    assert [(r.outcome, r.revision) for r in receipts] == [("applied", n) for n in range(2, 7)]
    found = reader.run(run.id)
    assert found is not None
    # Only what had been asked for without a receipt was sent again.
    assert (found["cursor"]["applied"], found["cursor"]["duplicates"]) == (6, 5)


def test_a_receipt_that_got_lost_is_asked_for_again_with_the_same_sequence(
    redis_server: RealServer, redis_client: redis.Redis, tmp_path: Path
) -> None:
    settings = ProducerSettings(receipt_timeout_ms=100, partitions=PARTITIONS)
    with Producer(redis_server.url, settings=settings) as producer:
        key = Keys().reply(partition_of("r", PARTITIONS), producer.producer_id)
        # In the place of the stream of receipts: whatever is appended to it is lost.
        redis_client.set(key, "no stream")
        producer.create_run("w", run_id="r")
        with writing(tmp_path / "data", redis_server.url) as reader:
            run = producer.run("r")
            handle = run.snapshot({"n": 1})
            producer.flush(60)
            with pytest.raises(NotConfirmed, match="accepted"):
                producer.wait_applied(handle, timeout_s=0.3)
            handle = run.snapshot({"n": 2})
            producer.flush(60)
            redis_client.delete(key)
            receipt = producer.wait_applied(handle, 60)
            assert (receipt.outcome, receipt.revision) == ("applied", 3)
            assert reader.state("r") == {"n": 2}


def test_without_a_writer_nothing_is_confirmed(redis_server: RealServer) -> None:
    with Producer(redis_server.url, partitions=PARTITIONS) as producer:
        handle = producer.run("r").resume()
        producer.flush(60)
        with pytest.raises(NotConfirmed, match="accepted"):
            producer.wait_applied(handle, timeout_s=0.2)
    away = Producer(NOWHERE, partitions=PARTITIONS)
    with pytest.raises(NotConfirmed, match=r"waiting|spooled"):
        away.wait_applied(away.run("r").resume(), timeout_s=0.1)
    away.close(0)


def test_refusals_reach_the_callback_once_each(
    redis_server: RealServer, reader: StateReader
) -> None:
    heard: list[Receipt] = []
    with Producer(redis_server.url, on_rejected=heard.append) as producer:
        run = producer.create_run("w", run_id="r")
        run.snapshot({"n": 1})
        run.snapshot({}, expected_revision=99)
        producer.run("unknown").resume()
        poll(lambda: len(heard) == 2)
        producer.wait_applied(run.snapshot({"n": 2}), 60)
    assert {(receipt.run, receipt.seq, receipt.reason) for receipt in heard} == {
        ("r", 3, "revision_conflict"),
        ("unknown", 1, "run_unknown"),
    }


def test_a_callback_that_fails_is_logged_and_ends_nothing(
    redis_server: RealServer, reader: StateReader, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Receipt) -> None:
        raise RuntimeError("mine")

    with Producer(redis_server.url, on_rejected=fail) as producer:
        producer.run("unknown").resume()
        poll(lambda: "on_rejected_failed" in caplog.text)
        run = producer.create_run("w", confirm=True)
        assert run.resume().seq == 2


# --- leases -----------------------------------------------------------------------------------


def test_a_hold_claims_renews_and_releases(producer: Producer, reader: StateReader) -> None:
    run = producer.create_run("w")
    with run.hold("me", lease_ms=300) as hold:
        say(run, 1)
        await_applied(reader, run.id, 3)
        lease = (reader.run(run.id) or {})["lease"]
        assert (lease["owner_id"], lease["generation"]) == ("me", 1)
        # Renewed without a word of ours.
        poll(lambda: (reader.run(run.id) or {})["lease"]["renewed_at"] > lease["renewed_at"])
        assert hold.lost is None
    producer.wait_applied(say(run, 2), 60)
    assert (reader.run(run.id) or {})["lease"]["released_at"]
    assert reader.rejections(run=run.id).rejections == []


def test_the_old_owners_next_call_raises_once_another_one_has_the_run(
    redis_server: RealServer, producer: Producer, reader: StateReader
) -> None:
    run = producer.create_run("w")
    session = run.session("s")
    with pytest.raises(LeaseLost, match="lease_") as caught:  # noqa: PT012, SIM117
        with run.hold("old", lease_ms=60_000) as hold:
            session.bind()
            producer.wait_applied(say(run, 1), 60)
            with Producer(redis_server.url) as other:
                # The same owner from another process: granted at once, and the old token ends.
                theirs = other.run(run.id)
                with theirs.hold("old", confirm=True):
                    other.wait_applied(say(theirs, 2), 60)
                    say(run, 3)
                    poll(lambda: hold.lost)
                    with pytest.raises(LeaseLost):
                        say(run, 4)
                    with pytest.raises(LeaseLost):
                        run.update("progress", "k", {})
    assert caught.value.receipt is not None
    assert reader.state(run.id) == {"n": 2}


def test_a_hold_that_is_to_be_confirmed_does_not_begin_while_another_one_has_the_run(
    redis_server: RealServer, producer: Producer, reader: StateReader
) -> None:
    run = producer.create_run("w")
    begun = Event()
    with run.hold("first", confirm=True), Producer(redis_server.url) as other:
        with pytest.raises(LeaseLost, match="lease_held"):  # noqa: SIM117  # the order is the point
            with other.run(run.id).hold("second", confirm=True):
                begun.set()
        assert not begun.is_set()
        producer.wait_applied(say(run, 1), 60)
    assert reader.state(run.id) == {"n": 1}


# --- asyncio ----------------------------------------------------------------------------------


def test_the_async_face_says_the_same_and_awaits_what_waits(
    redis_server: RealServer, reader: StateReader
) -> None:
    async def host() -> None:
        async with AsyncProducer(redis_server.url) as producer:
            with producer.create_run("w", run_id="r") as run:
                for n in range(100):
                    say(run, n)
                with run.session("s") as session:
                    session.entry({"id": "e"})
                receipt = await producer.wait_applied(run.snapshot({"n": 100}, confirm=True), 60)
                assert receipt.outcome == "applied"
                with pytest.raises(CommandRejected):
                    await producer.wait_applied(producer.run("unknown").resume(), 60)
            assert (await producer.flush(60)).waiting == 0

    asyncio.run(host())
    poll(lambda: (reader.run("r") or {})["status"] == "completed")


def test_a_thousand_waits_at_once_each_get_their_receipt(
    redis_server: RealServer, reader: StateReader
) -> None:
    async def host() -> list[Receipt]:
        async with AsyncProducer(redis_server.url) as producer:
            run = producer.create_run("w", run_id="r")
            handles = [run.update("progress", f"k{n}", {}, confirm=True) for n in range(1_000)]
            return await asyncio.gather(*(producer.wait_applied(handle, 60) for handle in handles))

    receipts = asyncio.run(host())
    assert [receipt.revision for receipt in receipts] == list(range(2, 1_002))


def await_numbers(reader: StateReader, run: str, wanted: list[int]) -> None:
    poll(lambda: numbers(reader, run) == wanted)


def test_cancelled_tasks_tear_no_call_and_stop_no_sending(
    redis_server: RealServer, reader: StateReader
) -> None:
    said: dict[str, int] = {}

    async def talk(producer: AsyncProducer, name: str) -> None:
        run = producer.create_run("w", run_id=name)
        said[name] = 1
        while True:
            say(run, said[name])
            said[name] += 1
            if said[name] % 7 == 0:
                with suppress(NotConfirmed):
                    await producer.wait_applied(run.resume(), 0.001)
            await asyncio.sleep(0)

    async def host() -> None:
        async with AsyncProducer(redis_server.url) as producer:
            tasks = [asyncio.create_task(talk(producer, f"r{n}")) for n in range(10)]
            await asyncio.wait(tasks, timeout=0.3)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert (await producer.flush(60)).waiting == 0

    asyncio.run(host())
    for name, count in said.items():
        await_numbers(reader, name, list(range(1, count)))


def test_a_task_that_is_cancelled_as_something_moves_ends() -> None:
    async def host() -> None:
        producer = AsyncProducer(NOWHERE, partitions=1)
        waits = asyncio.create_task(producer.wait_applied(producer.run("r").resume(), 60))
        await asyncio.sleep(0.05)
        producer._moved.set()
        waits.cancel()
        await asyncio.wait([waits], timeout=20)
        assert waits.cancelled()
        await producer.close(0)

    asyncio.run(host())


def test_a_full_buffer_never_blocks_the_loop_and_room_can_be_awaited() -> None:
    async def host() -> None:
        producer = AsyncProducer(NOWHERE, partitions=1, when_full="block", buffer_bytes_max=50_000)
        run = producer.run("r")
        with pytest.raises(BufferFull):  # noqa: PT012
            for _ in range(100):
                run.snapshot({"text": "x" * 1_000})
        with pytest.raises(BufferFull):
            await producer.room(0.05)
        assert (await producer.close(0.05)).undelivered > 10

    asyncio.run(host())
