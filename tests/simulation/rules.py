"""What each kind of command does to a run, told again from the documentation's words.

Nothing of the writer is imported: where both agree, they agree by what was promised. Kinds and
fields are those that `hosts.py` sends.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.simulation.story import (
    FINISHED,
    FOR_BINDERS,
    FOR_HOLDERS,
    NOTHING_TO_DO,
    Body,
    Event,
    Lease,
    Life,
    No,
    Segment,
    Story,
    Told,
    matches,
    may_append,
    may_write,
    revise,
    revise_segment,
    text,
)

LATEST_MS = 253_402_300_799_999


def iso(ms: int) -> str:
    """A time as documents have it; past the year 9999 it stays there."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=min(ms, LATEST_MS))
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def perform(story: Story, told: Told) -> Event | str | None:
    """Do what a command asks for: its event, None for a renewal, NOTHING_TO_DO for a repetition.

    Raises No, and then nothing has changed.
    """
    if story.deleted:
        raise No("run_deleted")
    if story.life is None and told.kind != "run.create":
        raise No("run_unknown")
    segment = None
    if told.kind in FOR_HOLDERS:
        may_write(story, told)
    elif told.kind in FOR_BINDERS:
        assert story.life is not None
        segment = story.life.segments.get(told.body.get("capture_key", ""))
        if segment is None:
            raise No("segment_unknown")
        may_append(story, told, segment)
    made = KINDS[told.kind](story, told, segment)
    if made == NOTHING_TO_DO:
        return made
    if told.kind in FOR_HOLDERS and told.auth is not None:
        lease = story.held()
        if lease is not None and told.at + lease.length > lease.expires:
            lease.renewed, lease.expires = told.at, told.at + lease.length
    return made


def create(story: Story, told: Told, _: Segment | None) -> Event | str:
    body = {name: value for name, value in told.body.items() if value is not None}
    content = text({"dialect": "generic", **body})
    definition = text(body.get("definition"))
    state = body.get("state", {})
    life = story.life
    queued = "status" in body
    if life is not None and not (life.reserved and not queued):
        if life.content == content:
            return NOTHING_TO_DO
        raise No("run_conflict")
    if life is not None:
        if life.definition != definition:
            raise No("definition_conflict")
        life.content, life.reserved, life.status = content, False, "running"
        put(life, body.get("state", life.state))
        life.sent = (told.producer, told.seq) if "state" in body else None
        return revise(story, told)
    status = "queued" if queued else state.get("status", "running")
    title = state.get("title", body.get("title"))
    sent = (told.producer, told.seq) if "state" in body else None
    story.life = Life(content, queued, definition, status, state, title, sent)
    return revise(story, told)


def put(life: Life, state: Body) -> None:
    """A document that names a status or a title changes the run's."""
    life.state = state
    life.sent = None
    life.status = state.get("status", life.status)
    life.title = state.get("title", life.title)
    life.reserved = life.reserved and life.status == "queued"


def alive(story: Story) -> Life:
    assert story.life is not None
    return story.life


def snapshot(story: Story, told: Told, _: Segment | None) -> Event:
    life = alive(story)
    if told.body.get("expected_revision", life.revision) != life.revision:
        raise No("revision_conflict")
    if life.status in FINISHED:
        raise No("run_terminal")
    put(life, told.body["state"])
    life.sent = (told.producer, told.seq)
    return revise(story, told, told.body.get("event", {}).get("type"))


def patch(story: Story, told: Told, _: Segment | None) -> Event:
    life = alive(story)
    if life.status in FINISHED:
        raise No("run_terminal")
    if life.sent != (told.producer, told.body["base"]):
        raise No("base_changed")
    state = dict(life.state)
    for (name,) in told.body["remove"]:
        state.pop(name, None)
    for member in told.body["set"]:
        (name,) = member["path"]
        state[name] = member["value"]
    for splice in told.body["splice"]:
        (name,) = splice["path"]
        items, first = state.get(name), splice["start"]
        last = first + splice["delete"]
        if not isinstance(items, list) or len(items) != splice["length"] or last > len(items):
            raise No("base_changed")
        state[name] = [*items[:first], *splice["items"], *items[last:]]
    put(life, state)
    life.sent = (told.producer, told.seq)
    return revise(story, told, told.body.get("event", {}).get("type", "run.snapshot"))


def update(story: Story, told: Told, _: Segment | None) -> Event:
    life = alive(story)
    if life.status in FINISHED:
        raise No("run_terminal")
    life.current[told.body["type"], told.body["key"]] = text(told.body["data"])
    return revise(story, told)


def running(life: Life) -> None:
    if life.status in FINISHED:
        raise No("run_terminal")
    if life.status in ("queued", "waiting"):
        raise No("run_not_running")


def resume(story: Story, told: Told, _: Segment | None) -> Event:
    life = alive(story)
    running(life)
    if told.auth is not None and story.lease is not None:
        owner = (told.auth["owner_type"], told.auth["owner_id"])
        for segment in life.segments.values():
            binder = segment.binder
            if binder is not None and binder[0] == owner and binder[2] < story.lease.generation:
                fail(segment)
    return revise(story, told)


