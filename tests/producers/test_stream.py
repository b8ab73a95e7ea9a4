"""What the calls leave in Redis: fields, order, marks, ids."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from producers import Auth, InvalidCommand, Parent, Producer, Source
from producers.contract.commands import MODELS
from producers.contract.limits import PRODUCER_PATTERN, RUN_ID_PATTERN
from tests.producers.reading import (
    NOWHERE,
    PARTITIONS,
    bodies,
    messages,
    raw_messages,
    ready_of,
)
from tests.support.servers import RealServer

ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.fixture
def producer(redis_server: RealServer) -> Iterator[Producer]:
    with Producer(redis_server.url, partitions=PARTITIONS) as made:
        yield made


def test_commands_arrive_in_the_order_of_the_calls_with_sequences_from_1(
    producer: Producer, redis_client: redis.Redis
) -> None:
    run = producer.create_run("triage", run_id="r", state={"n": 0})
    handles = [run.snapshot({"n": n}, "stepped") for n in range(1, 1_200)]
    assert handles[0].seq == 2
    assert producer.flush(60).waiting == 0

    arrived = messages(redis_client, "r")
    assert [message.seq for message in arrived] == list(range(1, 1_201))
    assert {message.producer for message in arrived} == {producer.producer_id}
    assert [(message.body or {})["state"]["n"] for message in arrived] == list(range(1_200))
    assert [message.message_id for message in arrived[1:]] == [h.message_id for h in handles]


def test_a_message_has_the_fields_of_the_contract_and_no_other(
    producer: Producer, redis_client: redis.Redis
) -> None:
    producer.send("r", "run.resume", {}, auth=Auth(owner_type="host", owner_id="h", token="t"))
    producer.flush(60)
    ((_, fields),) = raw_messages(redis_client, "r")
    assert fields == {
        b"v": b"1",
        b"kind": b"run.resume",
        b"producer": producer.producer_id.encode(),
        b"seq": b"1",
        b"body": b"{}",
        b"auth": b'{"owner_type":"host","owner_id":"h","token":"t"}',
    }


def test_every_run_is_marked_ready_in_its_partition_with_the_earliest_time(
    producer: Producer, redis_client: redis.Redis
) -> None:
    runs = [f"run-{n}" for n in range(40)]
    for run in runs:
        producer.run(run).resume()
    producer.flush(60)
    marks = {run: redis_client.zscore(ready_of(run), run) for run in runs}
    assert all(marks.values())
    assert len({ready_of(run) for run in runs}) == PARTITIONS

    for run in runs:
        producer.run(run).resume()
    producer.flush(60)
    assert {run: redis_client.zscore(ready_of(run), run) for run in runs} == marks


def test_another_numbering_replaces_our_own_and_does_not_touch_it(
    producer: Producer, redis_client: redis.Redis
) -> None:
    producer.send("r", "run.resume", {})
    producer.send("r", "run.resume", {}, producer="other", seq=7)
    producer.send("r", "run.resume", {})
    producer.flush(60)
    arrived = [(message.producer, message.seq) for message in messages(redis_client, "r")]
    own = producer.producer_id
    assert arrived == [(own, 1), ("other", 7), (own, 2)]


def test_a_snapshot_is_what_the_state_was_at_the_call(
    producer: Producer, redis_client: redis.Redis
) -> None:
    state: dict[str, Any] = {"steps": []}
    run = producer.create_run("w", run_id="r", state=state)
    for step in range(3):
        state["steps"].append(step)
        run.snapshot(state)
    state["steps"].append("never said")
    run.complete(output={"answer": 42})
    producer.flush(60)
    said = [(body or {})["state"] for _, body in bodies(redis_client, "r")]
    assert [state["steps"] for state in said] == [[], [0], [0, 1], [0, 1, 2], [0, 1, 2]]
    finished = said[-1]
    assert finished["status"] == "completed"
    assert finished["finalOutput"] == {"answer": 42}
    assert ISO.fullmatch(finished["finishedAt"])


def test_finishing_says_status_time_and_event_over_the_last_state_or_the_given_one(
    producer: Producer, redis_client: redis.Redis
) -> None:
    producer.run("nothing-said").complete()
    created = producer.create_run("w", run_id="created", state={"a": 1})
    created.update("progress", "k", {"completed": 1})
    created.fail(ValueError("no such file"))
    given = {"b": 2}
    producer.run("given").fail("gave up", state=given)
    producer.flush(60)

    _, nothing = bodies(redis_client, "nothing-said")[-1]
    assert nothing["state"].keys() == {"status", "finishedAt"}
    assert nothing["event"] == {"type": "run_completed"}
    _, failed = bodies(redis_client, "created")[-1]
    assert failed["state"].pop("finishedAt")
    assert failed == {
        "state": {"a": 1, "status": "failed", "error": "ValueError: no such file"},
        "event": {"type": "run_failed"},
    }
    assert bodies(redis_client, "given")[-1][1]["state"]["error"] == "gave up"
    assert given == {"b": 2}


def test_each_method_says_its_command_with_what_is_given_and_nothing_else(
    producer: Producer, redis_client: redis.Redis
) -> None:
    run = producer.create_run(
        "w",
        run_id="r",
        input={"q": 1},
        definition={"name": "w"},
        state={"a": 1},
        title="T",
        tags={"team": "x"},
        parent=Parent(run="p", relation="retry"),
        source=Source(type="file", ref="w.yaml"),
        effects=["run.settled"],
        retention_seconds=60,
        dialect="pi_workflows",
    )
    run.snapshot({"a": 2}, "node_started", node="n", attempt="n#1", payload={"p": 1})
    run.snapshot({"a": 3}, expected_revision=2, on_conflict="merge")
    run.update("progress", "tests", {"completed": 3}, node="n", attempt="n#1")
    run.resume()
    run.reset("again")
    run.interrupt()
    run.annotate(title=None, test_case_status="succeeded")
    run.settle_effect("e", 1, "rejected", error="no")
    run.delete()
    producer.flush(60)
    assert bodies(redis_client, "r") == [
        (
            "run.create",
            {
                "dialect": "pi_workflows",
                "workflow": "w",
                "definition": {"name": "w"},
                "input": {"q": 1},
                "source": {"type": "file", "ref": "w.yaml"},
                "state": {"a": 1},
                "parent": {"run": "p", "relation": "retry"},
                "title": "T",
                "tags": {"team": "x"},
                "retention_seconds": 60,
                "effects": ["run.settled"],
            },
        ),
        (
            "run.snapshot",
            {
                "state": {"a": 2},
                "event": {
                    "type": "node_started",
                    "scope": "node",
                    "node_id": "n",
                    "attempt_id": "n#1",
                    "payload": {"p": 1},
                },
            },
        ),
        ("run.snapshot", {"state": {"a": 3}, "expected_revision": 2, "on_conflict": "merge"}),
        (
            "run.update",
            {
                "type": "progress",
                "key": "tests",
                "data": {"completed": 3},
                "node_id": "n",
                "attempt_id": "n#1",
            },
        ),
        ("run.resume", {}),
        ("run.reset", {"reason": "again"}),
        ("run.interrupt", {}),
        ("run.annotate", {"title": None, "test_case_status": "succeeded"}),
        (
            "effect.settle",
            {"effect_id": "e", "occurrence": 1, "status": "rejected", "error": "no"},
        ),
        ("run.delete", {}),
    ]


def test_a_node_without_an_event_type_is_refused(producer: Producer) -> None:
    with pytest.raises(InvalidCommand) as caught:
        producer.run("r").snapshot({}, node="n")
    assert caught.value.place == "event.type"


def test_reserving_and_parents_given_as_runs(producer: Producer, redis_client: redis.Redis) -> None:
    parent = producer.create_run("w", run_id="p", reserve=True)
    producer.create_run("w", run_id="c", parent=parent)
    producer.create_run("w", run_id="d", parent="p")
    producer.flush(60)
    assert bodies(redis_client, "p") == [
        ("run.create", {"dialect": "generic", "workflow": "w", "status": "queued"})
    ]
    for child in ("c", "d"):
        ((_, body),) = bodies(redis_client, child)
        assert body["parent"] == {"run": "p"}


@pytest.mark.parametrize(
    "workflow, name",
    [
        ("triage", "triage"),
        ("Nightly build / main", "Nightly-build-main"),
        ("übersetzen", "bersetzen"),
        ("日本", "workflow"),
        ("x" * 500, "x" * 80),
    ],
)
def test_a_generated_run_id_tells_time_and_workflow(workflow: str, name: str) -> None:
    producer = Producer(NOWHERE, partitions=1)
    ids = {producer.create_run(workflow).id for _ in range(20)}
    producer.close(0)
    assert len(ids) == 20
    for run_id in ids:
        assert re.fullmatch(RUN_ID_PATTERN, run_id)
        assert re.fullmatch(rf"\d{{8}}T\d{{9}}Z-{re.escape(name)}-[0-9a-f]{{8}}", run_id)


def test_each_producer_has_an_id_of_its_own() -> None:
    producers = [Producer(NOWHERE, partitions=1) for _ in range(5)]
    ids = {producer.producer_id for producer in producers}
    for producer in producers:
        producer.close(0)
    assert len(ids) == 5
    assert all(re.fullmatch(PRODUCER_PATTERN, producer_id) for producer_id in ids)


def test_every_kind_is_reachable_by_send(producer: Producer, redis_client: redis.Redis) -> None:
    least: dict[str, dict[str, Any]] = {
        "run.snapshot": {"state": {}},
        "run.patch": {"base": 1},
        "run.update": {"type": "t", "key": "k", "data": {}},
        "session.bind": {"session": "s"},
        "session.entry": {"entry": {}},
        "session.events": {"events": [{"seq": 1, "at": "t", "type": "e", "payload": {}}]},
        "session.capture": {"status": "complete"},
        "lease.claim": {
            "owner_type": "host",
            "owner_id": "h",
            "token_sha256": "0" * 64,
            "lease_ms": 1,
        },
        "lease.renew": {"lease_ms": 1},
        "effect.settle": {"effect_id": "e", "occurrence": 1, "status": "applied"},
    }
    for kind in MODELS:
        producer.send("r", kind, least.get(kind, {}))
    producer.flush(60)
    assert [message.kind for message in messages(redis_client, "r")] == list(MODELS)
