"""Large states travel as what changed, and nobody can tell: not from the database, not from the
calls, whoever else writes the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from producers import (
    BufferFull,
    InvalidCommand,
    NotConfirmed,
    Producer,
    ProducerSettings,
    Receipt,
    Run,
)
from tests.producers.reading import NOWHERE, PARTITIONS, bodies, raw_messages
from tests.producers.stating import BIG, kinds, overwrite, refused, say, state, state_at, told
from tests.producers.writing import applied, await_applied, settled, writing
from tests.support.proxy import proxy
from tests.support.servers import RealServer
from tests.support.wait import poll
from writer.store.reader import StateReader

# --- what travels -----------------------------------------------------------------------------


def test_a_large_state_travels_as_what_changed(
    producer: Producer, redis_client: redis.Redis
) -> None:
    run = producer.create_run("w", run_id="r", state=state_at(0))
    sent = say(run, 1)
    producer.flush(60)
    assert (sent.seq, sent.kind) == (2, "run.patch")
    (_, body) = bodies(redis_client, "r")[-1]
    assert body == {
        "base": 1,
        "set": [{"path": ["n"], "value": 1}],
        "splice": [
            {
                "path": ["steps"],
                "length": 10,
                "start": 10,
                "delete": 0,
                "items": state_at(1)["steps"][10:],
            }
        ],
        "event": {"type": "step", "payload": {"n": 1}},
    }


@pytest.mark.parametrize(
    "call",
    [
        lambda run: run.snapshot({"a": 1}),
        lambda run: run.snapshot({"other": BIG * 20}),
        lambda run: run.snapshot(state_at(1), confirm=True),
        lambda run: run.snapshot(state_at(1), expected_revision=2),
        lambda run: run.snapshot(state_at(1), expected_revision=1, on_conflict="merge"),
        lambda run: run.complete(),
        lambda run: run.fail("it broke", state_at(1)),
        lambda run: run.send("run.snapshot", {"state": state_at(1)}),
    ],
    ids=["small", "other", "confirmed", "expecting", "merged", "completed", "failed", "sent"],
)
def test_a_state_travels_whole_where_that_is_no_more_or_is_asked_for(
    call: Any, producer: Producer, reader: StateReader, redis_client: redis.Redis
) -> None:
    run = producer.create_run("w", run_id="r")
    say(run, 0)
    call(run)
    producer.flush(60)
    assert kinds(redis_client) == ["run.create", "run.snapshot", "run.snapshot"]


@pytest.mark.parametrize("call", ["resume", "interrupt", "reset", "patch", "merge", "raw"])
def test_after_what_only_the_writer_knows_the_next_one_is_whole(
    call: str, producer: Producer, redis_client: redis.Redis
) -> None:
    run = producer.create_run("w", run_id="r", state=state_at(0))
    if call == "patch":
        run.send("run.patch", {"base": 1})
    elif call == "merge":
        run.snapshot(state_at(0), expected_revision=1, on_conflict="merge")
    elif call == "raw":
        producer.send("r", "run.reset", {})
    else:
        getattr(run, call)()
    assert say(run, 1).kind == "run.snapshot"
    assert say(run, 2).kind == "run.patch"


def test_what_was_sent_by_hand_is_built_upon_and_other_commands_are_in_nobodys_way(
    producer: Producer, reader: StateReader
) -> None:
    run = producer.create_run("w", run_id="r")
    run.send("run.snapshot", {"state": state_at(0)})
    run.update("progress", "k", {})
    assert say(run, 1).kind == "run.patch"
    producer.send("r", "run.snapshot", {"state": state_at(5)})
    assert producer.wait_applied(say(run, 6), 60).outcome == "applied"
    assert state(reader) == state_at(6)
    assert refused(reader) == []


def test_a_codemation_create_is_completed_by_the_writer_and_not_built_upon(
    producer: Producer,
) -> None:
    run = producer.create_run("w", dialect="codemation", state={"runId": "r", "pad": BIG * 9})
    assert run.snapshot({"runId": "r", "pad": BIG * 9, "n": 1}).kind == "run.snapshot"


def test_it_can_be_turned_off_and_begins_at_the_size_that_is_set() -> None:
    for size, kind in ((0, "run.snapshot"), (2**30, "run.snapshot"), (1, "run.patch")):
        settings = ProducerSettings(delta_bytes_min=size)
        with Producer(NOWHERE, partitions=1, settings=settings, when_full="raise") as producer:
            run = producer.create_run("w", state={"a": "b" * 200, "n": 1})
            assert run.snapshot({"a": "b" * 200, "n": 2}).kind == kind
            producer.close(0)


def test_whoever_reads_gets_a_whole_state_before_the_patches_are_as_much_as_one(
    producer: Producer, redis_client: redis.Redis
) -> None:
    run = producer.create_run("w", run_id="r", state=state_at(0))
    for n in range(60):
        run.snapshot(state_at(0, pad=f"{n} {BIG}"))
    producer.flush(60)
    since = whole = 0
    for _, fields in raw_messages(redis_client, "r"):
        size = len(fields[b"body"])
        if fields[b"kind"] == b"run.patch":
            since += size
            assert since <= whole + 2 * len(BIG)
        else:
            since, whole = 0, size
    assert 4 <= kinds(redis_client).count("run.snapshot") <= 6


def test_what_a_whole_one_refuses_is_refused_with_the_place_and_nothing_is_forgotten(
    producer: Producer, reader: StateReader
) -> None:
    run = producer.create_run("w", run_id="r", state=state_at(0))
    for bad, place in (
        (state_at(0, cost=float("nan")), "state.cost"),
        (state_at(0, cost={1}), "state.cost"),
        (state_at(0) | {"steps": {1: BIG}}, "state.steps"),
    ):
        with pytest.raises(InvalidCommand) as caught:
            run.snapshot(bad)
        assert caught.value.place == place
    with pytest.raises(InvalidCommand) as caught:
        run.snapshot(state_at(1), event="no event type")
    assert caught.value.place == "event.type"
    with pytest.raises(InvalidCommand, match="body_too_large"):
        run.snapshot(state_at(0, pad="x" * 2**24))
    sent = say(run, 1)
    assert (sent.seq, sent.kind) == (2, "run.patch")
    producer.wait_applied(sent, 60)
    assert state(reader) == state_at(1)


def test_the_caller_may_go_on_changing_its_state(producer: Producer, reader: StateReader) -> None:
    mine = state_at(0)
    run = producer.create_run("w", run_id="r", state=mine)
    for n in range(1, 30):
        mine["steps"][n % 10]["output"] += f"{n}"
        mine["n"] = n
        mine["steps"].append({"id": n})
        run.snapshot(mine)
    producer.wait_applied(run.snapshot(mine), 60)
    assert state(reader) == mine
    run.complete(output=1)
    poll(lambda: (reader.run("r") or {})["status"] == "completed")
    assert state(reader).items() > {**mine, "status": "completed", "finalOutput": 1}.items()


def test_three_hundred_growing_states_are_at_each_revision_what_they_were_said_to_be(
    producer: Producer, reader: StateReader, redis_client: redis.Redis
) -> None:
    run = producer.create_run("w", run_id="r", state=state_at(0))
    for n in range(1, 301):
        say(run, n)
    await_applied(reader, "r", 301)
    assert told(reader) == list(range(1, 301))
    assert kinds(redis_client).count("run.patch") > 270
    for revision in range(1, 302):
        assert state(reader, "r", revision) == state_at(revision - 1)


# --- what goes wrong on the way ---------------------------------------------------------------


def test_replies_that_were_eaten_change_nothing(
    redis_server: RealServer, reader: StateReader, heard: list[Receipt]
) -> None:
    with (
        proxy(redis_server.folder) as between,
        Producer(between.url, partitions=PARTITIONS, on_rejected=heard.append) as producer,
    ):
        run = producer.create_run("w", run_id="r", state=state_at(0), confirm=True)
        for n in range(1, 61):
            if n % 15 == 0:
                between.eat_replies(1)
            say(run, n)
            if n % 15 == 0:
                producer.flush(60)
        assert producer.flush(60).waiting == 0
        assert between.eaten
        await_applied(reader, "r", 61)
    assert told(reader) == list(range(1, 61))
    assert state(reader) == state_at(60)
    assert heard == []


@contextmanager
def full(policy: Any) -> Iterator[tuple[Producer, Run]]:
    settings = ProducerSettings(buffer_bytes_max=90_000, block_timeout_ms=0)
    with Producer(NOWHERE, partitions=1, settings=settings, when_full=policy) as producer:
        run = producer.create_run("w", state=state_at(0))
        yield producer, run
        producer.close(0)


def test_a_dropped_state_is_not_built_upon() -> None:
    with full("drop") as (_, run):
        said = [say(run, n) for n in range(1, 60)]
        first = next(place for place, sent in enumerate(said) if sent.dropped)
        assert said[first].kind == "run.patch"
        assert said[first + 1].kind == "run.snapshot"
        assert [sent.seq for sent in said] == list(range(2, 61))


def test_a_call_that_raised_has_said_nothing_and_the_next_one_builds_on_the_one_before() -> None:
    with full("raise") as (_, run):
        last = say(run, 1)
        with pytest.raises(BufferFull):
            say(run, 2, pad="x" * 90_000)
        sent = run.snapshot(state_at(1))
        assert (sent.seq, sent.kind) == (last.seq + 1, "run.patch")
        assert sent.fields is not None
        assert sent.fields[b"body"] == b'{"base":%d}' % last.seq


def test_the_writer_may_be_away_for_long_and_what_is_kept_of_it_is_bounded(
    redis_server: RealServer, tmp_path: Path
) -> None:
    with Producer(redis_server.url, partitions=PARTITIONS) as producer:
        run = producer.create_run("w", run_id="r", state={"pad": BIG * 9, "n": 0})
        said = [run.snapshot({"pad": BIG * 9, "n": n}) for n in range(1, 1_400)]
        assert {sent.kind for sent in said[:50]} == {"run.patch"}
        assert {sent.kind for sent in said[1_200:]} == {"run.snapshot"}
        with writing(tmp_path / "data", redis_server.url) as reader:
            await_applied(reader, "r", 1_400)
            assert state(reader)["n"] == 1_399
            poll(lambda: run.snapshot({"pad": BIG * 9, "n": 400}).kind == "run.patch")


def test_a_process_that_died_leaves_its_refusals_and_the_next_one_begins_whole(
    redis_server: RealServer, other: Producer, reader: StateReader, tmp_path: Path
) -> None:
    run = other.create_run("w", run_id="r", state=state_at(0), confirm=True)
    say(run, -1)
    gone = Producer(NOWHERE, partitions=PARTITIONS, spool=tmp_path / "gone")
    theirs = gone.run("r")
    say(theirs, 1)
    say(theirs, 2)
    overwrite(other, -2)
    gone.close(0)
    anything = ProducerSettings(spool=tmp_path / "gone", spool_adopts="all")
    with Producer(redis_server.url, partitions=PARTITIONS, settings=anything) as producer:
        sent = say(producer.run("r"), 3)
        assert sent.kind == "run.snapshot"
        producer.wait_applied(sent, 60)
    assert settled(reader, "r") >= 6
    assert told(reader) == [-1, -2, 1, 2, 3]
    assert state(reader) == state_at(3)
    assert applied(reader, "r") == 6


def test_without_a_writer_a_patch_is_not_confirmed() -> None:
    with Producer(NOWHERE, partitions=1) as producer:
        run = producer.create_run("w", state=state_at(0))
        with pytest.raises(NotConfirmed):
            producer.wait_applied(say(run, 1), timeout_s=0.05)
        producer.close(0)
