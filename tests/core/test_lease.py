"""Leases: claimed, renewed by use and by request, released; times are arrivals."""

from __future__ import annotations

from typing import Any

import pytest

from producers.contract.envelope import token_sha256
from producers.contract.limits import LEASE_MS_MAX
from tests.support.host import Host
from tests.support.world import START_MS, CoreWorld
from writer.core.run import Lease

RUN = "run-1"
LEASE_MS = 100
SNAPSHOT: dict[str, Any] = {"state": {}}


@pytest.fixture
def world() -> CoreWorld:
    world = CoreWorld()
    world.must(RUN, "run.create", SNAPSHOT)
    return world


@pytest.fixture
def a(world: CoreWorld) -> Host:
    """A host that has claimed the run at 0, for 100 ms."""
    host = Host("host-a")
    world.must(RUN, "lease.claim", host.claim(LEASE_MS), at=0)
    return host


def lease(world: CoreWorld) -> Lease:
    found = world.run(RUN).lease
    assert found is not None
    return found


def expires(world: CoreWorld) -> int:
    return lease(world).expires_at - START_MS


def test_a_claim_is_a_lease_from_its_arrival(world: CoreWorld, a: Host) -> None:
    assert lease(world) == Lease(
        generation=1,
        owner_type="host",
        owner_id="host-a",
        token_sha256=token_sha256(a.token()),
        lease_ms=LEASE_MS,
        acquired_at=START_MS,
        renewed_at=START_MS,
        expires_at=START_MS + LEASE_MS,
    )


def test_each_claim_has_a_higher_generation_also_after_a_release(world: CoreWorld, a: Host) -> None:
    world.must(RUN, "lease.claim", a.claim())
    world.must(RUN, "lease.release", auth=a.auth())
    b = Host("host-b")
    world.must(RUN, "lease.claim", b.claim())
    assert lease(world).generation == 3


@pytest.mark.parametrize("at, reason", [(LEASE_MS - 1, "lease_held"), (LEASE_MS, None)])
def test_another_claims_from_the_ms_of_expiry_on(
    world: CoreWorld, a: Host, at: int, reason: str | None
) -> None:
    assert world.apply(RUN, "lease.claim", Host("host-b").claim(), at=at).reason == reason


def test_the_same_id_under_another_owner_type_is_another_owner(world: CoreWorld, a: Host) -> None:
    session = Host("host-a", owner_type="session")
    assert world.apply(RUN, "lease.claim", session.claim(), at=1).reason == "lease_held"


def test_a_claim_is_not_judged_by_an_authority(world: CoreWorld, a: Host) -> None:
    stale = a.auth(generation=7)
    world.must(RUN, "lease.claim", a.claim(), auth=stale)


def test_an_applied_command_moves_the_expiry(world: CoreWorld, a: Host) -> None:
    world.must(RUN, "run.snapshot", SNAPSHOT, auth=a.auth(), at=60)
    assert expires(world) == 60 + LEASE_MS


@pytest.mark.parametrize(
    "kind, body",
    [
        ("run.snapshot", {"state": {}, "expected_revision": 99}),
        ("run.annotate", {"title": "t"}),
        ("session.entry", {"entry": {}}),
    ],
    ids=["refused", "asks for no lease", "asks for the binder"],
)
def test_others_do_not(world: CoreWorld, a: Host, kind: str, body: dict[str, Any]) -> None:
    world.must(RUN, "session.bind", {"session": "s"}, auth=a.auth(), at=10)
    world.apply(RUN, kind, body, auth=a.auth(), at=60)
    assert expires(world) == 10 + LEASE_MS


def test_nor_does_a_duplicate(world: CoreWorld, a: Host) -> None:
    sent = world.send(RUN, "run.snapshot", SNAPSHOT, auth=a.auth(), at=10)
    world.resend(sent, at=60)
    world.settle()
    assert expires(world) == 10 + LEASE_MS


def test_use_after_expiry_makes_the_lease_live_again(world: CoreWorld, a: Host) -> None:
    world.must(RUN, "run.snapshot", SNAPSHOT, auth=a.auth(), at=500)
    held = world.apply(RUN, "lease.claim", Host("host-b").claim(), at=550)
    assert held.reason == "lease_held"


