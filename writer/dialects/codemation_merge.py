"""How states of two workers become one in the codemation dialect.

Beside the general rule: node snapshots and invocations are taken whole; queue entries, invocations
and suspensions are known by identity; an activation that is under way is one value.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from producers.contract.jsontext import sorted_json
from writer.core.dialect import Document
from writer.core.merge import (
    ABSENT,
    UNSETTLED,
    Place,
    merge,
    merge_lists,
    same,
)
from writer.core.run import ATTEMPT_OPEN
from writer.dialects.instant import parse_ms


def merge_states(base: Document, theirs: Document, latest: Document) -> Document:
    """The merged state, all of them as they are kept."""
    merged: Document = merge(base, theirs, latest, _rule)
    return merged


def supersede(older: Any, newer: Any) -> Any:
    """Which of two records of one thing counts: one that has finished, then the later
    `updatedAt`, then the newer in order.
    """
    ended = _finished(newer)
    if ended != _finished(older):
        return newer if ended else older
    before, after = _updated_at(older), _updated_at(newer)
    return older if before is not None and after is not None and before > after else newer


def _rule(place: Place, base: Any, theirs: Any, latest: Any) -> Any:
    match place:
        case ("nodeSnapshotsByNodeId", _):
            return _one_record(base, theirs, latest)
        case ("connectionInvocations",):
            return merge_lists(base, theirs, latest, _invocation_identity, _one_record)
        case ("queue",):
            # A collect takes the inputs that either side has received.
            return merge_lists(base, theirs, latest, _entry_identity)
        case ("suspension",):
            return merge_lists(base, theirs, latest, _task_identity, _one_value)
        case ("pending",) if _activation(theirs) != _activation(latest):
            return _one_value(base, theirs, latest)
        case ("workflowSnapshot",) | ("pendingResume",):
            return _one_value(base, theirs, latest)
    return UNSETTLED


def _one_value(base: Any, theirs: Any, latest: Any) -> Any:
    return latest if same(base, theirs) else theirs


def _one_record(base: Any, theirs: Any, latest: Any) -> Any:
    if same(base, theirs):
        return latest
    if same(base, latest) or not isinstance(theirs, dict) or not isinstance(latest, dict):
        return theirs
    before, sent, stored = _activation(base), _activation(theirs), _activation(latest)
    if sent != stored and before in (sent, stored):
        # One side has gone on to another activation of the node: that is the newer one.
        return latest if before == sent else theirs
    return supersede(latest, theirs)


def _entry_identity(entry: Any) -> Hashable:
    if isinstance(entry, dict) and isinstance(entry.get("collect"), dict):
        return "collect", sorted_json([entry.get("nodeId"), entry.get("batchId")])
    return "entry", sorted_json(entry)


def _invocation_identity(record: Any) -> Hashable:
    return _identity(record, "invocationId")


def _task_identity(task: Any) -> Hashable:
    return _identity(task, "taskId")


def _identity(record: Any, name: str) -> Hashable:
    value = record.get(name) if isinstance(record, dict) else None
    return value if isinstance(value, str) else sorted_json(record)


def _activation(record: Any) -> Any:
    """An invocation has none: all of its records are of one thing."""
    value = record.get("activationId") if isinstance(record, dict) else None
    return value if isinstance(value, str) else None if record is not ABSENT else ABSENT


def _finished(record: Any) -> bool:
    status = record.get("status")
    return isinstance(status, str) and status not in ATTEMPT_OPEN


def _updated_at(record: Any) -> int | None:
    return parse_ms(record.get("updatedAt"))
