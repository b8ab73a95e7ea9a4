"""Who may write: judged by the stream's order and the message's arrival, never by a clock."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from producers.contract.commands import Auth
from tests.support.host import Host
from tests.support.world import CoreWorld

RUN = "run-1"
LEASE_MS = 100
SNAPSHOT: dict[str, Any] = {"state": {}}

NEEDS_LEASE: list[tuple[str, dict[str, Any]]] = [
    ("run.snapshot", {"state": {}}),
    ("run.update", {"type": "note", "key": "k", "data": {}}),
    ("run.resume", {}),
    ("run.interrupt", {}),
    ("run.delete", {}),
    ("session.bind", {"session": "s"}),
]
kinds = pytest.mark.parametrize("kind, body", NEEDS_LEASE, ids=[kind for kind, _ in NEEDS_LEASE])


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


@kinds
def test_a_free_run_takes_commands_from_anyone(
    world: CoreWorld, kind: str, body: dict[str, Any]
) -> None:
    world.must(RUN, kind, body)


@kinds
def test_a_claimed_run_takes_its_holders(
    world: CoreWorld, a: Host, kind: str, body: dict[str, Any]
) -> None:
    assert world.apply(RUN, kind, body).reason == "lease_missing"
    world.must(RUN, kind, body, auth=a.auth())


def test_a_reset_asks_for_the_lease_like_the_others(world: CoreWorld, a: Host) -> None:
    world.must(RUN, "run.snapshot", {"state": {"status": "failed"}}, auth=a.auth())
    assert world.apply(RUN, "run.reset").reason == "lease_missing"
    world.must(RUN, "run.reset", auth=a.auth())


def test_an_annotation_asks_nobody(world: CoreWorld, a: Host) -> None:
    world.must(RUN, "run.annotate", {"title": "new"})
    stranger = Host("host-x").auth()
    world.must(RUN, "run.annotate", {"title": "newer"}, auth=stranger)


def test_an_authority_on_a_run_that_was_never_claimed_is_refused(world: CoreWorld) -> None:
    stranger = Host("host-x").auth()
    assert world.apply(RUN, "run.snapshot", SNAPSHOT, auth=stranger).reason == "lease_missing"


def with_(auth: Auth, **changed: Any) -> Auth:
    return auth.model_copy(update=changed)


@pytest.mark.parametrize(
    "changed, reason",
    [
        ({}, None),
        ({"generation": 1}, None),
        ({"owner_id": "host-b"}, "lease_owner_changed"),
        ({"owner_type": "session"}, "lease_owner_changed"),
        ({"token": "guessed"}, "lease_token_changed"),
        ({"generation": 2}, "lease_generation_changed"),
    ],
    ids=str,
)
@pytest.mark.parametrize("released", [False, True], ids=["held", "released"])
def test_an_authority_matches_in_all_that_it_names(
    world: CoreWorld, a: Host, changed: dict[str, Any], reason: str | None, released: bool
) -> None:
    if released:
        world.must(RUN, "lease.release", auth=a.auth())
    outcome = world.apply(RUN, "run.snapshot", SNAPSHOT, auth=with_(a.auth(), **changed))
    assert outcome.reason == reason


def test_a_released_run_takes_commands_without_authority(world: CoreWorld, a: Host) -> None:
    world.must(RUN, "lease.release", auth=a.auth())
    world.must(RUN, "run.snapshot", SNAPSHOT)


def test_an_older_generation_is_a_stale_host_also_when_the_run_is_free(world: CoreWorld) -> None:
    host = Host("host-a")
    world.must(RUN, "lease.claim", host.claim())
    world.must(RUN, "lease.claim", host.claim())
    world.must(RUN, "lease.release", auth=host.auth())
    stale = world.apply(RUN, "run.snapshot", SNAPSHOT, auth=host.auth(claim=1))
    assert stale.reason == "lease_token_changed"


@pytest.mark.parametrize("kind", ["run.interrupt", "run.delete"])
def test_an_operator_acts_once_the_lease_has_expired(world: CoreWorld, a: Host, kind: str) -> None:
    assert world.apply(RUN, kind, at=LEASE_MS - 1).reason == "lease_missing"
    world.must(RUN, kind, at=LEASE_MS)


def test_expiry_lets_no_one_else_write_without_a_claim(world: CoreWorld, a: Host) -> None:
    for kind, body in NEEDS_LEASE:
        if kind not in ("run.interrupt", "run.delete"):
            late = world.apply(RUN, kind, body, at=LEASE_MS + world.time() + 1)
            assert late.reason == "lease_missing"


def test_a_holder_is_heard_long_after_expiry_until_another_claims(
    world: CoreWorld, a: Host
) -> None:
    world.must(RUN, "run.snapshot", SNAPSHOT, auth=a.auth(), at=50 * LEASE_MS)
    b = Host("host-b")
    world.must(RUN, "lease.claim", b.claim(), at=52 * LEASE_MS)
    assert world.apply(RUN, "run.snapshot", SNAPSHOT, auth=a.auth()).reason == (
        "lease_owner_changed"
    )


class TestBinder:
    """A segment keeps the authority that bound it."""

    ENTRY: ClassVar = {"entry": {"text": "x"}}

    def bind(self, world: CoreWorld, host: Host | None, producer: str = "p") -> None:
        auth = host.auth() if host is not None else None
        world.must(RUN, "session.bind", {"session": "s"}, auth=auth, producer=producer)

    def append(self, world: CoreWorld, host: Host | None, **how: Any) -> str | None:
        auth = host.auth(claim=how.pop("claim", None)) if host is not None else None
        return world.apply(RUN, "session.entry", self.ENTRY, auth=auth, **how).reason

    def test_unleased_and_free_takes_appends_from_anyone(self, world: CoreWorld) -> None:
        self.bind(world, None)
        assert self.append(world, None, producer="q") is None

    def test_unleased_and_claimed_takes_its_producers_and_the_holders(
        self, world: CoreWorld
    ) -> None:
        self.bind(world, None, producer="binder")
        a, b = Host("host-a"), Host("host-b")
        world.must(RUN, "lease.claim", a.claim())
        assert self.append(world, None, producer="binder") is None
        assert self.append(world, a, producer="q") is None
        assert self.append(world, None, producer="q") == "not_binder"
        assert self.append(world, b, producer="q") == "not_binder"

    def test_the_binder_goes_on_after_its_lease_is_gone(self, world: CoreWorld, a: Host) -> None:
        self.bind(world, a)
        b = Host("host-b")
        world.must(RUN, "lease.claim", b.claim(), at=2 * LEASE_MS)
        assert self.append(world, a) is None
        assert self.append(world, b) is None
        assert self.append(world, None) == "not_binder"
        assert self.append(world, Host("host-c")) == "not_binder"

    def test_the_binder_goes_on_after_a_release_and_after_the_end(
        self, world: CoreWorld, a: Host
    ) -> None:
        self.bind(world, a)
        world.must(RUN, "run.snapshot", {"state": {"status": "completed"}}, auth=a.auth())
        world.must(RUN, "lease.release", auth=a.auth())
        assert self.append(world, a) is None
        assert self.append(world, None) == "not_binder"

    def test_its_own_owners_new_claim_ends_the_old_authority(
        self, world: CoreWorld, a: Host
    ) -> None:
        self.bind(world, a)
        world.must(RUN, "lease.claim", a.claim())
        assert self.append(world, a, claim=1) == "not_binder"
        assert self.append(world, a) is None

    def test_another_generation_is_not_the_binder(self, world: CoreWorld, a: Host) -> None:
        self.bind(world, a)
        b = Host("host-b")
        world.must(RUN, "lease.claim", b.claim(), at=2 * LEASE_MS)
        wrong = a.auth(generation=2)
        assert world.apply(RUN, "session.entry", self.ENTRY, auth=wrong).reason == "not_binder"
        right = a.auth(generation=1)
        world.must(RUN, "session.entry", self.ENTRY, auth=right)

    def test_without_a_segment_there_is_nobody_to_ask(self, world: CoreWorld) -> None:
        assert self.append(world, None) == "segment_unknown"

    def test_capture_and_events_ask_the_same(self, world: CoreWorld, a: Host) -> None:
        self.bind(world, a)
        event = {"seq": 1, "at": "t", "type": "x", "payload": {}}
        for kind, body in (
            ("session.events", {"events": [event]}),
            ("session.capture", {"status": "complete"}),
        ):
            assert world.apply(RUN, kind, body).reason == "not_binder"
            world.must(RUN, kind, body, auth=a.auth())
