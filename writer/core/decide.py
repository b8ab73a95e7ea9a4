"""The one place where a message's end is decided. Pure: no clock, no randomness, no I/O, no
globals.

Order of checks: envelope, sequence, run exists, authority, expected revision, rules. A refusal
changes nothing but the cursor and the producer's sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from producers.contract.commands import (
    ClaimLease,
    Command,
    CreateRun,
    Interrupt,
    Patch,
    ReleaseLease,
    RenewLease,
    Reset,
    Resume,
    Snapshot,
    Update,
)
from producers.contract.envelope import Decoded
from producers.contract.reasons import Reason
from writer.core import authority, lease, lifecycle, session, snapshot, update
from writer.core.acts import break_lease, skipped
from writer.core.context import Context
from writer.core.dialect import Dialects
from writer.core.facts import Facts, UpdateKey
from writer.core.outcome import Applied, Duplicate, Held, Outcome, Refusal, Rejected
from writer.core.run import Run, Sequences
from writer.core.sequence import Standing, stand_of, use_up

RULES_VERSION = 1
"""Rises whenever the same messages would be decided differently; recorded with what was decided."""

STATE_GROUP = (Snapshot, Patch, Resume, Reset, Interrupt)
LEASE_GROUP = (ClaimLease, RenewLease, ReleaseLease)

Rule = Callable[[Context, Any], Applied | Duplicate]

RULES: dict[str, Rule] = {
    "run.create": lifecycle.create,
    "run.snapshot": snapshot.snapshot,
    "run.patch": snapshot.patch,
    "run.update": update.update,
    "run.resume": lifecycle.resume,
    "run.reset": lifecycle.reset,
    "run.interrupt": lifecycle.interrupt,
    "run.delete": lifecycle.delete,
    "run.annotate": lifecycle.annotate,
    "session.bind": session.bind,
    "session.entry": session.append_entry,
    "session.events": session.append_events,
    "session.capture": session.capture,
    "lease.claim": lease.claim,
    "lease.renew": lease.renew,
    "lease.release": lease.release,
    "effect.settle": lifecycle.settle_effect,
}


def decide(run: Run, message: Decoded, arrival: int, facts: Facts, dialects: Dialects) -> Outcome:
    """End one message: Applied, Rejected, Duplicate, or Held for a newer contract version.

    `arrival` is the message id's milliseconds. `run` and `facts` are changed to match the outcome;
    a Held message changes nothing. Never raises for what a message says.
    """
    if run.skips:
        message = skipped(run, message)
    if message.newer_version is not None:
        return Held(message.newer_version)
    outcome = _judge(run, message, arrival, facts, dialects)
    cursor = run.cursor
    cursor.message_id = message.message_id
    if (cursor.incarnation, message.message_id) in run.breaks:
        break_lease(run, arrival)
    match outcome:
        case Applied():
            cursor.applied += 1
        case Rejected():
            cursor.rejected += 1
        case Duplicate():
            cursor.duplicates += 1
    return outcome


def _judge(
    run: Run, message: Decoded, arrival: int, facts: Facts, dialects: Dialects
) -> Applied | Rejected | Duplicate:
    producer, seq = message.producer, message.seq
    sequences, where = stand_of(run, message)
    if where is not Standing.NEXT and where is not Standing.LATE:
        return _judge_known(run, message, where, sequences, facts)
    assert producer is not None
    assert seq is not None
    sequences = run.sequences(producer)
    late = where is Standing.LATE
    try:
        outcome = _apply(run, message, arrival, facts, dialects, sequences, late)
    except Refusal as refusal:
        outcome = Rejected(refusal.reason, refusal.detail)
    use_up(sequences, seq)
    run.changed.producers[sequences.no] = sequences
    if isinstance(outcome, Rejected) or (isinstance(outcome, Applied) and outcome.revision):
        # Only an event or a rejection keeps the hash, and a renewal makes neither.
        facts.sequences[sequences.no, seq] = message.body_hash
    if isinstance(outcome, Rejected):
        facts.refused[message.message_id] = message.body_hash
    return outcome


def is_known(run: Run, message: Decoded, facts: Facts) -> bool:
    """Whether a message was settled before, by its sequence, or by its id and what it says."""
    sequences, where = stand_of(run, message)
    if where is Standing.NEXT or where is Standing.LATE:
        return False
    return isinstance(_judge_known(run, message, where, sequences, facts), Duplicate)


def _judge_known(
    run: Run, message: Decoded, where: Standing, sequences: Sequences | None, facts: Facts
) -> Rejected | Duplicate:
    """A message that uses up no sequence: seen before, or without one that could be used."""
    if facts.refused.get(message.message_id) == message.body_hash:
        return Duplicate()
    if where is Standing.KNOWN:
        assert sequences is not None
        assert message.seq is not None
        known = facts.sequences.get((sequences.no, message.seq))
        if known is None or known == message.body_hash:
            return Duplicate()
    facts.refused[message.message_id] = message.body_hash
    if message.reason is not None:
        return Rejected(message.reason, message.detail)
    if where is Standing.JUMP:
        return Rejected(Reason.SEQUENCE_JUMP)
    return Rejected(Reason.SEQUENCE_REUSED)


def _apply(
    run: Run,
    message: Decoded,
    arrival: int,
    facts: Facts,
    dialects: Dialects,
    sequences: Sequences,
    late: bool,
) -> Applied | Rejected | Duplicate:
    if message.reason is not None:
        return Rejected(message.reason, message.detail)
    command = message.command
    assert command is not None
    assert message.seq is not None
    if late and _superseded(command, message.seq, sequences, facts):
        return Rejected(Reason.SUPERSEDED)
    if run.tombstone is not None:
        return Rejected(Reason.RUN_DELETED)
    if run.head is None and not isinstance(command, CreateRun):
        return Rejected(Reason.RUN_UNKNOWN)
    asks_for_lease = isinstance(command, authority.NEEDS_LEASE)
    if asks_for_lease:
        authority.check_lease(run, command, message.auth, arrival)
    elif isinstance(command, authority.NEEDS_BINDER):
        segment = session.segment_of(run, command)
        authority.check_binder(run, segment, message.auth, sequences.no)
    context = Context(run, message, message.seq, sequences.no, arrival, facts, dialects)
    outcome = RULES[command.kind](context, command)
    if isinstance(outcome, Applied):
        _note_newest(command, message.seq, sequences, facts)
        if asks_for_lease and message.auth is not None:
            authority.renew_by_use(run, arrival)
    return outcome


def _superseded(command: Command, seq: int, sequences: Sequences, facts: Facts) -> bool:
    """Whether the producer has since had applied a newer command of this one's group."""
    if isinstance(command, STATE_GROUP):
        return sequences.state_seq > seq
    if isinstance(command, LEASE_GROUP):
        return sequences.lease_seq > seq
    if isinstance(command, Update):
        key = UpdateKey(sequences.no, command.attempt_id, command.type, command.key)
        return facts.updates.get(key, 0) > seq
    return False


def _note_newest(command: Command, seq: int, sequences: Sequences, facts: Facts) -> None:
    if isinstance(command, STATE_GROUP):
        sequences.state_seq = max(sequences.state_seq, seq)
    elif isinstance(command, LEASE_GROUP):
        sequences.lease_seq = max(sequences.lease_seq, seq)
    elif isinstance(command, Update):
        key = UpdateKey(sequences.no, command.attempt_id, command.type, command.key)
        facts.updates[key] = max(facts.updates.get(key, 0), seq)
