"""`run.snapshot` and `run.patch`: a new state document, whole, merged or as what changed, and the
event that it brings along.
"""

from __future__ import annotations

from producers.contract.commands import EventDraft, Patch, Snapshot
from producers.contract.limits import BODY_BYTES_MAX
from producers.contract.reasons import Reason
from writer.core.context import Context
from writer.core.dialect import Document
from writer.core.outcome import Applied, Refusal
from writer.core.parts import difference, document
from writer.core.patch import Mismatch, entered, patched, touched_by
from writer.core.reference import refer
from writer.core.staging import Staged, stage, store


def snapshot(context: Context, command: Snapshot) -> Applied:
    """Replace or merge the state; refuse on an unexpected revision or a finished run."""
    merged = _expected(context, command)
    if context.head.terminal:
        raise Refusal(Reason.RUN_TERMINAL)
    kept = merged
    if kept is None:
        kept = context.dialect.enter(command.state, context.run.run_id)
    as_sent = merged is None and context.dialect.is_as_sent(command.state, kept)
    staged = stage(context, kept, context.dialect.definition(command.state))
    return _store(context, staged, command.event, as_sent=as_sent)


def patch(context: Context, command: Patch) -> Applied:
    """Replace parts of the state; refuse if another command has changed it since the base."""
    run, head, dialect = context.run, context.head, context.dialect
    if head.terminal:
        raise Refusal(Reason.RUN_TERMINAL)
    if (head.state_producer, head.state_seq) != (context.producer_no, command.base):
        raise Refusal(Reason.BASE_CHANGED)
    assert run.state is not None
    before = run.document if run.document is not None else document(run.state)
    try:
        tree, sent = patched(run.state, before, command, dialect)
    except Mismatch as mismatch:
        raise Refusal(Reason.BASE_CHANGED, str(mismatch)) from None
    touched = touched_by(command)
    kept = dialect.enter(sent, run.run_id, touched)
    changed = difference(run.state, entered(run.state, tree, sent, kept, touched))
    if run.state_size.bytes + changed.grown.bytes > BODY_BYTES_MAX:
        raise Refusal(Reason.STATE_TOO_LARGE)
    named = dialect.definition({key: sent[key] for key in touched if key in sent})
    staged = stage(context, kept, named, changed)
    outcome = _store(context, staged, command.event, as_sent=dialect.is_as_sent(sent, kept))
    run.document = kept
    return outcome


def _store(context: Context, staged: Staged, draft: EventDraft | None, *, as_sent: bool) -> Applied:
    # All checks are done: from here on the run changes.
    digest = store(context, staged, as_sent=as_sent)
    context.project(staged.projection)
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
