"""B: the store's less trodden ways."""

# ruff: noqa: N802 - a case is named after its mark
from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.support.host import Host
from tests.support.workload import base_state, binding, event
from tests.support.world import DUPLICATE, StoredWorld, World

RUN = "run-1"
UPDATES_MAX = 1_024
EVENT_BYTES_MAX = 1_048_576


def bind(session: str = "session-1", key: str | None = None) -> dict[str, Any]:
    body = {"session": session, "binding": binding(RUN, session)}
    return body | ({"capture_key": key} if key else {})


def test_B1_of_an_empty_database_nothing_is_read(stored: StoredWorld) -> None:
    assert stored.reader.list_runs().runs == []
    assert stored.reader.last_trace_event("missing") is None
    assert stored.reader.read_run("missing") is None


def test_B1_a_missing_run_is_not_interrupted(world: World) -> None:
    assert world.apply("missing", "run.interrupt").reason == "run_unknown"


def test_B2_a_second_create_is_a_duplicate_or_a_conflict(world: World) -> None:
    body = {"dialect": "pi_workflows", "state": base_state(RUN)}
    world.must(RUN, "run.create", body)
    assert world.apply(RUN, "run.create", body, producer="other") == DUPLICATE
    assert world.apply(RUN, "run.create", body | {"title": "t"}).reason == "run_conflict"


def test_B2_a_completed_run_is_not_interrupted(stored: StoredWorld) -> None:
    stored.create(RUN)
    stored.must(RUN, "run.snapshot", {"state": base_state(RUN) | {"status": "completed"}})
    assert stored.apply(RUN, "run.interrupt").reason == "run_terminal"
    assert stored.state(RUN)["status"] == "completed"
    assert stored.types(RUN) == ["run_created", "run_snapshot"]


def test_B3_one_pair_of_type_and_key_too_many_is_refused(world: World) -> None:
    world.create(RUN)
    for number in range(UPDATES_MAX):
        world.send(RUN, "run.update", {"type": "note", "key": f"k{number}", "data": {}})
    assert {outcome.kind for outcome in world.settle()} == {"applied"}
    one_more = {"type": "note", "key": "one-more", "data": {}}
    assert world.apply(RUN, "run.update", one_more).reason == "updates_full"
    replacing = {"type": "note", "key": "k0", "data": {"new": True}}
    world.must(RUN, "run.update", replacing)


def test_B4_a_run_has_one_segment_a_capture_key(stored: StoredWorld) -> None:
    stored.create(RUN)
    stored.must(RUN, "session.bind", bind())
    assert stored.apply(RUN, "session.bind", bind(), producer="other") == DUPLICATE
    stored.must(RUN, "session.bind", bind("session-2", key="capture-b"))

    assert stored.reader.has_session_binding(RUN)
    assert stored.reader.list_session_segments(RUN) == ["capture-b"]
    run = stored.reader.read_run(RUN)
    assert run is not None
    (segment,) = run["sessionSegments"]
    assert segment["session"] == "session-2"


def test_B5_events_begin_with_seq_1_whatever_their_type(world: World) -> None:
    world.create(RUN)
    world.must(RUN, "session.bind", bind())
    unheard = {"seq": 2, "at": "2026-08-23T00:00:00Z", "type": "unheard_of", "payload": {}}
    refused = world.apply(RUN, "session.events", {"events": [unheard]})
    assert refused.reason == "event_seq_gap"
    assert refused.detail == "expected seq 1, got 2"
    world.must(RUN, "session.events", {"events": [unheard | {"seq": 1}]})


def test_B5_a_failed_capture_needs_its_failure_and_stays_failed(stored: StoredWorld) -> None:
    stored.create(RUN)
    stored.must(RUN, "session.bind", bind())
    failed = {"status": "failed"}
    assert stored.apply(RUN, "session.capture", failed).reason == "capture_failure"
    failure = {"code": "x", "message": "it broke"}
    stored.must(RUN, "session.capture", failed | {"failure": failure})
    complete = {"status": "complete"}
    assert stored.apply(RUN, "session.capture", complete).reason == "capture_terminal"

    run = stored.reader.read_run(RUN)
    assert run is not None
    assert run["sessionIntegrity"] == {"status": "failed", "diagnostics": ["it broke"]}
    assert run["sessionCapture"]["failure"] == failure


@pytest.mark.parametrize("bytes_over, reason", [(0, None), (1, "event_too_large")])
def test_B5b_an_event_has_at_most_1_MiB(world: World, bytes_over: int, reason: str | None) -> None:
    world.create(RUN)
    world.must(RUN, "session.bind", bind())
    record = event(1, "a1")
    room = EVENT_BYTES_MAX - len(orjson.dumps(record)) + bytes_over
    record["payload"]["delta"] += "x" * room
    assert world.apply(RUN, "session.events", {"events": [record]}).reason == reason


def test_B6_a_complete_capture_stays_complete_through_a_resume(stored: StoredWorld) -> None:
    stored.create(RUN)
    stored.must(RUN, "session.bind", bind())
    stored.must(RUN, "session.capture", {"status": "complete"})
    stored.must(RUN, "run.resume")
    assert stored.only("segments", RUN)["status"] == "complete"


@pytest.mark.parametrize(
    "source",
    [
        {"type": "builtin", "ref": "review", "revision": "7"},
        {"type": "file", "ref": "flows/review.ts", "revision": "0f" * 32},
    ],
    ids=["builtin", "file"],
)
def test_B7_where_a_definition_came_from_is_kept(
    stored: StoredWorld, source: dict[str, str]
) -> None:
    stored.create(RUN, source=source)
    run = stored.only("runs", RUN)
    kept = {name: run[f"source_{name}"] for name in ("type", "ref", "revision")}
    assert kept == source


def test_B7_without_a_source_it_is_the_definition_itself(stored: StoredWorld) -> None:
    stored.create(RUN)
    run = stored.only("runs", RUN)
    assert (run["source_type"], run["source_ref"]) == ("file", "inline:bench")
    assert run["source_revision"] == run["definition_digest"].hex()


def test_B9_resume_ends_what_its_own_owner_recorded_before_and_nothing_else(
    stored: StoredWorld,
) -> None:
    host, other = Host("host-a"), Host("host-b")
    stored.create(RUN)
    stored.must(RUN, "session.bind", bind(key="unleased"))
    stored.must(RUN, "lease.claim", other.claim(lease_ms=10), at=100)
    stored.must(RUN, "session.bind", bind(key="of another"), auth=other.auth())
    stored.must(RUN, "lease.claim", host.claim(), at=200)
    stored.must(RUN, "session.bind", bind(key="of before"), auth=host.auth())
    stored.must(RUN, "lease.claim", host.claim())
    stored.must(RUN, "session.bind", bind(key="of now"), auth=host.auth())
    stored.must(RUN, "run.resume", auth=host.auth())

    status = {row["capture_key"]: row["status"] for row in stored.all("segments", RUN)}
    assert status == {
        "unleased": "recording",
        "of another": "recording",
        "of before": "failed",
        "of now": "recording",
    }
    failure = {row["capture_key"]: row["failure"] for row in stored.all("segments", RUN)}
    assert orjson.loads(failure["of before"])["code"] == "host_interrupted"
