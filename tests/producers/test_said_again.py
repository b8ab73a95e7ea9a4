"""What was refused since another had changed the state is said again, and nobody can tell."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from threading import Barrier, Thread
from typing import Any

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
    Run,
    Sent,
)
from producers.receipts import OnReceipt
from tests.producers.reading import PARTITIONS
from tests.producers.stating import overwrite, refused, say, state, state_at, told, unanswered
from tests.producers.test_lifecycle import run_script
from tests.producers.writing import await_applied
from tests.support.proxy import proxy
from tests.support.servers import RealServer
from tests.support.wait import poll
from writer.store.reader import StateReader


def test_what_was_refused_since_another_wrote_is_said_again_and_nobody_hears_of_it(
    redis_server: RealServer,
    producer: Producer,
    other: Producer,
    reader: StateReader,
    heard: list[Receipt],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "statewriter.producer")
    run = producer.create_run("w", run_id="r", state=state_at(0), confirm=True)
    overwrite(other)
    with unanswered(redis_server):
        handles = [say(run, n) for n in range(1, 6)]
    assert {handle.kind for handle in handles} == {"run.patch"}
    receipts = [producer.wait_applied(handle, 60) for handle in handles]
    assert [receipt.outcome for receipt in receipts] == ["applied"] * 5
    assert [handle.receipt for handle in handles] == receipts
    assert {handle.state for handle in handles} == {"accepted"}
    assert told(reader) == [-1, 1, 2, 3, 4, 5]
    for receipt, n in zip(receipts, range(1, 6), strict=True):
        assert state(reader, "r", receipt.revision) == state_at(n)
    assert refused(reader) == ["base_changed"] * 5
    assert heard == []
    assert caplog.text.count("action=state_resent run=r") == 1
    # And the chain goes on upon what was said again.
    sent = say(run, 6)
    assert sent.kind == "run.patch"
    producer.wait_applied(sent, 60)
    assert state(reader) == state_at(6)
    assert len(refused(reader)) == 5


def test_a_whole_state_that_was_said_meanwhile_stays_the_last_one_and_the_events_come_late(
    producer: Producer, other: Producer, reader: StateReader, heard: list[Receipt]
) -> None:
    run = producer.create_run("w", run_id="r", state=state_at(0), confirm=True)
    overwrite(other)
    lost = [say(run, 1), say(run, 2)]
    run.send("run.snapshot", {"state": state_at(3)})
    kept = say(run, 4)
    assert [producer.wait_applied(each, 60).outcome for each in (*lost, kept)] == ["applied"] * 3
    assert state(reader) == state_at(4)
    assert sorted(told(reader)) == [-1, 1, 2, 4]
    assert heard == []
    producer.wait_applied(say(run, 5), 60)
    assert state(reader) == state_at(5)


def test_who_loses_again_and_again_sends_whole_states_from_then_on(
    producer: Producer, other: Producer, reader: StateReader, heard: list[Receipt]
) -> None:
    run = producer.create_run("w", run_id="r", state=state_at(0), confirm=True)
    for n in range(1, 4):
        overwrite(other)
        sent = say(run, n)
        assert sent.kind == "run.patch"
        assert producer.wait_applied(sent, 60).outcome == "applied"
    sent = say(run, 4)
    assert sent.kind == "run.snapshot"
    producer.wait_applied(sent, 60)
    assert state(reader) == state_at(4)
    assert told(reader) == [-1, 1, -1, 2, -1, 3, 4]
    assert heard == []


def test_an_applied_patch_in_between_starts_the_count_again(
    producer: Producer, other: Producer, reader: StateReader
) -> None:
    run = producer.create_run("w", run_id="r", state=state_at(0), confirm=True)
    for n in range(1, 13, 2):
        overwrite(other)
        for each in (n, n + 1):
            sent = say(run, each)
            assert sent.kind == "run.patch"
            producer.wait_applied(sent, 60)
    assert state(reader) == state_at(12)


def test_a_snapshot_of_ours_that_is_refused_takes_nothing_with_it(
    producer: Producer, reader: StateReader, heard: list[Receipt]
) -> None:
    run = producer.create_run("w", run_id="r", state=state_at(0), confirm=True)
    say(run, 1)
    run.snapshot(state_at(9), expected_revision=99)
    handles = [say(run, n) for n in range(2, 5)]
    assert [producer.wait_applied(handle, 60).outcome for handle in handles] == ["applied"] * 3
    assert state(reader) == state_at(4)
    assert told(reader) == [1, 2, 3, 4]
    assert [receipt.reason for receipt in heard] == ["revision_conflict"]


def test_refusals_of_another_kind_are_the_hosts_to_know(
    producer: Producer, other: Producer, reader: StateReader, heard: list[Receipt]
) -> None:
    run = producer.create_run("w", run_id="r", state=state_at(0), confirm=True)
    other.wait_applied(other.run("r").complete(state=state_at(1)), 60)
    with pytest.raises(CommandRejected, match="run_terminal"):
        producer.wait_applied(say(run, 2), 60)
    # The callback is called after whoever waits may go on.
    poll(lambda: heard)
    assert [receipt.reason for receipt in heard] == ["run_terminal"]
    # Whole, since what it would build on was refused.
    assert say(run, 3).kind == "run.snapshot"


def test_whoever_lost_the_lease_says_nothing_again(
    redis_server: RealServer,
    producer: Producer,
    other: Producer,
    reader: StateReader,
    heard: list[Receipt],
) -> None:
    run = producer.create_run("w", run_id="r", state=state_at(0), confirm=True)
    with pytest.raises(LeaseLost), run.hold("me"):  # noqa: PT012
        producer.wait_applied(say(run, 1), 60)
        theirs = other.run("r")
        theirs.claim("me", confirm=True)
        other.wait_applied(say(theirs, -1), 60)
        with unanswered(redis_server):
            said = [say(run, 2), say(run, 3)]
        for sent in said:
            with pytest.raises(LeaseLost):
                producer.wait_applied(sent, 60)
        say(run, 4)
    assert told(reader) == [1, -1]
    poll(lambda: len(heard) >= 2)
    assert {receipt.reason for receipt in heard} == {"lease_token_changed"}


def test_nothing_is_said_again_after_the_run_has_ended(
    redis_server: RealServer,
    producer: Producer,
    other: Producer,
    reader: StateReader,
    heard: list[Receipt],
) -> None:
    run = producer.create_run("w", run_id="r", state=state_at(0), confirm=True)
    overwrite(other)
    with unanswered(redis_server):
        say(run, 1)
        say(run, 2)
        run.complete()
    poll(lambda: (reader.run("r") or {})["status"] == "completed")
    assert state(reader)["n"] == 2
    poll(lambda: len(heard) == 2)
    assert {receipt.reason for receipt in heard} == {"base_changed"}


# --- one run, many who speak ------------------------------------------------------------------


def test_two_objects_of_one_run_build_on_each_other(
    producer: Producer, reader: StateReader, heard: list[Receipt]
) -> None:
    one = producer.create_run("w", run_id="r", state=state_at(0))
    two = producer.run("r")
    for n in range(1, 21):
        assert say(one if n % 2 else two, n).kind in ("run.patch", "run.snapshot")
    await_applied(reader, "r", 21)
    assert told(reader) == list(range(1, 21))
    assert state(reader) == state_at(20)
    assert refused(reader) == []


def test_threads_that_share_a_run_lose_nothing(
    producer: Producer, other: Producer, reader: StateReader, heard: list[Receipt]
) -> None:
    run = producer.create_run("w", run_id="r", state=state_at(0), confirm=True)
    together = Barrier(5)
    said: dict[int, list[Sent]] = {}

    def talk(number: int) -> None:
        together.wait()
        said[number] = [say(run, 100 * number + step % 7, at=step) for step in range(30)]

    def disturb() -> None:
        together.wait()
        for _ in range(6):
            overwrite(other)

    threads = [Thread(target=talk, args=(n,)) for n in range(4)] + [Thread(target=disturb)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    handles = [sent for each in said.values() for sent in each]
    for sent in handles:
        assert producer.wait_applied(sent, 60).outcome == "applied"
    assert sorted(told(reader)) == sorted(
        [-1] * 6 + [100 * n + step % 7 for n in range(4) for step in range(30)]
    )
    assert heard == []
    # All of them are of one producer: who was said last is last.
    last = max((sent.latest for sent in handles), key=lambda sent: sent.seq)
    assert producer.wait_applied(last, 60).revision
    assert state(reader, "r", producer.wait_applied(last, 60).revision) in [
        state_at(100 * n + step % 7, at=step) for n in range(4) for step in range(30)
    ]


@pytest.mark.parametrize("seed", range(2))
def test_whatever_two_producers_say_at_once_over_a_bad_link_is_there_once(
    seed: int, redis_server: RealServer, reader: StateReader, heard: list[Receipt]
) -> None:
    wanted: Counter[int] = Counter()
    said: list[tuple[Producer, Sent]] = []

    def talk(producer: Producer, number: int) -> None:
        run, chance = producer.run("r"), Random(10 * seed + number)
        for step in range(30):
            n = 10 * number + step % 5
            wanted[n] += 1
            said.append((producer, say(run, n, at=[number, step])))
            match chance.randrange(12):
                case 0:
                    run.send("run.snapshot", {"state": state_at(3, at=number)})
                case 1:
                    run.snapshot(state_at(1), expected_revision=9_999)
                case 2:
                    between.eat_replies(1)
                case 3 | 4:
                    producer.flush(60)

    with (
        proxy(redis_server.folder) as between,
        Producer(between.url, partitions=PARTITIONS, on_rejected=heard.append) as one,
        Producer(redis_server.url, partitions=PARTITIONS, on_rejected=heard.append) as two,
    ):
        one.create_run("w", run_id="r", state=state_at(0), confirm=True)
        threads = [Thread(target=talk, args=(p, n)) for n, p in enumerate((one, one, two))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for producer, sent in said:
            assert producer.wait_applied(sent, 60).outcome == "applied"
        assert Counter(told(reader)) == wanted
        assert {receipt.reason for receipt in heard} <= {"revision_conflict"}


def test_the_async_face_says_again_what_was_refused(
    redis_server: RealServer, other: Producer, reader: StateReader
) -> None:
    async def host() -> list[Receipt]:
        async with AsyncProducer(redis_server.url, partitions=PARTITIONS) as producer:
            run = producer.create_run("w", run_id="r", state=state_at(0))
            await producer.wait_applied(say(run, 1), 60)
            await asyncio.to_thread(overwrite, other)
            handles = [say(run, n) for n in range(2, 6)]
            return [await producer.wait_applied(handle, 60) for handle in handles]

    assert [receipt.outcome for receipt in asyncio.run(host())] == ["applied"] * 4
    assert state(reader) == state_at(5)
    assert told(reader) == [1, -1, 2, 3, 4, 5]


# --- what is in the way of saying it again ----------------------------------------------------


@contextmanager
def cramped(url: str, policy: Any, on_rejected: OnReceipt) -> Iterator[tuple[Producer, Run]]:
    """A producer whose buffer is full of what Redis may not take yet, but for a patch or two."""
    settings = ProducerSettings(buffer_bytes_max=40_000, stream_messages_max=5)
    with Producer(
        url, partitions=PARTITIONS, settings=settings, when_full=policy, on_rejected=on_rejected
    ) as producer:
        run = producer.create_run("w", run_id="r", state=state_at(0), confirm=True)
        stuck = producer.create_run("w", run_id="stuck")
        for n in range(4):
            stuck.update("progress", f"k{n}", {})
        producer.flush(60)
        for n in range(6):
            stuck.update("progress", f"k{n}", {"text": "x" * 4_000})
        yield producer, run
        producer.close(0)


def test_a_refusal_stands_where_the_buffer_has_no_room_to_say_it_again(
    redis_server: RealServer,
    other: Producer,
    reader: StateReader,
    heard: list[Receipt],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with cramped(redis_server.url, "raise", heard.append) as (producer, run):
        overwrite(other)
        sent = say(run, 1)
        with pytest.raises(CommandRejected, match="base_changed"):
            producer.wait_applied(sent, 60)
        poll(lambda: heard)
        assert [(receipt.seq, receipt.reason) for receipt in heard] == [(2, "base_changed")]
        assert "action=state_unsent run=r" in caplog.text
        # Whole, for which there is no room either.
        with pytest.raises(BufferFull):
            say(run, 2)


def test_what_is_said_again_may_be_dropped_as_anything_and_counts(
    redis_server: RealServer, other: Producer, reader: StateReader, heard: list[Receipt]
) -> None:
    with cramped(redis_server.url, "drop", heard.append) as (producer, run):
        overwrite(other)
        sent = say(run, 1)
        with pytest.raises(NotConfirmed, match="dropped"):
            producer.wait_applied(sent, 60)
        assert sent.state == "dropped"
        assert producer.status().dropped == 1
        assert say(run, 2).kind == "run.snapshot"
        assert heard == []


def test_what_is_said_again_carries_the_trace_and_the_authority_of_its_run(
    redis_server: RealServer, other: Producer, reader: StateReader, redis_client: redis.Redis
) -> None:
    run = other.create_run("w", run_id="r", state=state_at(0), confirm=True)
    with run.hold("me", confirm=True):
        with unanswered(redis_server):
            run.snapshot(state_at(8), expected_revision=99)
            sent = say(run, 1)
        assert sent.kind == "run.patch"
        assert other.wait_applied(sent, 60).outcome == "applied"
        first, again = (sent.fields or {}), (sent.latest.fields or {})
        assert again[b"kind"] == b"run.snapshot"
        assert again[b"auth"] == first[b"auth"]
        assert again.get(b"trace") == first.get(b"trace")
    assert state(reader) == state_at(1)


FORK = """
import os
from producers import Producer
from tests.producers.stating import say, state_at
producer = Producer(partitions=2)
run = producer.create_run("w", run_id="r", state=state_at(0))
producer.wait_applied(say(run, 1), 60)
child = os.fork()
if child == 0:
    assert say(run, 2).kind == "run.snapshot"
    assert say(run, 3).kind == "run.patch"
    assert producer.close(60)[1:3] == (0, 0)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert say(run, 4).kind == "run.patch"
producer.wait_applied(say(run, 5), 60)
"""


def test_after_a_fork_each_side_builds_on_what_it_said_itself(
    redis_server: RealServer, reader: StateReader
) -> None:
    done = run_script(FORK, redis_server.url)
    assert (done.returncode, done.stderr) == (0, "")
    poll(lambda: len(told(reader)) == 5)
    assert sorted(told(reader)) == [1, 2, 3, 4, 5]
    assert state(reader) == state_at(5)


def test_a_run_that_nobody_holds_any_more_is_said_again_all_the_same(
    producer: Producer, other: Producer, reader: StateReader, heard: list[Receipt]
) -> None:
    run = producer.create_run("w", run_id="r", state=state_at(0), confirm=True)
    overwrite(other)
    say(run, 1)
    say(run, 2)
    del run
    gc.collect()
    poll(lambda: told(reader) == [-1, 1, 2])
    assert state(reader) == state_at(2)
    assert heard == []
