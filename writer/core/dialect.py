"""What a dialect must say of its state documents. The dialects themselves live in
`writer/dialects`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from producers.contract.commands import BindSession, CreateRun, Update
from writer.core.parts import Change, Part
from writer.core.run import Attempt, Head, Invocation, Key, Run, Suspension, WorkItem

Document = Mapping[str, Any]


class Projection(NamedTuple):
    """The columns of a run's head that its state document determines. `finished_at` in ms.

    `title` and `workflow` None: as they were.
    """

    status: str
    title: str | None
    status_detail: str | None
    current_node: str | None
    current_attempt: str | None
    error: str | None
    finished_at: int | None
    workflow: str | None = None


class Rows(NamedTuple):
    """What a state changes in the tables beside `attempts`: rows to write (new objects, `revision`
    unset), and those that are gone, by table and key.
    """

    work_items: Sequence[WorkItem] = ()
    invocations: Sequence[Invocation] = ()
    suspensions: Sequence[Suspension] = ()
    gone: Sequence[tuple[str, Key]] = ()


class Named(NamedTuple):
    """A definition that a state brings along, and the digest under which it is kept apart."""

    digest: bytes
    definition: Document


class Note(NamedTuple):
    """What the event of a state says that came without one of its own."""

    node_id: str | None = None
    attempt_id: str | None = None
    payload: Document | None = None


def no_definition(digest: bytes) -> Document | None:
    """What there is where no definition is kept apart."""
    return None


class Moment(NamedTuple):
    """A state as of a revision, for a reader: when it was (ms), the updates current then, and how
    to get a definition by its digest.
    """

    run_id: str
    revision: int
    updated_at: int
    updates: Sequence[Document]
    definition: Callable[[bytes], Document | None] = no_definition


class Dialect(Protocol):
    """One kind of state document. All methods are pure; rules refuse by raising `Refusal`.

    `terminal` are the statuses of a run that has finished, `parked` those of one that waits for
    somebody. `event_types` names events by the kind of their command, where the kind will not do.
    `stamped` are members of the document that the writer makes, `opaque` those that it keeps in
    another form than they came in: a patch replaces them whole.
    """

    name: str
    event_types: Mapping[str, str]
    terminal: frozenset[str]
    parked: frozenset[str]
    stamped: frozenset[str]
    opaque: frozenset[str]

    def check_create(self, command: CreateRun, run_id: str) -> CreateRun:
        """The create with the dialect's defaults filled in."""

    def test_case_status(self, command: CreateRun) -> str | None:
        """The test-case status that a new run begins with."""

    def check_update(self, command: Update) -> None:
        """Refuse data that breaks a rule of its type."""

    def check_binding(self, command: BindSession, run_id: str) -> None:
        """Refuse a binding document that does not fit."""

    def enter(
        self, state: Document, run_id: str, touched: Collection[str] | None = None
    ) -> Document:
        """The part of a state that is kept as parts; what the writer stamps is left out.

        Members that are not in `touched` are kept already; None: none is.
        """

    def is_as_sent(self, state: Document, kept: Document) -> bool:
        """Whether what is kept has every member in the place where it was sent."""

    def leave(self, state: dict[str, Any], moment: Moment) -> dict[str, Any]:
        """A stored state as a reader sees it: what the writer stamps is put in."""

    def definition(self, state: Document) -> Named | None:
        """The definition that a state, as it came, brings along to be kept apart."""

    def merge(self, base: Document, theirs: Document, latest: Document) -> Document:
        """Three states as they are kept, made one: see `core.merge`."""

    def project(self, state: Document, head: Head | None, arrival: int) -> Projection:
        """The head's columns under this state."""

    def attempts(
        self, run: Run, state: Document, parts: Sequence[Part], arrival: int
    ) -> Sequence[Attempt]:
        """The attempts that the changed parts add or change (new objects, `revision` unset)."""

    def rows(self, run: Run, state: Document, change: Change, arrival: int) -> Rows:
        """What else the changed parts change in the tables."""

    def note(self, attempts: Sequence[Attempt], rows: Rows) -> Note:
        """What to record of a state that came without an event of its own."""

    def attempt_of_update(self, run: Run, command: Update, arrival: int) -> Attempt | None:
        """The attempt that an update starts or leads back to, if any. Refuse a finished one."""

    def interrupted(self, state: Document, reason: str, arrival: int) -> Document:
        """The state after the run was interrupted."""

    def reset(self, state: Document) -> Document:
        """The state after a reset."""


Dialects = Mapping[str, Dialect]
