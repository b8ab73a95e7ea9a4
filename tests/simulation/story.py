"""A run as the oracle knows it, and who may change it. Imports nothing of the writer."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

Body = dict[str, Any]
Auth = dict[str, Any]

FINISHED = {"completed", "failed", "timed_out", "cancelled"}
STATE = ("run.snapshot", "run.patch", "run.resume", "run.reset", "run.interrupt")
LEASE = ("lease.claim", "lease.renew", "lease.release")
FOR_HOLDERS = (*STATE, "run.update", "run.delete", "session.bind")
FOR_BINDERS = ("session.entry", "session.events", "session.capture")
NOTHING_TO_DO = "duplicate"


class No(Exception):
    """Refused; its text is the reason's code."""


def text(value: Any) -> str:
    """JSON by which values are compared."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


@dataclass
class Lease:
    """Who may write."""

    generation: int
    owner: tuple[str, str]
    token: str
    length: int
    expires: int
    renewed: int
    released: int | None = None


@dataclass
class Segment:
    """A transcript."""

    no: int
    session: str
    binder: tuple[tuple[str, str], str, int] | None
    producer: str
    reclaimed: bool = False
    status: str = "recording"
    revision: int = 1
    entries: dict[str, str] = field(default_factory=dict)
    entry_count: int = 0
    events: list[str] = field(default_factory=list)
    captured: str | None = None


@dataclass
class Event:
    """One line of a run's trace, or of a segment's."""

    segment: int
    revision: int
    type: str
    message: str
    generation: int


@dataclass
class Life:
    """A run from its creation to its deletion."""

    content: str
    reserved: bool
    definition: str
    status: str
    state: Body
    title: str | None
    sent: tuple[str, int] | None = None
    revision: int = 0
    segments: dict[str, Segment] = field(default_factory=dict)
    current: dict[tuple[str, str], str] = field(default_factory=dict)


@dataclass
class Story:
    """All that was told of one run; `life` is None before it is created and after its deletion."""

    life: Life | None = None
    lease: Lease | None = None
    deleted: bool = False
    events: list[Event] = field(default_factory=list)

    def held(self) -> Lease | None:
        return self.lease if self.lease is not None and self.lease.released is None else None

    def break_lease(self, at: int) -> bool:
        lease = self.held()
        if lease is not None:
            lease.released = at
        return lease is not None


@dataclass
class Told:
    """A command that reached its run."""

    kind: str
    body: Body
    auth: Auth | None
    producer: str
    seq: int
    message: str
    at: int


def matches(lease: Lease, auth: Auth) -> None:
    """Refuse unless the authority is this lease's."""
    if (auth["owner_type"], auth["owner_id"]) != lease.owner:
        raise No("lease_owner_changed")
    if auth["token_sha256"] != lease.token:
        raise No("lease_token_changed")
    if auth.get("generation") not in (None, lease.generation):
        raise No("lease_generation_changed")


def may_write(story: Story, told: Told) -> None:
    """Refuse who does not hold the run."""
    if told.auth is not None:
        if story.lease is None:
            raise No("lease_missing")
        return matches(story.lease, told.auth)
    lease = story.held()
    operators = told.kind in ("run.interrupt", "run.delete")
    if lease is not None and not (operators and told.at >= lease.expires):
        raise No("lease_missing")
    return None


def may_append(story: Story, told: Told, segment: Segment) -> None:
    """Refuse who neither bound the segment nor holds the run."""
    lease, auth = story.held(), told.auth
    if lease is not None and auth is not None:
        try:
            return matches(lease, auth)
        except No:
            pass
    if segment.binder is None:
        allowed = lease is None or told.producer == segment.producer
    else:
        owner, token, generation = segment.binder
        allowed = (
            auth is not None
            and not segment.reclaimed
            and (auth["owner_type"], auth["owner_id"]) == owner
            and auth["token_sha256"] == token
            and auth.get("generation") in (None, generation)
        )
    if not allowed:
        raise No("not_binder")
    return None


def revise(story: Story, told: Told, type: str | None = None) -> Event:
    """The run's next revision."""
    assert story.life is not None
    story.life.revision += 1
    generation = story.lease.generation if story.lease is not None else 0
    event = Event(0, story.life.revision, type or told.kind, told.message, generation)
    story.events.append(event)
    return event


def revise_segment(story: Story, told: Told, segment: Segment) -> Event:
    """The segment's next revision."""
    segment.revision += 1
    generation = story.lease.generation if story.lease is not None else 0
    event = Event(segment.no, segment.revision, told.kind, told.message, generation)
    story.events.append(event)
    return event
