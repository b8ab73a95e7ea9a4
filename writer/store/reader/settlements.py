"""How far a stream is settled, and how one of its messages ended."""

from __future__ import annotations

import apsw

from writer.store.reader.query import Record, one, records


def order_of(message_id: str) -> tuple[int, int]:
    """A message id as what it is compared by: two numbers, never its text. Raises ValueError."""
    ms, _, n = message_id.partition("-")
    return int(ms), int(n or 0)


def outcome_of(
    connection: apsw.Connection,
    run_id: str,
    message_id: str,
    producer: str | None,
    seq: int | None,
) -> Record | None:
    """How a message ended; None while it is pending. See `StateReader.outcome`."""
    row = one(connection, "run_key", run_id=run_id)
    if row is None:
        return None
    key = row[0]
    refused = records(connection, "rejection_of_message", run_key=key, message_id=message_id)
    if refused:
        return {"outcome": "rejected", **_reason(refused[0])}
    made: list[Record] = []
    if producer is not None and seq is not None:
        made = records(connection, "event_of_sequence", run_key=key, producer=producer, seq=seq)
        if made and made[0]["message_id"] == message_id:
            return {"outcome": "applied", **_revision(made[0])}
    cursor = records(connection, "cursor", run_key=key)[0]
    if order_of(message_id) > order_of(cursor["message_id"]):
        return None
    if made:
        return {"outcome": "duplicate", **_revision(made[0]), "of": made[0]["message_id"]}
    if producer is not None and seq is not None:
        refused = records(
            connection, "rejection_of_sequence", run_key=key, producer=producer, seq=seq
        )
        if refused:
            return {"outcome": "duplicate", **_reason(refused[0]), "of": refused[0]["message_id"]}
    return {"outcome": "settled"}


def _revision(event: Record) -> Record:
    return {
        "revision": event["revision"],
        "segment": event["segment"],
        "capture_key": event["capture_key"],
    }


def _reason(rejection: Record) -> Record:
    return {"reason": rejection["reason"], "detail": rejection["detail"]}


def settled_at(connection: apsw.Connection, run_id: str) -> tuple[int, str] | None:
    """Incarnation and last settled message of a stream; None if nothing of it was ever settled."""
    row = one(connection, "settled", run_id=run_id)
    return None if row is None else (row[0], row[1])
