"""Transcripts: segments, their entries and temporal events, and whether they are whole."""

from __future__ import annotations

from typing import NamedTuple

import apsw

from producers.contract.limits import COUNTER_MAX
from writer.dialects.instant import iso
from writer.store.reader.query import ROWS_MAX, Record, decode, one, page, records
from writer.store.reader.states import Head

CAPTURE_SCHEMA = "pi-workflows.session-capture.v1"
EVENT_SCHEMA = "pi-workflows.session-event.v1"
COUNTS_DIFFER = "session capture counts do not match durable rows"
STILL_RECORDING = "terminal run still reports recording capture"


class Segment(NamedTuple):
    """One row of `segments`, its JSON columns decoded."""

    run_key: int
    no: int
    capture_key: str
    session: str
    binding: Record | None
    status: str
    entry_count: int
    event_count: int
    failure: Record | None


def segments_of(connection: apsw.Connection, run_key: int) -> list[Segment]:
    """All segments of a run, the oldest first, the flat one among them."""
    rows = records(connection, "bound_segments", run_key=run_key)
    return [Segment(*decode(row, "binding", "failure").values()) for row in rows]


def segment_at(
    connection: apsw.Connection, run_key: int, capture_key: str | None
) -> Segment | None:
    """The segment under a capture key (None: the flat one); None if nothing is bound there."""
    rows = records(connection, "bound_segment", run_key=run_key, capture_key=capture_key or "")
    return Segment(*decode(rows[0], "binding", "failure").values()) if rows else None


def transcript_after(
    connection: apsw.Connection, segment: Segment, after: int, limit: int
) -> list[Record]:
    """`{seq, entry_id, entry, recorded_at}` past a seq."""
    where = _past(segment, after)
    return [decode(row, "entry") for row in page(connection, "entries", **where, limit=limit)]


def session_events_after(
    connection: apsw.Connection, segment: Segment, after: int, limit: int
) -> list[Record]:
    """`{seq, event, recorded_at}` past a seq; `event` is the whole record as it came."""
    where = _past(segment, after)
    found = page(connection, "session_events", **where, limit=limit)
    return [decode(row, "event") for row in found]


def _past(segment: Segment, after: int) -> dict[str, int]:
    return {
        "run_key": segment.run_key,
        "segment": segment.no,
        "after": after,
        "last": COUNTER_MAX,
    }


def counts_of(segment: Segment | None) -> Record:
    """`{entryCount, eventCount, lastEventSeq}` as counted; zeros without a segment."""
    entries, events = (segment.entry_count, segment.event_count) if segment else (0, 0)
    return {"entryCount": entries, "eventCount": events, "lastEventSeq": events}


def capture_of(segment: Segment) -> Record:
    """How the recording stands, as the hosts' capture document."""
    document = {
        "schema": CAPTURE_SCHEMA,
        "eventSchema": EVENT_SCHEMA,
        "status": segment.status,
        **counts_of(segment),
    }
    if segment.failure is not None:
        document["failure"] = segment.failure
    return document


class Recording(NamedTuple):
    """All of a segment: `entries` as `{seq, at, entry}`, `events` as they came."""

    segment: Segment
    entries: list[Record]
    events: list[Record]
    integrity: Record


def recording_of(connection: apsw.Connection, head: Head, segment: Segment) -> Recording:
    """Read a segment whole, and say whether it is."""
    entries: list[Record] = []
    last = 0
    while rows := transcript_after(connection, segment, last, ROWS_MAX):
        entries += [
            {"seq": row["seq"], "at": iso(row["recorded_at"]), "entry": row["entry"]}
            for row in rows
        ]
        last = rows[-1]["seq"]
    events: list[Record] = []
    last = 0
    while rows := session_events_after(connection, segment, last, ROWS_MAX):
        events += [row["event"] for row in rows]
        last = rows[-1]["seq"]
    integrity = _integrity(segment, (len(entries), len(events)), terminal=head.terminal)
    return Recording(segment, entries, events, integrity)


def _integrity(segment: Segment, rows: tuple[int, int], *, terminal: bool) -> Record:
    diagnostics = []
    if rows != (segment.entry_count, segment.event_count):
        diagnostics.append(COUNTS_DIFFER)
    if terminal and segment.status == "recording":
        diagnostics.append(STILL_RECORDING)
    if diagnostics:
        return {"status": "invalid", "diagnostics": diagnostics}
    if segment.failure is not None:
        message = segment.failure.get("message") or "session capture failed"
        return {"status": "failed", "diagnostics": [message]}
    return {"status": segment.status, "diagnostics": []}


def capture_keys(connection: apsw.Connection, run_key: int) -> list[str]:
    """Capture keys in order, without the flat segment."""
    return [row["capture_key"] for row in records(connection, "capture_keys", run_key=run_key)]


def has_segment(connection: apsw.Connection, run_key: int) -> bool:
    """Whether any session was ever bound."""
    return one(connection, "any_segment", run_key=run_key) is not None
