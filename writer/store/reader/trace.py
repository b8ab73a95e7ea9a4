"""A run's events: as rows of our own, and as the trace events that pi-workflows hosts know."""

from __future__ import annotations

import apsw

from writer.dialects.instant import iso
from writer.dialects.pi_workflows import update_id
from writer.store.reader.query import ROWS_MAX, Record, decode, page
from writer.store.reader.states import Head


def trace_after(connection: apsw.Connection, head: Head, after: int, limit: int) -> list[Record]:
    """Rows of `v_trace` past a revision; an update's payload has its data and `updateId`."""
    found = page(
        connection, "trace", run_key=head.run_key, run_id=head.run_id, after=after, limit=limit
    )
    for row in found:
        decode(row, "payload")
        if row.pop("is_update"):
            row["payload"] = {"updateId": update_id(head.run_id, row["revision"]), **row["payload"]}
    return found


def whole_trace(connection: apsw.Connection, head: Head) -> list[Record]:
    """Every event of the run in the hosts' shape."""
    events: list[Record] = []
    while len(events) < head.revision:
        rows = trace_after(connection, head, len(events), ROWS_MAX)
        events += [trace_event(row) for row in rows]
    return events


def trace_event(row: Record) -> Record:
    """`{seq, at, runId, scope, type, nodeId?, attemptId?, payload}`; `at` is ISO 8601."""
    where = {"nodeId": row["node_id"], "attemptId": row["attempt_id"]}
    return {
        "seq": row["revision"],
        "at": iso(row["recorded_at"]),
        "runId": row["run_id"],
        "scope": row["scope"],
        "type": row["type"],
        **{name: value for name, value in where.items() if value is not None},
        "payload": row["payload"] or {},
    }
