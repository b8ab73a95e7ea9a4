"""Attempts and invocations of a codemation state: what the dashboards show of its nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from writer.core.dialect import Document, Note, Rows
from writer.core.parts import Change, Part
from writer.core.run import ATTEMPT_ACTIVE, Attempt, Invocation, Key, Run
from writer.dialects.instant import parse_ms
from writer.dialects.places import base_of, is_touched, text_in, touched_members, whole_in

NODES, CALLS = "nodeSnapshotsByNodeId", "connectionInvocations"
NOTED_MAX = 16
"""How many attempts and invocations the event of a save names of each."""


def changed_attempts(run: Run, state: Document, parts: Sequence[Part]) -> list[Attempt]:
    """Attempts of the node snapshots that changed; those that they leave behind are interrupted."""
    nodes = state.get(NODES) or {}
    touched = touched_members(parts, NODES)
    found: dict[str, Attempt] = {}
    for node in sorted(nodes if touched is None else touched & nodes.keys()):
        snapshot = nodes[node]
        if isinstance(snapshot, dict):
            _add_attempt(run, state, node, snapshot, found)
    return list(found.values())


def _add_attempt(
    run: Run, state: Document, node: str, snapshot: Document, found: dict[str, Attempt]
) -> None:
    activation = text_in(snapshot, "activationId")
    name = activation or f"na:{node}"
    known = found.get(name) or run.attempts.get(name)
    if known is not None and known.node_id != node:
        name = f"{node}:{name}"
        known = run.attempts.get(name)
    attempt = Attempt(
        attempt_id=name,
        node_id=node,
        number=known.number if known is not None else 1,
        node_type="node",
        status=text_in(snapshot, "status") or "pending",
        started_at=parse_ms(snapshot.get("startedAt")),
        finished_at=parse_ms(snapshot.get("finishedAt")),
        batch_id=(known and known.batch_id) or _batch_of(state, snapshot, activation),
        child_run=text_in(snapshot, "childRunId"),
    )
    if known is not None:
        attempt.revision = known.revision
        if attempt != known:
            found[name] = attempt
        return
    for other in list(run.attempts.values()):
        if other.node_id == node:
            attempt.number = max(attempt.number, other.number + 1)
            if other.status in ATTEMPT_ACTIVE:
                found[other.attempt_id] = _interrupted(other)
    found[name] = attempt


def _interrupted(attempt: Attempt) -> Attempt:
    """The node has gone on without an end of it."""
    return Attempt(
        attempt_id=attempt.attempt_id,
        node_id=attempt.node_id,
        number=attempt.number,
        node_type=attempt.node_type,
        status="interrupted",
        started_at=attempt.started_at,
        finished_at=attempt.finished_at,
        batch_id=attempt.batch_id,
        child_run=attempt.child_run,
    )


def _batch_of(state: Document, snapshot: Document, activation: str | None) -> str | None:
    """The batch in which an activation was enqueued: only the save that does so tells."""
    pending = state.get("pending")
    if activation is not None and text_in(pending, "activationId") == activation:
        return text_in(pending, "batchId")
    return text_in(snapshot, "batchId")


def gone_attempts(run: Run, state: Document, parts: Sequence[Part]) -> list[tuple[str, Key]]:
    """Attempts of nodes that the state no longer knows. Its history still does."""
    if not is_touched(parts, NODES):
        return []
    nodes = state.get(NODES) or {}
    touched = touched_members(parts, NODES)
    if touched is not None and touched <= nodes.keys():
        return []
    return [
        ("attempts", attempt.key)
        for attempt in run.attempts.values()
        if attempt.node_id not in nodes
    ]


def changed_invocations(
    run: Run, state: Document, change: Change
) -> tuple[list[Invocation], list[tuple[str, Key]]]:
    """Invocations that are new or differ, and those that are gone."""
    if not is_touched(change.parts, CALLS):
        return [], []
    touched = touched_members(change.parts, CALLS)
    base = base_of(change.root, CALLS)
    numbers: Counter[str] = Counter()
    for call in run.invocations.values():
        numbers[call.node_id] = max(numbers[call.node_id], call.number)
    present = set()
    found = []
    for index, record in enumerate(state.get(CALLS) or []):
        name = text_in(record, "invocationId")
        if name is None or name in present:
            continue
        present.add(name)
        known = run.invocations.get(name)
        position = base + index
        if known is None or touched is None or str(position) in touched:
            call = _invocation(record, name, position, known)
            if known is None or call.node_id != known.node_id:
                numbers[call.node_id] += 1
                call.number = numbers[call.node_id]
            if call != known:
                found.append(call)
    gone: list[tuple[str, Key]] = [
        ("invocations", (name,)) for name in run.invocations if name not in present
    ]
    return found, gone


def _invocation(record: Any, name: str, position: int, known: Invocation | None) -> Invocation:
    return Invocation(
        invocation_id=name,
        position=position,
        node_id=text_in(record, "connectionNodeId") or "",
        number=known.number if known is not None else 1,
        agent_node=text_in(record, "parentAgentNodeId"),
        attempt_id=text_in(record, "parentAgentActivationId"),
        status=text_in(record, "status") or "pending",
        status_label=text_in(record, "statusLabel"),
        subject_name=text_in(record, "subjectName"),
        iteration_id=text_in(record, "iterationId"),
        item_index=whole_in(record, "itemIndex"),
        parent_invocation=text_in(record, "parentInvocationId"),
        queued_at=parse_ms(record.get("queuedAt")),
        started_at=parse_ms(record.get("startedAt")),
        finished_at=parse_ms(record.get("finishedAt")),
        revision=known.revision if known is not None else 0,
    )


def note_of(attempts: Sequence[Attempt], rows: Rows) -> Note:
    """Which attempts and invocations a save changed: ids and statuses, no payload."""
    ended = [attempt for attempt in attempts if attempt.status != "interrupted"]
    payload = dict(_noted(attempts, rows.invocations))
    if len(ended) != 1:
        return Note(payload=payload or None)
    return Note(ended[0].node_id, ended[0].attempt_id, payload)


def _noted(
    attempts: Sequence[Attempt], calls: Sequence[Invocation]
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    if attempts:
        yield (
            "attempts",
            [
                {"nodeId": each.node_id, "attemptId": each.attempt_id, "status": each.status}
                for each in attempts[:NOTED_MAX]
            ],
        )
    if calls:
        yield (
            "invocations",
            [
                {"invocationId": each.invocation_id, "status": each.status}
                for each in calls[:NOTED_MAX]
            ],
        )
