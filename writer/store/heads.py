"""The rows of what a batch changed in its aggregates, each column where `commit.sql` names it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from writer.core.run import Run

Rows = dict[str, list[tuple[Any, ...]]]

ORDER = (
    "delete_attempt",
    "delete_work_item",
    "delete_invocation",
    "delete_suspension",
    "put_cursor",
    "put_producer",
    "delete_gaps",
    "insert_gap",
    "put_run",
    "put_lease",
    "put_segment",
    "put_attempt",
    "put_work_item",
    "put_invocation",
    "put_suspension",
    "put_effect",
)
"""The statements, in the order in which they run."""

_DELETE = {
    "attempts": "delete_attempt",
    "work_items": "delete_work_item",
    "invocations": "delete_invocation",
    "suspensions": "delete_suspension",
}
_CURSOR = attrgetter("incarnation", "message_id", "applied", "duplicates", "rejected")
_PRODUCER = attrgetter("no", "producer", "last", "state_seq", "lease_seq")
_LEASE = attrgetter(
    "generation",
    "owner_type",
    "owner_id",
    "token_sha256",
    "lease_ms",
    "acquired_at",
    "renewed_at",
    "expires_at",
    "released_at",
)
_HEAD = attrgetter(
    "dialect",
    "created_at",
    "updated_at",
    "status",
    "create_digest",
    "reserved",
    "workflow",
    "definition_digest",
    "source_type",
    "source_ref",
    "source_revision",
    "parent_run",
    "parent_relation",
    "title",
    "tags",
    "test_case_status",
    "retention_seconds",
    "effects",
    "input",
    "status_detail",
    "current_node",
    "current_attempt",
    "error",
    "finished_at",
    "terminal",
    "revision",
    "state_revision",
    "state_producer",
    "state_seq",
)
_SEGMENT = attrgetter(
    "producer_no",
    "created_at",
    "reclaimed",
    "status",
    "revision",
    "entry_count",
    "event_count",
    "captured",
    "failure",
    "finished_at",
)
_ATTEMPT = attrgetter(
    "attempt_id",
    "node_id",
    "number",
    "node_type",
    "status",
    "outcome",
    "step",
    "started_at",
    "finished_at",
    "revision",
    "batch_id",
    "child_run",
)
_WORK_ITEM = attrgetter(
    "kind",
    "position",
    "node_id",
    "attempt_id",
    "batch_id",
    "port",
    "items",
    "queue",
    "enqueued_at",
    "revision",
)
_INVOCATION = attrgetter(
    "invocation_id",
    "position",
    "node_id",
    "number",
    "agent_node",
    "attempt_id",
    "status",
    "status_label",
    "subject_name",
    "iteration_id",
    "item_index",
    "parent_invocation",
    "queued_at",
    "started_at",
    "finished_at",
    "revision",
)
_SUSPENSION = attrgetter(
    "position",
    "task_id",
    "node_id",
    "attempt_id",
    "item_index",
    "on_timeout",
    "timeout_at",
    "revision",
)
_EFFECT = attrgetter(
    "effect_id",
    "kind",
    "occurrence",
    "revision",
    "created_at",
    "status",
    "result",
    "error",
    "settled_at",
)
_UNBOUND = (None, None, None, None)


def changed_rows(runs: Iterable[Run]) -> Rows:
    """By statement, the rows that the batch must write."""
    rows: Rows = defaultdict(list)
    for run in runs:
        key, changed = run.run_key, run.changed
        rows["put_cursor"].append((key, run.run_id, *_CURSOR(run.cursor)))
        for known in changed.producers.values():
            rows["put_producer"].append((key, *_PRODUCER(known)))
            if known.gaps or known.had_gaps:
                rows["delete_gaps"].append((key, known.no))
                rows["insert_gap"].extend((key, known.no, *gap) for gap in known.gaps)
                known.had_gaps = bool(known.gaps)
        if changed.head and run.head is not None:
            digest = run.head.state_digest.to_bytes(32)
            rows["put_run"].append((key, run.run_id, *_HEAD(run.head), digest))
        if changed.lease and run.lease is not None:
            rows["put_lease"].append((key, *_LEASE(run.lease)))
        for segment in changed.segments.values():
            named = (segment.no, segment.capture_key, segment.session, segment.binding)
            bound = segment.bound_by or _UNBOUND
            rows["put_segment"].append((key, *named, *bound, *_SEGMENT(segment)))
        _add_projected(rows, run)
        for effect in changed.effects.values():
            rows["put_effect"].append((key, *_EFFECT(effect)))
    return rows


def _add_projected(rows: Rows, run: Run) -> None:
    """Rows that a dialect makes of the state, and those that it took away."""
    key, changed = run.run_key, run.changed
    for table, gone in sorted(changed.gone):
        rows[_DELETE[table]].append((key, *gone))
    for query, get, found in (
        ("put_attempt", _ATTEMPT, changed.attempts),
        ("put_work_item", _WORK_ITEM, changed.work_items),
        ("put_invocation", _INVOCATION, changed.invocations),
        ("put_suspension", _SUSPENSION, changed.suspensions),
    ):
        if found:
            rows[query].extend((key, *get(row)) for row in found.values())
