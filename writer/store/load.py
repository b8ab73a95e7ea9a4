"""From rows to aggregates, and the answers to what decisions want to know."""

from __future__ import annotations

from typing import Any

import apsw
import orjson

from producers.contract.envelope import Authority
from writer.core.acts import acted_at
from writer.core.facts import Facts, Wanted, document_hash
from writer.core.parts import Node, build, size
from writer.core.run import (
    Attempt,
    Cursor,
    Effect,
    Head,
    Invocation,
    Lease,
    Run,
    Segment,
    Sequences,
    Suspension,
    Tombstone,
    WorkItem,
)
from writer.store.queries import named

QUERIES = named("load.sql")
HEAD_FLAGS = (5, 24)
"""Places of `reserved` and `terminal` among the head's columns."""


def load_run(connection: apsw.Connection, run_id: str) -> Run | None:
    """The aggregate of a stream; None if no message of it was ever settled."""
    row = _one(connection, "cursor", run_id)
    if row is None:
        return None
    run = Run(row[0], run_id, Cursor(*row[1:]), stored=True)
    load_acts(connection, run)
    key = run.run_key
    for no, producer, last, state_seq, lease_seq in _all(connection, "producers", key):
        run.producers[producer] = Sequences(no, producer, last, [], state_seq, lease_seq)
    by_no = {sequences.no: sequences for sequences in run.producers.values()}
    for no, first, last in _all(connection, "gaps", key):
        by_no[no].gaps.append((first, last))
        by_no[no].had_gaps = True
    tombstone = _one(connection, "tombstone", key)
    if tombstone is not None:
        run.tombstone = Tombstone(*tombstone)
    head = _one(connection, "head", key)
    if head is not None:
        _load_created(connection, run, head)
    return run


def load_acts(connection: apsw.Connection, run: Run) -> None:
    """The operator acts by which the run's messages are decided."""
    for act, incarnation, message_id, control_id in _all(connection, "acts", run.run_id):
        place = (incarnation, message_id)
        if act == "drop":
            run.drops[place] = acted_at(control_id)
        else:
            (run.skips if act == "skip" else run.breaks).add(place)


def is_kept(connection: apsw.Connection, run: Run, place: tuple[int, str]) -> bool | None:
    """Whether a refused message is kept still; None if none was refused there."""
    row = _one(connection, "rejection_kept", run.run_key, *place)
    return None if row is None else bool(row[0])


def _load_created(connection: apsw.Connection, run: Run, row: tuple[Any, ...]) -> None:
    key = run.run_key
    head = list(row)
    for flag in HEAD_FLAGS:
        head[flag] = bool(head[flag])
    head[-1] = int.from_bytes(head[-1])
    run.head = Head(*head)
    run.state = load_state(connection, key, run.head.revision)
    run.state_size = size(run.state)
    lease = _one(connection, "lease", key)
    run.lease = None if lease is None else Lease(*lease)
    for columns in _all(connection, "segments", key):
        no, capture_key, session, binding, *bound = columns[:8]
        bound_by = None if bound[0] is None else Authority(*bound)
        producer_no, created_at, reclaimed, *rest = columns[8:]
        run.segments[capture_key] = Segment(
            no,
            capture_key,
            session,
            binding,
            bound_by,
            producer_no,
            created_at,
            bool(reclaimed),
            *rest,
        )
    for columns in _all(connection, "attempts", key):
        run.attempts[columns[0]] = Attempt(*columns)
    _load_projected(connection, run)
    run.updates = set(_all(connection, "current_updates", key))
    for columns in _all(connection, "effects", key):
        run.effects[columns[0]] = Effect(*columns)


def _load_projected(connection: apsw.Connection, run: Run) -> None:
    key = run.run_key
    for columns in _all(connection, "work_items", key):
        run.work_items[columns[:2]] = WorkItem(*columns)
    for columns in _all(connection, "invocations", key):
        run.invocations[columns[0]] = Invocation(*columns)
    for columns in _all(connection, "suspensions", key):
        run.suspensions[columns[:1]] = Suspension(*columns)
    run.definitions = {digest for (digest,) in _all(connection, "definition_uses", key)}


def load_state(connection: apsw.Connection, run_key: int, revision: int) -> Node:
    """The state's parts as of a revision."""
    return build(_all(connection, "state", run_key, revision))


def load_facts(connection: apsw.Connection, run: Run, wanted: Wanted) -> Facts:
    """Answer what was wanted, by index. What is not stored is not in the answer."""
    facts = Facts()
    if run.head is not None and run.state is not None:
        facts.bases[run.head.state_revision] = run.state
    if not wanted:
        return facts
    _known_sequences(connection, run, wanted, facts)
    _stored_documents(connection, run.run_key, wanted, facts)
    for revision in wanted.bases:
        facts.bases[revision] = load_state(connection, run.run_key, revision)
    for update in wanted.updates:
        row = _one(connection, "newest_update", run.run_key, *update)
        if row is not None and row[0] is not None:
            facts.updates[update] = row[0]
    return facts


def _known_sequences(connection: apsw.Connection, run: Run, wanted: Wanted, facts: Facts) -> None:
    names = {sequences.no: sequences.producer for sequences in run.producers.values()}
    for no, seq in wanted.sequences:
        row = _one(connection, "event_hash", run.run_key, no, seq) or _one(
            connection, "rejection_hash", run.run_key, names[no], seq
        )
        if row is not None:
            facts.sequences[no, seq] = row[0]
    for message_id in wanted.refused:
        row = _one(connection, "refused", run.run_key, message_id)
        if row is not None:
            facts.refused[message_id] = row[0]


def _stored_documents(
    connection: apsw.Connection, run_key: int, wanted: Wanted, facts: Facts
) -> None:
    for segment, entry_id in wanted.entries:
        row = _one(connection, "entry", run_key, segment, entry_id)
        if row is not None:
            facts.entries[segment, entry_id] = document_hash(orjson.loads(row[0]))
    for segment, seq in wanted.events:
        row = _one(connection, "session_event", run_key, segment, seq)
        if row is not None:
            facts.events[segment, seq] = document_hash(orjson.loads(row[0]))


def _one(connection: apsw.Connection, query: str, *bindings: Any) -> tuple[Any, ...] | None:
    return connection.execute(QUERIES[query], bindings).fetchone()


def _all(connection: apsw.Connection, query: str, *bindings: Any) -> list[tuple[Any, ...]]:
    return connection.execute(QUERIES[query], bindings).fetchall()
