"""`run.snapshot`: a new state document, whole or merged, and the event that it brings along."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from producers.contract.commands import EventDraft, Snapshot
from producers.contract.reasons import Reason
from writer.core.context import Context
from writer.core.merge import merge
from writer.core.outcome import Applied, Refusal
from writer.core.parts import change, document


def snapshot(context: Context, command: Snapshot) -> Applied:
    """Replace or merge the state; refuse on an unexpected revision or a finished run."""
    state = _expected(context, command)
    if context.head.terminal:
        raise Refusal(Reason.RUN_TERMINAL)
    return put_state(context, state, command.event)


def _expected(context: Context, command: Snapshot) -> Mapping[str, Any]:
    expected, now = command.expected_revision, context.head.revision
    if expected is None or expected == now:
        return command.state
    if command.on_conflict == "reject" or expected > now:
        raise Refusal(Reason.REVISION_CONFLICT, f"expected {expected}, is at {now}")
    bases = context.facts.bases
    base = bases[max(revision for revision in bases if revision <= expected)]
    latest = context.run.state
    assert latest is not None
    merged = merge(
        context.dialect.enter(document(base), context.run.run_id),
        context.dialect.enter(command.state, context.run.run_id),
        document(latest),
    )
    assert isinstance(merged, dict)
    return merged


def put_state(
    context: Context, state: Mapping[str, Any], draft: EventDraft | None, kind: str = "run.snapshot"
) -> Applied:
    """Make `state` the run's state, project what changed, and record the event."""
    run, dialect, arrival = context.run, context.dialect, context.arrival
    kept = dialect.enter(state, run.run_id)
    projection = dialect.project(kept, run.head, arrival)
    changed = change(run.state, kept)
    attempts = dialect.attempts(run, kept, changed.parts, arrival)
    # All checks are done: from here on the run changes.
    revision = context.head.revision + 1
    state_digest = context.store_state(changed, revision)
    for attempt in attempts:
        attempt.revision = revision
        run.attempts[attempt.attempt_id] = attempt
        run.changed.attempts[attempt.attempt_id] = attempt
    context.project(projection)
    if draft is None:
        return context.revise_run(context.event_type(kind), state_digest=state_digest)
    return context.revise_run(
        draft.type,
        scope=draft.scope,
        node_id=draft.node_id,
        attempt_id=draft.attempt_id,
        payload=draft.payload,
        state_digest=state_digest,
    )
