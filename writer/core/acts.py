"""Operator acts that change what becomes of a run. They name a message, so they replay exactly.

`skip` refuses the message that quarantined its run. `break` frees the run's lease once the message
that it names is settled. Both are carried out only while the run's cursor stands there, and are
known before the messages are read again. Beside them, `drop` forgets the bytes of a refused
message, `resume` reads on as it is, and `redrive` only notes who sent a refused command again:
nothing that a run becomes depends on these.
"""

from __future__ import annotations

from producers.contract.envelope import Decoded
from producers.contract.limits import COUNTER_MAX
from producers.contract.reasons import Reason
from writer.core.authority import held
from writer.core.run import Run


def acted_at(control_id: str) -> int:
    """When an act was asked for: the milliseconds of its id, on every replay the same."""
    return min(int(control_id.partition("-")[0]), COUNTER_MAX)


def skipped(run: Run, message: Decoded) -> Decoded:
    """The message, refused if an operator skipped it."""
    if (run.cursor.incarnation, message.message_id) not in run.skips:
        return message
    return message._replace(command=None, newer_version=None, reason=Reason.SKIPPED, detail="")


def begin_incarnation(run: Run, incarnation: int) -> None:
    """Move the cursor to the start of a later incarnation of the stream.

    A lease that was broken while the cursor stood at such a start, before any message, ends there.
    """
    cursor = run.cursor
    while cursor.incarnation < incarnation:
        cursor.incarnation += 1
        cursor.message_id = "0-0"
        if (cursor.incarnation, "0-0") in run.breaks:
            break_lease(run, 0)


def break_lease(run: Run, arrival: int) -> bool:
    """Free the run's lease (`arrival` in ms); whether there was one in force."""
    lease = held(run)
    if lease is None:
        return False
    lease.released_at = arrival
    run.changed.lease = True
    return True
