"""A new state document on its way into a run: first looked at, then stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from writer.core.context import Context
from writer.core.definition import canonical_definition
from writer.core.dialect import Document, Named, Note, Projection, Rows
from writer.core.parts import Change, change
from writer.core.rows import DefinitionRow, DefinitionUseRow
from writer.core.run import Attempt, Run


class Staged(NamedTuple):
    """What a state changes. Nothing of it is in the run yet."""

    projection: Projection
    changed: Change
    attempts: Sequence[Attempt]
    rows: Rows
    named: Named | None

    def note(self, context: Context) -> Note:
        """What to record of it, if it came without an event."""
        return context.dialect.note(self.attempts, self.rows)


def stage(
    context: Context, kept: Document, named: Named | None = None, changed: Change | None = None
) -> Staged:
    """Look at a state as it is kept, and the definition that it brings along. May refuse.

    `changed` is the step to it, where that is known already.
    """
    run, dialect = context.run, context.dialect
    projection = dialect.project(kept, run.head, context.arrival)
    if changed is None:
        changed = change(run.state, kept)
    attempts = dialect.attempts(run, kept, changed.parts, context.arrival)
    rows = dialect.rows(run, kept, changed, context.arrival)
    return Staged(projection, changed, attempts, rows, named)


def store(context: Context, staged: Staged, *, as_sent: bool) -> bytes:
    """Make it the run's state as of the next revision; returns the state's digest.

    The head's columns are not touched: see `Context.project`.
    """
    run = context.run
    revision = context.head.revision + 1
    digest = context.store_state(staged.changed, revision, as_sent=as_sent)
    for table, key in staged.rows.gone:
        _take_away(run, table, key)
    for attempt in staged.attempts:
        put_attempt(run, attempt, revision)
    for item in staged.rows.work_items:
        item.revision = revision
        run.work_items[item.key] = run.changed.work_items[item.key] = item
    for call in staged.rows.invocations:
        call.revision = revision
        run.invocations[call.invocation_id] = call
        run.changed.invocations[call.invocation_id] = call
    for task in staged.rows.suspensions:
        task.revision = revision
        run.suspensions[task.key] = run.changed.suspensions[task.key] = task
    if staged.named is not None:
        _take_definition(context, staged.named, revision)
    return digest


def put_attempt(run: Run, attempt: Attempt, revision: int) -> None:
    """Make an attempt the run's, as of a revision."""
    attempt.revision = revision
    run.attempts[attempt.attempt_id] = run.changed.attempts[attempt.attempt_id] = attempt


def _take_away(run: Run, table: str, key: tuple[str | int, ...]) -> None:
    # By one name where the id alone is it, as in the dictionaries of attempts and invocations.
    name = key[0] if table in ("attempts", "invocations") else key
    for rows in (getattr(run, table), getattr(run.changed, table)):
        rows.pop(name, None)
    run.changed.gone.add((table, key))


def _take_definition(context: Context, named: Named, revision: int) -> None:
    """A state names another definition than the run had: that one stays for the earlier states."""
    run, head = context.run, context.head
    if named.digest == head.definition_digest:
        return
    key = run.run_key
    canonical = canonical_definition(named.definition).decode()
    context.rows.append(DefinitionRow(named.digest, canonical, context.arrival))
    for digest in (head.definition_digest, named.digest):
        if digest is not None and digest not in run.definitions:
            run.definitions.add(digest)
            context.rows.append(DefinitionUseRow(key, digest, revision))
    head.definition_digest = named.digest
