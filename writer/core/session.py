"""`session.*`: segments, their transcript entries, temporal events and capture."""

from __future__ import annotations

import orjson

from producers.contract.commands import AppendEntry, AppendEvents, BindSession, Capture
from producers.contract.jsontext import sorted_json
from producers.contract.reasons import Reason
from writer.core.context import Context, text
from writer.core.facts import document_hash, entry_identity
from writer.core.outcome import Applied, Duplicate, Refusal
from writer.core.rows import EntryRow, SessionEventRow
from writer.core.run import Run, Segment


def segment_of(run: Run, command: AppendEntry | AppendEvents | Capture) -> Segment:
    """The segment that an append names; refuse if nothing is bound there."""
    segment = run.segments.get(command.capture_key or "")
    if segment is None:
        raise Refusal(Reason.SEGMENT_UNKNOWN)
    return segment


def bind(context: Context, command: BindSession) -> Applied | Duplicate:
    """Open a segment. Equal again is a duplicate, another session under the key a conflict."""
    run = context.run
    context.dialect.check_binding(command, run.run_id)
    key = command.capture_key or ""
    binding = None if command.binding is None else sorted_json(command.binding).decode()
    known = run.segments.get(key)
    if known is not None:
        if (known.session, known.binding) == (command.session, binding):
            return Duplicate()
        raise Refusal(Reason.SEGMENT_CONFLICT)
    auth = context.message.auth
    if auth is not None:
        assert run.lease is not None
        auth = auth._replace(generation=run.lease.generation)
    segment = Segment(
        no=len(run.segments) + 1,
        capture_key=key,
        session=command.session,
        binding=binding,
        bound_by=auth,
        producer_no=context.producer_no,
        created_at=context.arrival,
    )
    run.segments[key] = segment
    run.changed.segments[segment.no] = segment
    payload = {"session": command.session}
    if key:
        payload["capture_key"] = key
    return context.revise_run(context.event_type("session.bind"), scope="session", payload=payload)


def append_entry(context: Context, command: AppendEntry) -> Applied | Duplicate:
    """Append one entry. A stored id is skipped if the entry is equal, else a conflict."""
    segment = segment_of(context.run, command)
    identity = entry_identity(command)
    if identity is not None:
        if "\0" in identity:
            raise Refusal(Reason.FIELD_INVALID, "entry.id")
        digest = document_hash(command.entry)
        known = context.facts.entries.get((segment.no, identity))
        if known is not None:
            if known == digest:
                return Duplicate()
            raise Refusal(Reason.ENTRY_CONFLICT)
    _check_recording(segment)
    segment.entry_count += 1
    if identity is not None:
        context.facts.entries[segment.no, identity] = digest
    context.rows.append(
        EntryRow(
            context.run.run_key,
            segment.no,
            segment.entry_count,
            identity,
            text(command.entry),
            context.arrival,
        )
    )
    return context.revise_segment(segment, context.event_type("session.entry"))


def append_events(context: Context, command: AppendEvents) -> Applied | Duplicate:
    """Append a batch. Stored ones are skipped if equal; what follows must go on without a hole."""
    run, facts = context.run, context.facts
    segment = segment_of(run, command)
    first = segment.event_count + 1
    fresh: list[object] = []
    for record in context.body["events"]:
        place = record["seq"] - first
        if place > len(fresh):
            expected = first + len(fresh)
            raise Refusal(Reason.EVENT_SEQ_GAP, f"expected seq {expected}, got {record['seq']}")
        if place == len(fresh):
            fresh.append(record)
            continue
        known = (
            facts.event_hash(segment.no, record["seq"])
            if place < 0
            else document_hash(fresh[place])
        )
        if known != document_hash(record):
            raise Refusal(Reason.EVENT_CONFLICT, f"seq {record['seq']}")
    if not fresh:
        return Duplicate()
    _check_recording(segment)
    key, no, arrival = run.run_key, segment.no, context.arrival
    context.rows += [
        SessionEventRow(key, no, seq, text(record), arrival)
        for seq, record in enumerate(fresh, first)
    ]
    facts.new_events.append((no, first, fresh))
    segment.event_count += len(fresh)
    return context.revise_segment(
        segment,
        context.event_type("session.events"),
        {"count": len(fresh), "last_seq": segment.event_count},
    )


def capture(context: Context, command: Capture) -> Applied | Duplicate:
    """Say how a recording stands. It ends once; its first failure is kept."""
    segment = segment_of(context.run, command)
    if (command.status == "failed") != (command.failure is not None):
        raise Refusal(Reason.CAPTURE_FAILURE)
    failure = None if command.failure is None else sorted_json(context.body["failure"]).decode()
    told = orjson.dumps(
        [command.status, command.entry_count, command.event_count, command.last_event_seq, failure]
    ).decode()
    if segment.captured == told:
        return Duplicate()
    _check_recording(segment)
    for count, stored in (
        (command.entry_count, segment.entry_count),
        (command.event_count, segment.event_count),
        (command.last_event_seq, segment.event_count),
    ):
        if count is not None and count != stored:
            raise Refusal(Reason.CAPTURE_COUNTS, f"{count} told, {stored} stored")
    segment.captured = told
    segment.status = command.status
    segment.failure = failure
    segment.finished_at = None if command.status == "recording" else context.arrival
    return context.revise_segment(
        segment, context.event_type("session.capture"), {"status": command.status}
    )


def _check_recording(segment: Segment) -> None:
    if segment.status != "recording":
        raise Refusal(Reason.CAPTURE_TERMINAL)


def end_recordings(context: Context, segments: list[Segment], message: str) -> list[str]:
    """Fail recordings as a side effect of a run's command; returns their capture keys."""
    for segment in segments:
        segment.status = "failed"
        segment.failure = sorted_json({"code": "host_interrupted", "message": message}).decode()
        segment.finished_at = context.arrival
        context.run.changed.segments[segment.no] = segment
    return [segment.capture_key for segment in segments]
