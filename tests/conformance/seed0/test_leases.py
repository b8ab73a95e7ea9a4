"""L, Q and F: who may write a run, judged in the order of its stream.

Refusals are the better outcome here: a claim against a live lease, and each write under a lost one.
"""

# ruff: noqa: N802 - a case is named after its mark
from __future__ import annotations

import pytest

from tests.support.host import Host
from tests.support.workload import base_state
from tests.support.world import StoredWorld, World

RUN = "run-1"
SNAPSHOT = {"state": base_state(RUN)}


@pytest.fixture
def a() -> Host:
    return Host("host-a")


@pytest.fixture
def b() -> Host:
    return Host("host-b")


def test_L1_after_expiry_another_claims_and_the_first_is_out(
    world: World, a: Host, b: Host
) -> None:
    world.create(RUN)
    world.must(RUN, "lease.claim", a.claim(lease_ms=10), at=100)
    world.must(RUN, "lease.claim", b.claim(), at=111)
    stale = world.apply(RUN, "run.snapshot", SNAPSHOT, auth=a.auth(generation=1))
    assert stale.reason == "lease_owner_changed"
    fresh = world.apply(RUN, "run.snapshot", SNAPSHOT, auth=b.auth(generation=2))
    assert (fresh.kind, fresh.revision) == ("applied", 4)


def test_L1_expiry_alone_does_not_shut_out_the_holder(world: World, a: Host) -> None:
    world.create(RUN)
    world.must(RUN, "lease.claim", a.claim(lease_ms=10), at=100)
    world.must(RUN, "run.snapshot", SNAPSHOT, auth=a.auth(), at=60_000)


def test_L1_the_same_owner_claims_again_at_once(world: World, a: Host) -> None:
    world.create(RUN)
    world.must(RUN, "lease.claim", a.claim(), at=100)
    world.must(RUN, "lease.claim", a.claim(), at=101)
    older = world.apply(RUN, "run.snapshot", SNAPSHOT, auth=a.auth(claim=1))
    assert older.reason == "lease_token_changed"
    world.must(RUN, "run.snapshot", SNAPSHOT, auth=a.auth(generation=2))


def test_L2_a_live_lease_is_nobody_elses(stored: StoredWorld, a: Host, b: Host) -> None:
    stored.create(RUN)
    stored.must(RUN, "lease.claim", a.claim(lease_ms=200), at=100)
    assert stored.apply(RUN, "lease.claim", b.claim(), at=101).reason == "lease_held"
    stored.must(RUN, "lease.renew", {"lease_ms": 200}, auth=a.auth(), at=110)
    assert stored.apply(RUN, "lease.claim", b.claim(), at=309).reason == "lease_held"
    stored.must(RUN, "lease.release", auth=a.auth(), at=310)
    assert stored.apply(RUN, "lease.release", auth=a.auth()).reason == "lease_missing"
    assert stored.types(RUN) == ["run_created", "lease.claimed", "lease.released"]


def test_L3_a_lease_counts_for_its_own_run_only(world: World, a: Host) -> None:
    world.create(RUN)
    world.create("run-2")
    world.must(RUN, "lease.claim", a.claim())
    state = {"state": base_state("run-2")}
    assert world.apply("run-2", "run.snapshot", state, auth=a.auth()).reason == "lease_missing"


def test_L3_an_expected_revision_belongs_to_a_snapshot(world: World) -> None:
    world.create(RUN)
    refused = world.apply(RUN, "run.snapshot", SNAPSHOT | {"expected_revision": 99})
    assert refused.reason == "revision_conflict"
    world.must(RUN, "run.snapshot", SNAPSHOT | {"expected_revision": 1})


def test_L4_a_lease_has_a_length_and_one_token(world: World, a: Host) -> None:
    world.create(RUN)
    assert world.apply(RUN, "lease.claim", a.claim() | {"lease_ms": 0}).reason == "field_invalid"
    world.must(RUN, "lease.claim", a.claim())
    wrong = a.auth().model_copy(update={"token": "guessed"})
    for kind, body in (("lease.renew", {"lease_ms": 1}), ("lease.release", {})):
        assert world.apply(RUN, kind, body, auth=wrong).reason == "lease_token_changed"


def test_L5_a_run_that_nobody_claimed_takes_commands_from_anyone(world: World) -> None:
    world.create(RUN)
    assert world.must(RUN, "run.snapshot", SNAPSHOT).revision == 2


