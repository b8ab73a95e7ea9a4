"""The ways a message ends, and the exception by which a rule refuses one."""

from __future__ import annotations

from typing import NamedTuple

from producers.contract.reasons import Reason
from writer.core.rows import Row


class Applied(NamedTuple):
    """The command changed its run: `rows` to append, and the revision it made.

    `revision` is the run's, or the segment's where `segment` is not 0; a renewal makes none (0).
    """

    rows: list[Row]
    revision: int
    segment: int = 0


class Rejected(NamedTuple):
    """The command was refused; nothing changed but the cursor and the producer's sequence."""

    reason: Reason
    detail: str = ""


class Duplicate(NamedTuple):
    """The command was settled before; nothing changed but the cursor."""


class Held(NamedTuple):
    """A newer contract version: the run waits at this message for an upgrade of the writer."""

    version: int


Outcome = Applied | Rejected | Duplicate | Held


class Refusal(Exception):
    """Raised by a rule before anything is changed; becomes a `Rejected`."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(reason.value)
        self.reason = reason
        self.detail = detail
