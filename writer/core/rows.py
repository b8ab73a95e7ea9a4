"""Rows that decisions append, column by column as `store/sql/schema.sql` has them.

Rows are written once and never changed. What does change (the run's head, its lease, segments,
attempts, effects, producers) is written from the aggregate, once per batch.
"""

from __future__ import annotations

from typing import NamedTuple

RUN_SCOPE = 0
"""The `segment` of an event that revised the run itself; segments count from 1."""


class EventRow(NamedTuple):
    """A command revised a run (`segment` 0) or one of its segments."""

    run_key: int
    segment: int
    revision: int
    type: str
    scope: str
    node_id: str | None
    attempt_id: str | None
    payload: str | None
    refs: str | None
    message_id: str
    producer_no: int
    producer_seq: int
    body_hash: bytes
    lease_generation: int
    state_digest: bytes | None
    trace_parent: str | None
    recorded_at: int


class PartRow(NamedTuple):
    """A part of the state as of `revision`; `value` None is a tombstone."""

    run_key: int
    revision: int
    pointer: str
    shape: str
    value: str | None


class UpdateRow(NamedTuple):
    """A progress update; `revision` is the run's."""

    run_key: int
    revision: int
    node_id: str | None
    attempt_id: str | None
    type: str
    key: str
    data: str
    recorded_at: int


class EntryRow(NamedTuple):
    """A transcript entry; `seq` counts from 1 within its segment."""

    run_key: int
    segment: int
    seq: int
    entry_id: str | None
    entry: str
    recorded_at: int


class SessionEventRow(NamedTuple):
    """A temporal event of a session, whole as it came."""

    run_key: int
    segment: int
    seq: int
    event: str
    recorded_at: int


class DefinitionRow(NamedTuple):
    """A definition under the SHA-256 of its canonical JSON."""

    digest: bytes
    definition: str
    recorded_at: int


class DefinitionUseRow(NamedTuple):
    """A run's earlier states name this definition, so it stays as long as the run does."""

    run_key: int
    digest: bytes
    revision: int


Row = EventRow | PartRow | UpdateRow | EntryRow | SessionEventRow | DefinitionRow | DefinitionUseRow
