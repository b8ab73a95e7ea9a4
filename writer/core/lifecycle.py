"""A run's own life: created, resumed, reset, interrupted, annotated, deleted; its effects
settled.
"""

from __future__ import annotations

from hashlib import sha256

import orjson

from producers.contract.commands import (
    Annotate,
    CreateRun,
    DeleteRun,
    Interrupt,
    Reset,
    Resume,
    SettleEffect,
)
from producers.contract.jsontext import sorted_json
from producers.contract.reasons import Reason
from writer.core.context import Context, text
from writer.core.definition import canonical_definition, definition_digest
from writer.core.dialect import Document
from writer.core.outcome import Applied, Duplicate, Refusal
from writer.core.parts import NOTHING, change, document
from writer.core.rows import DefinitionRow
from writer.core.run import ATTEMPT_ACTIVE, Head, Tombstone
from writer.core.session import end_recordings
from writer.core.staging import stage, store

HOST_STOPPED = "The host stopped before the run finished."


def create(context: Context, command: CreateRun) -> Applied | Duplicate:
    """Create a run, or adopt one that was reserved. Equal again is a duplicate, else a conflict."""
    run = context.run
    head = run.head
    command = context.dialects[command.dialect].check_create(command, run.run_id)
    content = _content(context, command)
    if head is not None and not (head.reserved and command.status is None):
        if head.create_digest == content:
            return Duplicate()
        raise Refusal(Reason.RUN_CONFLICT)
    digest = definition_digest(command.definition)
    if head is not None:
        return _adopt(context, command, content, digest)
    run.head = Head(
        dialect=command.dialect,
        created_at=context.arrival,
        updated_at=context.arrival,
        status="queued" if command.status == "queued" else "running",
        create_digest=content,
        reserved=command.status == "queued",
        workflow=command.workflow,
        definition_digest=digest,
        source_type=command.source.type if command.source else None,
        source_ref=command.source.ref if command.source else None,
        source_revision=command.source.revision if command.source else None,
        parent_run=command.parent.run if command.parent else None,
        parent_relation=command.parent.relation if command.parent else None,
        title=command.title,
        tags=_tags(command.tags),
        test_case_status=context.dialects[command.dialect].test_case_status(command),
        retention_seconds=command.retention_seconds,
        effects=None if command.effects is None else text(sorted(set(command.effects))),
        input=None if "input" not in command.model_fields_set else text(command.input),
    )
    try:
        _first_state(context, command, projecting_effects=False)
    except Refusal:
        run.head = None
        raise
    if digest is not None and command.definition is not None:
        canonical = canonical_definition(command.definition).decode()
        context.rows.append(DefinitionRow(digest, canonical, context.arrival))
    digest_of_state = run.head.state_digest.to_bytes(32)
    return context.revise_run(
        context.event_type("run.create"),
        payload={"workflow": command.workflow} if command.workflow else None,
        state_digest=digest_of_state,
    )


def _tags(tags: dict[str, str] | None) -> str | None:
    return None if tags is None else text(dict(sorted(tags.items())))


def _content(context: Context, command: CreateRun) -> bytes:
    """What two creates are compared by: all that they name, less what the writer stamps."""
    named = {name: value for name, value in command.model_dump().items() if value is not None}
    if command.state is not None:
        dialect = context.dialects[command.dialect]
        named["state"] = dialect.enter(command.state, context.run.run_id)
    if command.effects is not None:
        named["effects"] = sorted(set(command.effects))
    return sha256(sorted_json(named)).digest()


def _first_state(context: Context, command: CreateRun, *, projecting_effects: bool) -> None:
    run, head, dialect = context.run, context.head, context.dialect
    named = None
    if command.state is not None:
        kept = dialect.enter(command.state, run.run_id)
        named = dialect.definition(command.state)
    elif run.state is not None:
        # Adopting without a state keeps the one that was reserved.
        kept = document(run.state)
    else:
        kept = dialect.enter({}, run.run_id)
    given = context.message.command
    assert isinstance(given, CreateRun)
    as_sent = given.state is not None and given.state is command.state
    staged = stage(context, kept, named)
    projection = staged.projection
    if head.reserved:
        projection = projection._replace(status="queued", finished_at=None)
    if not projecting_effects:
        head.status = projection.status
    store(context, staged, as_sent=as_sent)
    context.project(projection)


def _adopt(context: Context, command: CreateRun, content: bytes, digest: bytes | None) -> Applied:
    head = context.head
    if head.dialect != command.dialect:
        raise Refusal(Reason.RUN_CONFLICT, "dialect")
    if head.definition_digest != digest:
        raise Refusal(Reason.DEFINITION_CONFLICT)
    head.reserved, head.status = False, "running"
    try:
        _first_state(context, command, projecting_effects=True)
    except Refusal:
        head.reserved, head.status = True, "queued"
        raise
    head.create_digest = content
    return context.revise_run(
        context.event_type("run.adopt"), state_digest=head.state_digest.to_bytes(32)
    )