def test_a_renewal_has_a_length_of_its_own_and_never_shortens(world: CoreWorld, a: Host) -> None:
    world.must(RUN, "lease.renew", {"lease_ms": 30}, auth=a.auth(), at=10)
    assert expires(world) == LEASE_MS
    world.must(RUN, "run.snapshot", SNAPSHOT, auth=a.auth(), at=20)
    assert expires(world) == LEASE_MS
    world.must(RUN, "lease.renew", {"lease_ms": 30}, auth=a.auth(), at=90)
    assert expires(world) == 120
    world.must(RUN, "run.snapshot", SNAPSHOT, auth=a.auth(), at=100)
    assert expires(world) == 130


def test_a_renewal_makes_no_revision(world: CoreWorld, a: Host) -> None:
    outcome = world.must(RUN, "lease.renew", {"lease_ms": 30}, auth=a.auth())
    assert outcome.revision == 0
    head = world.run(RUN).head
    assert head is not None
    assert head.revision == 2


def test_a_release_frees_the_run_and_keeps_the_generation(world: CoreWorld, a: Host) -> None:
    world.must(RUN, "lease.release", auth=a.auth(), at=20)
    assert (lease(world).generation, lease(world).released_at) == (1, START_MS + 20)
    world.must(RUN, "lease.claim", Host("host-b").claim(), at=21)


@pytest.mark.parametrize("kind, body", [("lease.renew", {"lease_ms": 5}), ("lease.release", {})])
class TestOwn:
    """Renewal and release are the holder's alone."""

    def test_needs_an_authority(
        self, world: CoreWorld, a: Host, kind: str, body: dict[str, Any]
    ) -> None:
        assert world.apply(RUN, kind, body).reason == "lease_missing"

    def test_needs_a_lease(self, world: CoreWorld, kind: str, body: dict[str, Any]) -> None:
        stranger = Host("host-x").auth()
        assert world.apply(RUN, kind, body, auth=stranger).reason == "lease_missing"

    def test_is_not_for_another(
        self, world: CoreWorld, a: Host, kind: str, body: dict[str, Any]
    ) -> None:
        other = Host("host-b").auth()
        assert world.apply(RUN, kind, body, auth=other).reason == "lease_owner_changed"

    def test_is_not_for_an_older_generation(
        self, world: CoreWorld, a: Host, kind: str, body: dict[str, Any]
    ) -> None:
        world.must(RUN, "lease.claim", a.claim())
        older = a.auth(generation=1)
        assert world.apply(RUN, kind, body, auth=older).reason == "lease_generation_changed"

    def test_works_after_expiry(
        self, world: CoreWorld, a: Host, kind: str, body: dict[str, Any]
    ) -> None:
        world.must(RUN, kind, body, auth=a.auth(), at=10 * LEASE_MS)

    def test_is_over_after_a_release(
        self, world: CoreWorld, a: Host, kind: str, body: dict[str, Any]
    ) -> None:
        world.must(RUN, "lease.release", auth=a.auth())
        assert world.apply(RUN, kind, body, auth=a.auth()).reason == "lease_missing"


@pytest.mark.parametrize(
    "changed",
    [
        {"lease_ms": 0},
        {"lease_ms": LEASE_MS_MAX + 1},
        {"lease_ms": 1.0},
        {"lease_ms": True},
        {"owner_type": "robot"},
        {"owner_id": ""},
        {"owner_id": "a\0b"},
        {"token_sha256": "0" * 63},
        {"token_sha256": "A" * 64},
        {"token_sha256": None},
    ],
    ids=str,
)
def test_a_claim_has_a_form(world: CoreWorld, changed: dict[str, Any]) -> None:
    refused = world.apply(RUN, "lease.claim", Host("host-a").claim() | changed)
    assert refused.reason == "field_invalid"
    assert world.run(RUN).lease is None


def test_a_lease_lasts_an_hour_at_most(world: CoreWorld) -> None:
    world.must(RUN, "lease.claim", Host("host-a").claim(LEASE_MS_MAX))


def test_a_finished_run_may_still_be_claimed(world: CoreWorld) -> None:
    world.must(RUN, "run.snapshot", {"state": {"status": "completed"}})
    world.must(RUN, "lease.claim", Host("host-a").claim())
