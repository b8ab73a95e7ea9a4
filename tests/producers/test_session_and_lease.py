"""Transcripts and write authority, as far as the producer's side goes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pytest
import redis

from producers import InvalidCommand, LeaseNotHeld, Producer
from producers.contract.envelope import token_sha256
from tests.producers.reading import PARTITIONS, bodies, messages, raw_messages
from tests.support.servers import RealServer


@pytest.fixture
def producer(redis_server: RealServer) -> Iterator[Producer]:
    with Producer(redis_server.url, partitions=PARTITIONS) as made:
        yield made


def test_a_session_binds_appends_and_ends_complete_with_its_counts(
    producer: Producer, redis_client: redis.Redis
) -> None:
    run = producer.run("r")
    with run.session("s", "node-1", {"schema": "x"}) as session:
        session.entry({"id": "a"})
        session.entry({"id": "a"})
        session.entry({"id": "ignored"}, entry_id="b")
        session.entry({"text": "no id"})
        session.event("turn_started", {"n": 1}, node="n", attempt="n#1", turn="t", at="then")
        session.events([{"type": "e", "payload": {}}, {"type": "f", "payload": {}, "extra": 1}])
    producer.flush(60)

    said = bodies(redis_client, "r")
    assert [kind for kind, _ in said] == [
        "session.bind",
        *["session.entry"] * 4,
        *["session.events"] * 2,
        "session.capture",
    ]
    assert said[0][1] == {"session": "s", "capture_key": "node-1", "binding": {"schema": "x"}}
    assert {body["capture_key"] for _, body in said} == {"node-1"}
    (event,) = said[5][1]["events"]
    assert event == {
        "seq": 1,
        "at": "then",
        "type": "turn_started",
        "payload": {"n": 1},
        "nodeId": "n",
        "attemptId": "n#1",
        "turnId": "t",
    }
    assert [(event["seq"], event.get("extra")) for event in said[6][1]["events"]] == [
        (2, None),
        (3, 1),
    ]
    assert said[-1][1] == {
        "capture_key": "node-1",
        "status": "complete",
        "entry_count": 3,
        "event_count": 3,
        "last_event_seq": 3,
    }


def test_a_session_whose_block_raises_ends_failed_and_the_error_goes_through(
    producer: Producer, redis_client: redis.Redis
) -> None:
    with pytest.raises(KeyError, match="secret"), producer.run("r").session("s"):
        raise KeyError("secret detail")
    producer.flush(60)
    assert bodies(redis_client, "r")[-1] == (
        "session.capture",
        {"status": "failed", "failure": {"code": "host_error", "message": "KeyError"}},
    )
    assert b"secret" not in raw_messages(redis_client, "r")[-1][1][b"body"]


def test_the_blocks_error_goes_through_even_if_the_capture_can_not_be_said(
    producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    def work() -> None:
        with producer.run("r").session("s"):
            producer.close()
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert "action=capture_unsent" in caplog.text


def test_a_session_needs_no_with_and_a_capture_by_hand_is_the_only_one(
    producer: Producer, redis_client: redis.Redis
) -> None:
    session = producer.run("r").session("s")
    session.event("e", {})
    session.capture("recording")
    with session:
        session.capture("failed", failure={"code": "timeout", "message": "no answer"})
    producer.flush(60)
    assert [kind for kind, _ in bodies(redis_client, "r")] == [
        "session.bind",
        "session.events",
        "session.capture",
        "session.bind",
        "session.capture",
    ]


def test_a_refused_event_uses_up_no_seq_and_given_ones_are_kept(
    producer: Producer, redis_client: redis.Redis
) -> None:
    session = producer.run("r").session("s")
    session.event("e", {})
    with pytest.raises(InvalidCommand):
        session.event("", {})
    with pytest.raises(InvalidCommand):
        session.events(["no document"])  # type: ignore[list-item]
    session.events([{"seq": 2, "type": "e", "payload": {}}, {"type": "e", "payload": {}}])
    session.events([{"seq": 1, "type": "e", "payload": {}}])
    session.event("e", {})
    producer.flush(60)
    seqs = [
        [event["seq"] for event in body["events"]]
        for kind, body in bodies(redis_client, "r")
        if kind == "session.events"
    ]
    assert seqs == [[1], [2, 3], [1], [4]]
    assert session.last_seq == 4


def authorities(client: redis.Redis, run: str) -> list[tuple[str | None, str | None]]:
    """Kind and token hash of each message of a run."""
    return [
        (message.kind, message.auth and message.auth.token_sha256)
        for message in messages(client, run)
    ]


def test_after_a_claim_every_command_carries_the_authority_until_the_release(
    producer: Producer, redis_client: redis.Redis
) -> None:
    run = producer.create_run("w", run_id="r")
    lease = run.claim("host-1", lease_ms=5_000)
    run.snapshot({})
    run.renew()
    run.renew(9_000)
    run.renew()
    run.release()
    run.snapshot({})
    producer.flush(60)
    held = token_sha256(lease.token)
    assert authorities(redis_client, "r") == [
        ("run.create", None),
        ("lease.claim", None),
        ("run.snapshot", held),
        *[("lease.renew", held)] * 3,
        ("lease.release", held),
        ("run.snapshot", None),
    ]
    renewals = [body for kind, body in bodies(redis_client, "r") if kind == "lease.renew"]
    assert renewals == [{"lease_ms": 5_000}, {"lease_ms": 9_000}, {"lease_ms": 9_000}]
    authority = messages(redis_client, "r")[2].auth
    assert authority is not None
    assert authority[:2] == ("host", "host-1")
    assert authority.generation is None


def test_a_token_is_in_auth_and_nowhere_else(
    producer: Producer, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    run = producer.create_run("w", run_id="r")
    lease = run.claim("host-1", owner_type="controller", token="tok-3f9a")
    with run.session("s") as session:
        session.entry({})
    run.complete()
    producer.flush(60)
    for _, fields in raw_messages(redis_client, "r"):
        auth: dict[str, Any] = orjson.loads(fields.pop(b"auth", b"{}"))
        assert auth.get("token", lease.token) == lease.token
        assert not any(b"tok-3f9a" in value for value in fields.values())
    assert "tok-3f9a" not in repr(lease) + repr(run) + repr(producer.status()) + caplog.text


def test_tokens_are_new_for_each_claim(producer: Producer) -> None:
    run = producer.run("r")
    tokens = {run.claim("host-1").token for _ in range(10)}
    assert len(tokens) == 10
    assert min(map(len, tokens)) >= 43


def test_renewing_or_releasing_what_was_never_claimed_is_an_error(producer: Producer) -> None:
    run = producer.run("r")
    for call in (run.renew, run.release):
        with pytest.raises(LeaseNotHeld, match="claim"):
            call()


def test_a_segment_keeps_the_authority_that_bound_it_after_the_release(
    producer: Producer, redis_client: redis.Redis
) -> None:
    run = producer.create_run("w", run_id="r")
    first = run.claim("host-1")
    session = run.session("s")
    session.bind()
    run.release()
    session.entry({})
    second = run.claim("host-1")
    session.entry({})
    producer.flush(60)
    entries = [held for kind, held in authorities(redis_client, "r") if kind == "session.entry"]
    assert entries == [token_sha256(first.token), token_sha256(second.token)]