def resume(context: Context, command: Resume) -> Applied:
    """Interrupt the attempts that were active, and end what the sender itself recorded before."""
    _check_running(context)
    run, auth = context.run, context.message.auth
    own = []
    if auth is not None and run.lease is not None:
        own = [
            segment
            for segment in run.segments.values()
            if segment.status == "recording"
            and segment.bound_by is not None
            and segment.bound_by[:2] == (auth.owner_type, auth.owner_id)
            and (segment.bound_by.generation or 0) < run.lease.generation
        ]
    ended = end_recordings(context, own, HOST_STOPPED)
    _interrupt_attempts(context)
    return context.revise_run(
        context.event_type("run.resume"), payload={"ended": ended} if ended else None
    )


def interrupt(context: Context, command: Interrupt) -> Applied:
    """The run has failed, because its host is gone: so have its attempts and recordings."""
    _check_running(context)
    run = context.run
    assert run.state is not None
    recording = [segment for segment in run.segments.values() if segment.status == "recording"]
    state = context.dialect.interrupted(document(run.state), command.reason, context.arrival)
    end_recordings(context, recording, command.reason)
    _interrupt_attempts(context)
    return _force(context, state, "failed", command.reason, "run.interrupt")


def reset(context: Context, command: Reset) -> Applied:
    """Lead a finished run back to `running`."""
    run = context.run
    if not context.head.terminal:
        raise Refusal(Reason.RUN_NOT_TERMINAL)
    assert run.state is not None
    state = context.dialect.reset(document(run.state))
    return _force(context, state, "running", command.reason, "run.reset")


def _force(context: Context, kept: Document, status: str, reason: str | None, kind: str) -> Applied:
    """Put a run into a status whatever its document says, and the document as near to it as it
    goes.
    """
    run, head, dialect = context.run, context.head, context.dialect
    projection = dialect.project(kept, head, context.arrival)._replace(
        status=status,
        finished_at=context.arrival if status == "failed" else None,
        error=reason if status == "failed" else None,
    )
    changed = change(run.state, kept)
    digest = context.store_state(changed, head.revision + 1, as_sent=False)
    context.project(projection)
    return context.revise_run(
        context.event_type(kind),
        payload=None if reason is None else {"reason": reason},
        state_digest=digest,
    )


def _check_running(context: Context) -> None:
    head = context.head
    if head.terminal:
        raise Refusal(Reason.RUN_TERMINAL)
    if head.status == "queued" or head.status in context.dialect.parked:
        raise Refusal(Reason.RUN_NOT_RUNNING, head.status)


def _interrupt_attempts(context: Context) -> None:
    run = context.run
    for attempt in run.attempts.values():
        if attempt.status in ATTEMPT_ACTIVE:
            attempt.status = "interrupted"
            attempt.revision = context.head.revision + 1
            run.changed.attempts[attempt.attempt_id] = attempt


def annotate(context: Context, command: Annotate) -> Applied | Duplicate:
    """Change what is named; with nothing new in it, it is a duplicate."""
    head, named = context.head, command.model_fields_set
    new = {
        name: value
        for name, value in (
            ("title", command.title),
            ("tags", _tags(command.tags)),
            ("test_case_status", command.test_case_status),
        )
        if name in named and getattr(head, name) != value
    }
    if not new:
        return Duplicate()
    for name, value in new.items():
        setattr(head, name, value)
    return context.revise_run(context.event_type("run.annotate"), payload={"changed": sorted(new)})


def delete(context: Context, command: DeleteRun) -> Applied:
    """Remove the run; a tombstone and the event that made it stay."""
    run, head = context.run, context.head
    events = head.revision + sum(segment.revision - 1 for segment in run.segments.values())
    outcome = context.revise_run(
        context.event_type("run.delete"),
        payload=None if command.reason is None else {"reason": command.reason},
    )
    run.tombstone = Tombstone(
        revision=outcome.revision,
        events=events,
        segments=len(run.segments),
        reason=command.reason,
        message_id=context.message.message_id,
        deleted_at=context.arrival,
    )
    run.head = run.state = run.document = run.lease = None
    run.state_size = NOTHING
    for kept in (
        run.segments,
        run.attempts,
        run.work_items,
        run.invocations,
        run.suspensions,
        run.definitions,
        run.updates,
        run.effects,
    ):
        kept.clear()
    context.facts.forget()
    run.changed.erased = True
    for changed in (
        run.changed.segments,
        run.changed.attempts,
        run.changed.work_items,
        run.changed.invocations,
        run.changed.suspensions,
        run.changed.gone,
        run.changed.effects,
    ):
        changed.clear()
    run.changed.head = run.changed.lease = False
    return outcome


def settle_effect(context: Context, command: SettleEffect) -> Applied | Duplicate:
    """Record an effect's outcome once."""
    run = context.run
    effect = run.effects.get(command.effect_id)
    if effect is None or effect.occurrence != command.occurrence:
        raise Refusal(Reason.EFFECT_UNKNOWN)
    result = (
        None
        if command.result is None
        else orjson.dumps(command.result, option=orjson.OPT_SORT_KEYS).decode()
    )
    if effect.status != "pending":
        if (effect.status, effect.result, effect.error) == (command.status, result, command.error):
            return Duplicate()
        raise Refusal(Reason.EFFECT_CONFLICT)
    effect.status, effect.result, effect.error = command.status, result, command.error
    effect.settled_at = context.arrival
    run.changed.effects[effect.effect_id] = effect
    return context.revise_run(
        context.event_type("effect.settle"),
        payload={"effect_id": effect.effect_id, "status": effect.status},
    )
