"""A whole run in the shape that pi-workflows hosts read: state, trace and sessions together."""

from __future__ import annotations

import apsw
import orjson

from writer.store.reader.query import Record, one
from writer.store.reader.sessions import Recording, capture_of, recording_of, segments_of
from writer.store.reader.states import Head, state_at
from writer.store.reader.trace import whole_trace


def recorded_run(connection: apsw.Connection, head: Head, *, include_trace: bool) -> Record:
    """The whole run; the keys are described at `StateReader.read_run`."""
    recordings = [
        recording_of(connection, head, segment) for segment in segments_of(connection, head.run_key)
    ]
    flat = next((each for each in recordings if not each.segment.capture_key), None)
    definition = one(connection, "definition", run_key=head.run_key)
    run: Record = {
        "runId": head.run_id,
        "state": state_at(connection, head, head.revision),
        "snapshot": None if definition is None else orjson.loads(definition[0]),
    }
    if include_trace:
        run["traceEvents"] = whole_trace(connection, head)
    run |= {
        "sessionBinding": flat.segment.binding if flat else None,
        "sessionEntries": flat.entries if flat else [],
        "sessionEvents": flat.events if flat else [],
        "sessionCapture": capture_of(flat.segment) if flat else None,
        "sessionIntegrity": flat.integrity
        if flat
        else {"status": "unavailable", "diagnostics": []},
        "sessionSegments": [_keyed(each) for each in recordings if each.segment.capture_key],
    }
    return run


def _keyed(recording: Recording) -> Record:
    segment = recording.segment
    return {
        "captureKey": segment.capture_key,
        "session": segment.session,
        "binding": segment.binding,
        "entries": recording.entries,
        "events": recording.events,
        "capture": capture_of(segment),
        "integrity": recording.integrity,
    }