def test_L5_a_run_that_does_not_exist_is_not_claimed(world: World, a: Host) -> None:
    assert world.apply("missing", "lease.claim", a.claim()).reason == "run_unknown"


def test_L6_a_refused_command_leaves_no_trace(stored: StoredWorld) -> None:
    stored.create(RUN)
    broken = {"state": base_state(RUN) | {"status": "no such status", "big": "x" * 5_000}}
    assert stored.apply(RUN, "run.snapshot", broken).reason == "state_invalid"
    assert stored.types(RUN) == ["run_created"]
    assert stored.only("runs", RUN)["revision"] == 1
    assert "big" not in stored.state(RUN)


def test_Q2_a_claim_is_proved_by_its_token(world: World, a: Host) -> None:
    world.create(RUN)
    world.must(RUN, "lease.claim", a.claim())
    wrong = a.auth().model_copy(update={"token": "guessed"})
    refused = world.apply(RUN, "run.snapshot", SNAPSHOT, auth=wrong)
    assert refused.reason == "lease_token_changed"
    world.must(RUN, "lease.renew", {"lease_ms": 5_000}, auth=a.auth(generation=1))
    world.must(RUN, "run.snapshot", SNAPSHOT, auth=a.auth(generation=1))


def test_Q3_after_a_second_claim_the_old_token_does_nothing(
    stored: StoredWorld, a: Host, b: Host
) -> None:
    stored.create(RUN)
    stored.must(RUN, "lease.claim", a.claim(lease_ms=1_000), at=0)
    stored.must(RUN, "lease.claim", b.claim(), at=2_000)
    lease = stored.only("leases", RUN)
    assert (lease["generation"], lease["owner_id"]) == (2, "host-b")
    for kind in ("run.resume", "run.delete"):
        assert stored.apply(RUN, kind, auth=a.auth()).reason == "lease_owner_changed"
    assert stored.reader.read_run(RUN) is not None
    stored.must(RUN, "run.resume", auth=b.auth())


def test_Q4_a_claim_that_expired_mid_run_is_taken_over(
    stored: StoredWorld, a: Host, b: Host
) -> None:
    stored.create(RUN)
    stored.must(RUN, "lease.claim", a.claim(lease_ms=1_000), at=0)
    stored.must(RUN, "run.snapshot", SNAPSHOT, auth=a.auth(), at=500)
    # The write moved the expiry to 1,500.
    assert stored.apply(RUN, "lease.claim", b.claim(), at=1_499).reason == "lease_held"
    stored.must(RUN, "lease.claim", b.claim(), at=1_500)
    assert stored.only("leases", RUN)["generation"] == 2
    assert stored.state(RUN)["status"] == "running"
    stored.must(RUN, "run.resume", auth=b.auth(generation=2))


def test_Q8_an_operator_cancels_only_what_no_live_owner_has(stored: StoredWorld, a: Host) -> None:
    stored.create(RUN)
    stored.must(RUN, "lease.claim", a.claim(lease_ms=1_000), at=0)
    reason = {"reason": "cancelled by an operator"}
    live = stored.apply(RUN, "run.interrupt", reason, producer="operator", at=999)
    assert live.reason == "lease_missing"
    stored.must(RUN, "run.interrupt", reason, producer="operator", at=1_000)
    state = stored.state(RUN)
    assert (state["status"], state["error"]) == ("failed", reason["reason"])


def test_F1_a_claim_lost_while_a_node_runs_ends_its_holders_writes(
    stored: StoredWorld, a: Host, b: Host
) -> None:
    stored.create(RUN)
    stored.must(RUN, "lease.claim", a.claim(lease_ms=1_000), at=0)
    stored.must(RUN, "lease.claim", b.claim(), at=2_000)
    finished = {
        "state": base_state(RUN) | {"status": "completed"},
        "event": {"type": "run_completed"},
    }
    lost = stored.apply(RUN, "run.snapshot", finished, auth=a.auth(generation=1))
    assert lost.reason == "lease_owner_changed"
    assert "run_completed" not in stored.types(RUN)
    assert stored.state(RUN)["status"] == "running", "losing a lease is no failure of the run"
    stored.must(RUN, "run.snapshot", SNAPSHOT, auth=b.auth(generation=2))


def test_F1_an_unfenced_run_still_works(world: World) -> None:
    world.create(RUN)
    world.must(RUN, "run.snapshot", SNAPSHOT)
    world.must(RUN, "run.snapshot", {"state": base_state(RUN) | {"status": "completed"}})
