"""Operator acts that change what becomes of a run. They name a message, so they replay exactly.

`skip` refuses the message that quarantined its run. `break` frees the run's lease once the message
that it names is settled. Both are carried out only while the run's cursor stands there, and are
known before the messages are read again.
"""

from __future__ import annotations

from producers.contract.envelope import Decoded
from producers.contract.reasons import Reason
from writer.core.authority import held
from writer.core.run import Run


def skipped(run: Run, message: Decoded) -> Decoded:
    """The message, refused if an operator skipped it."""
    if (run.cursor.incarnation, message.message_id) not in run.skips:
        return message
    return message._replace(command=None, newer_version=None, reason=Reason.SKIPPED, detail="")


def break_lease(run: Run, arrival: int) -> bool:
    """Free the run's lease (`arrival` in ms); whether there was one in force."""
    lease = held(run)
    if lease is None:
        return False
    lease.released_at = arrival
    run.changed.lease = True
    return True
