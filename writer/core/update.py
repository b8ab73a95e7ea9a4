"""`run.update`: a progress update. It is stored once, as a row; its event names it only."""

from __future__ import annotations

from producers.contract.commands import Update
from producers.contract.limits import CURRENT_UPDATES_MAX
from producers.contract.reasons import Reason
from writer.core.context import Context, text
from writer.core.outcome import Applied, Refusal
from writer.core.rows import UpdateRow
from writer.core.staging import put_attempt


def update(context: Context, command: Update) -> Applied:
    """Append an update; refuse one too many, one for a finished run or a finished attempt."""
    run, head = context.run, context.head
    if head.terminal:
        raise Refusal(Reason.RUN_TERMINAL)
    context.dialect.check_update(command)
    pair = (command.type, command.key)
    if pair not in run.updates and len(run.updates) >= CURRENT_UPDATES_MAX:
        raise Refusal(Reason.UPDATES_FULL)
    attempt = context.dialect.attempt_of_update(run, command, context.arrival)
    revision = head.revision + 1
    if attempt is not None:
        put_attempt(run, attempt, revision)
    run.updates.add(pair)
    context.rows.append(
        UpdateRow(
            run.run_key,
            revision,
            command.node_id,
            command.attempt_id,
            command.type,
            command.key,
            text(command.data),
            context.arrival,
        )
    )
    return context.revise_run(
        context.event_type("run.update"),
        scope="node" if command.node_id or command.attempt_id else "run",
        node_id=command.node_id,
        attempt_id=command.attempt_id,
        payload={"type": command.type, "key": command.key},
    )
