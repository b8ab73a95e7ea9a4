"""What a caller holds of a command that it said, and what the writer answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, cast

State = Literal["waiting", "spooled", "accepted", "dropped"]
Outcome = Literal["applied", "rejected", "duplicate"]


class Numbering(NamedTuple):
    """Another producer's id and sequence, to be sent under instead of our own."""

    producer: str
    seq: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a command, once that is on the writer's disk.

    Of a command that had to be sent again it is the outcome of the first one. `duplicate` is left
    for one that was settled before and of which no row tells any more. `revision` is the run's, or
    the segment's where `segment` is not 0; 0 where none was made.
    """

    run: str
    producer: str
    seq: int
    message_id: str
    outcome: Outcome
    revision: int = 0
    segment: int = 0
    reason: str | None = None
    detail: str = ""

    @classmethod
    def of(cls, fields: Mapping[bytes, bytes]) -> Receipt:
        """The receipt that an item of a reply stream holds. Raises ValueError or KeyError."""
        told = {name.decode(): value.decode() for name, value in fields.items()}
        outcome = told["outcome"]
        if outcome == "duplicate":
            outcome = told.get("original", outcome)
        if outcome not in ("applied", "rejected", "duplicate"):
            raise ValueError(outcome)
        return cls(
            run=told["run"],
            producer=told["producer"],
            seq=int(told["seq"]),
            message_id=told["message_id"],
            outcome=cast("Outcome", outcome),
            revision=int(told.get("revision", 0)),
            segment=int(told.get("segment", 0)),
            reason=told.get("reason"),
            detail=told.get("detail", ""),
        )


@dataclass(slots=True, eq=False, weakref_slot=True)
class Sent:
    """One command on its way. A handle that you keep keeps the command's bytes in memory."""

    run: str
    producer: str
    seq: int
    kind: str
    message_id: str | None = None
    """None until Redis has accepted it."""
    receipt: Receipt | None = None
    """None until the writer has answered, which it does only if it was asked."""
    dropped: bool = False
    spooled: bool = False
    """Whether it went through the disk on its way."""
    fields: dict[bytes, bytes] | None = field(default=None, repr=False)
    """What travels, token and all; None while it is on disk only."""
    successor: Sent | None = field(default=None, repr=False)
    """The command that says it again, of a patch whose base had changed. Its receipt is ours."""

    @property
    def latest(self) -> Sent:
        """What stands for it now: itself, or the last one that says it again."""
        sent = self
        while sent.successor is not None:
            sent = sent.successor
        return sent

    @property
    def state(self) -> State:
        """`waiting` in memory, `spooled` to disk, `accepted` by Redis, or `dropped`."""
        if self.successor is not None:
            return self.latest.state
        if self.message_id is not None:
            return "accepted"
        if self.dropped:
            return "dropped"
        return "spooled" if self.spooled else "waiting"
