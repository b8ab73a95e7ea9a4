"""What a dialect must say of its state documents. The dialects themselves live in
`writer/dialects`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from producers.contract.commands import BindSession, CreateRun, Update
from writer.core.parts import Part
from writer.core.run import Attempt, Head, Run

Document = Mapping[str, Any]


class Projection(NamedTuple):
    """The columns of a run's head that its state document determines. `finished_at` in ms."""

    status: str
    title: str | None
    status_detail: str | None
    current_node: str | None
    current_attempt: str | None
    error: str | None
    finished_at: int | None


class Moment(NamedTuple):
    """A state as of a revision, for a reader: when it was (ms), and the updates current then."""

    run_id: str
    revision: int
    updated_at: int
    updates: Sequence[Document]


class Dialect(Protocol):
    """One kind of state document. All methods are pure; rules refuse by raising `Refusal`."""

    name: str
    event_types: Mapping[str, str]

    def check_create(self, command: CreateRun, run_id: str) -> CreateRun:
        """The create with the dialect's defaults filled in."""

    def check_update(self, command: Update) -> None:
        """Refuse data that breaks a rule of its type."""

    def check_binding(self, command: BindSession, run_id: str) -> None:
        """Refuse a binding document that does not fit."""

    def enter(self, state: Document, run_id: str) -> Document:
        """The part of a state that is kept as parts; what the writer stamps is left out."""

    def leave(self, state: dict[str, Any], moment: Moment) -> dict[str, Any]:
        """A stored state as a reader sees it: what the writer stamps is put in."""

    def project(self, state: Document, head: Head | None, arrival: int) -> Projection:
        """The head's columns under this state."""

    def attempts(
        self, run: Run, state: Document, parts: Sequence[Part], arrival: int
    ) -> Sequence[Attempt]:
        """The attempts that the changed parts add or change (new objects, `revision` unset)."""

    def attempt_of_update(self, run: Run, command: Update, arrival: int) -> Attempt | None:
        """The attempt that an update starts or leads back to, if any. Refuse a finished one."""

    def interrupted(self, state: Document, reason: str, arrival: int) -> Document:
        """The state after the run was interrupted."""

    def reset(self, state: Document) -> Document:
        """The state after a reset."""


Dialects = Mapping[str, Dialect]