def fail(segment: Segment) -> None:
    if segment.status == "recording":
        segment.status = "failed"


def interrupt(story: Story, told: Told, _: Segment | None) -> Event:
    life = alive(story)
    running(life)
    for segment in life.segments.values():
        fail(segment)
    state = life.state
    if "status" in state:
        ended = {"status": "failed", "finishedAt": iso(told.at), "error": told.body["reason"]}
        state = {**state, **ended}
    put(life, state)
    life.status = "failed"
    return revise(story, told)


def reset(story: Story, told: Told, _: Segment | None) -> Event:
    life = alive(story)
    if life.status not in FINISHED:
        raise No("run_not_terminal")
    state = life.state
    if "status" in state:
        state = {key: state[key] for key in state if key not in ("finishedAt", "error")}
        state = {**state, "status": "running"}
    put(life, state)
    life.status = "running"
    return revise(story, told)


def annotate(story: Story, told: Told, _: Segment | None) -> Event | str:
    life = alive(story)
    if life.title == told.body["title"]:
        return NOTHING_TO_DO
    life.title = told.body["title"]
    return revise(story, told)


def delete(story: Story, told: Told, _: Segment | None) -> Event:
    event = revise(story, told)
    story.life = story.lease = None
    story.deleted = True
    story.events = [event]
    return event


def bind(story: Story, told: Told, _: Segment | None) -> Event | str:
    life, key = alive(story), told.body.get("capture_key", "")
    known = life.segments.get(key)
    if known is not None:
        if known.session == told.body["session"]:
            return NOTHING_TO_DO
        raise No("segment_conflict")
    binder = None
    if told.auth is not None:
        assert story.lease is not None
        owner = (told.auth["owner_type"], told.auth["owner_id"])
        binder = (owner, told.auth["token_sha256"], story.lease.generation)
    no = len(life.segments) + 1
    life.segments[key] = Segment(no, told.body["session"], binder, told.producer)
    return revise(story, told)


def recording(segment: Segment) -> None:
    if segment.status != "recording":
        raise No("capture_terminal")


def entry(story: Story, told: Told, segment: Segment | None) -> Event | str:
    assert segment is not None
    identity, content = told.body["entry"].get("id"), text(told.body["entry"])
    if identity in segment.entries:
        if segment.entries[identity] == content:
            return NOTHING_TO_DO
        raise No("entry_conflict")
    recording(segment)
    if identity is not None:
        segment.entries[identity] = content
    segment.entry_count += 1
    return revise_segment(story, told, segment)


def events(story: Story, told: Told, segment: Segment | None) -> Event | str:
    assert segment is not None
    stored = list(segment.events)
    for each in told.body["events"]:
        if each["seq"] > len(stored) + 1:
            raise No("event_seq_gap")
        if each["seq"] == len(stored) + 1:
            stored.append(text(each))
        elif stored[each["seq"] - 1] != text(each):
            raise No("event_conflict")
    if len(stored) == len(segment.events):
        return NOTHING_TO_DO
    recording(segment)
    segment.events = stored
    return revise_segment(story, told, segment)


def capture(story: Story, told: Told, segment: Segment | None) -> Event | str:
    assert segment is not None
    content = text(told.body)
    if segment.captured == content:
        return NOTHING_TO_DO
    recording(segment)
    if told.body.get("entry_count", segment.entry_count) != segment.entry_count:
        raise No("capture_counts")
    segment.captured, segment.status = content, told.body["status"]
    return revise_segment(story, told, segment)


def claim(story: Story, told: Told, _: Segment | None) -> Event:
    lease, body = story.held(), told.body
    owner = (body["owner_type"], body["owner_id"])
    if lease is not None and lease.owner != owner and told.at < lease.expires:
        raise No("lease_held")
    generation = story.lease.generation + 1 if story.lease is not None else 1
    length = body["lease_ms"]
    story.lease = Lease(generation, owner, body["token_sha256"], length, told.at + length, told.at)
    for segment in alive(story).segments.values():
        if segment.binder is not None and segment.binder[0] == owner:
            segment.reclaimed = True
    return revise(story, told)


def own(story: Story, told: Told) -> Lease:
    lease = story.held()
    if lease is None or told.auth is None:
        raise No("lease_missing")
    matches(lease, told.auth)
    return lease


def renew(story: Story, told: Told, _: Segment | None) -> None:
    lease = own(story, told)
    lease.length = told.body["lease_ms"]
    lease.renewed = told.at
    lease.expires = max(lease.expires, told.at + lease.length)


def release(story: Story, told: Told, _: Segment | None) -> Event:
    own(story, told).released = told.at
    return revise(story, told)


KINDS: dict[str, Any] = {
    "run.create": create,
    "run.snapshot": snapshot,
    "run.patch": patch,
    "run.update": update,
    "run.resume": resume,
    "run.reset": reset,
    "run.interrupt": interrupt,
    "run.annotate": annotate,
    "run.delete": delete,
    "session.bind": bind,
    "session.entry": entry,
    "session.events": events,
    "session.capture": capture,
    "lease.claim": claim,
    "lease.renew": renew,
    "lease.release": release,
}
