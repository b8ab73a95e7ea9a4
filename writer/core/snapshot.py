"""`run.snapshot`: a new state document, whole or merged, and the event that it brings along."""

from __future__ import annotations

from producers.contract.commands import Snapshot
from producers.contract.reasons import Reason
from writer.core.context import Context
from writer.core.dialect import Document
from writer.core.outcome import Applied, Refusal
from writer.core.parts import document
from writer.core.reference import refer
from writer.core.staging import stage, store


def snapshot(context: Context, command: Snapshot) -> Applied:
    """Replace or merge the state; refuse on an unexpected revision or a finished run."""
    kept = _expected(context, command)
    if context.head.terminal:
        raise Refusal(Reason.RUN_TERMINAL)
    if kept is None:
        kept = context.dialect.enter(command.state, context.run.run_id)
    staged = stage(context, kept, context.dialect.definition(command.state))
    # All checks are done: from here on the run changes.
    digest = store(context, staged)
    context.project(staged.projection)
    draft = command.event
    if draft is None:
        note = staged.note(context)
        return context.revise_run(
            context.event_type("run.snapshot"),
            scope="run" if note.node_id is None else "node",
            node_id=note.node_id,
            attempt_id=note.attempt_id,
            payload=note.payload,
            state_digest=digest,
        )
    payload, refs = refer(draft.payload or {}, staged.changed.parts)
    return context.revise_run(
        draft.type,
        scope=draft.scope,
        node_id=draft.node_id,
        attempt_id=draft.attempt_id,
        payload=None if draft.payload is None else payload,
        refs=refs,
        state_digest=digest,
    )


def _expected(context: Context, command: Snapshot) -> Document | None:
    """The merged state as it is kept; None if the command's own is to replace the latest."""
    expected, now = command.expected_revision, context.head.revision
    if expected is None or expected == now:
        return None
    if command.on_conflict == "reject" or expected > now:
        raise Refusal(Reason.REVISION_CONFLICT, f"expected {expected}, is at {now}")
    if context.head.terminal:
        raise Refusal(Reason.RUN_TERMINAL)
    bases = context.facts.bases
    base = bases[max(revision for revision in bases if revision <= expected)]
    latest = context.run.state
    assert latest is not None
    theirs = context.dialect.enter(command.state, context.run.run_id)
    return context.dialect.merge(document(base), theirs, document(latest))
