"""The dialect of any document: `status`, `title`, `finishedAt` are taken from the top level if
there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from producers.contract.commands import BindSession, CreateRun, Update
from producers.contract.limits import REASON_CHARS_MAX, TITLE_CHARS_MAX
from writer.core.dialect import Document, Moment, Named, Note, Projection, Rows
from writer.core.merge import merge
from writer.core.parts import Change, Part
from writer.core.run import Attempt, Head, Run
from writer.dialects.instant import iso, parse_ms

STATUS_CHARS_MAX = 64


def short_text(value: Any, chars_max: int) -> str | None:
    """A text fit for a column of a list, cut to `chars_max`; None for anything else."""
    if not isinstance(value, str) or not value or "\0" in value:
        return None
    return value[:chars_max]


class Generic:
    """Keeps the whole document, stamps nothing, projects nothing but the run's head."""

    name = "generic"
    event_types: Mapping[str, str] = {"run.adopt": "run.create"}
    terminal = frozenset(("completed", "failed", "timed_out", "cancelled"))
    parked = frozenset(("waiting",))
    stamped: frozenset[str] = frozenset()
    opaque: frozenset[str] = frozenset()

    def check_create(self, command: CreateRun, run_id: str) -> CreateRun:
        """Nothing to fill in."""
        return command

    def test_case_status(self, command: CreateRun) -> str | None:
        """Only an annotation sets it."""
        return None

    def check_update(self, command: Update) -> None:
        """Any object is good data."""

    def check_binding(self, command: BindSession, run_id: str) -> None:
        """Any object is a good binding."""

    def enter(
        self, state: Document, run_id: str, touched: Collection[str] | None = None
    ) -> Document:
        """All of it is kept."""
        return state

    def is_as_sent(self, state: Document, kept: Document) -> bool:
        """Nothing is moved."""
        return True

    def leave(self, state: dict[str, Any], moment: Moment) -> dict[str, Any]:
        """Nothing is put in."""
        return state

    def definition(self, state: Document) -> Named | None:
        """Nothing is kept apart."""
        return None

    def merge(self, base: Document, theirs: Document, latest: Document) -> Document:
        """By the general rule."""
        merged: Document = merge(base, theirs, latest)
        return merged

    def project(self, state: Document, head: Head | None, arrival: int) -> Projection:
        """The status stays what it was where the document names none."""
        status = state.get("status")
        if not isinstance(status, str) or not status or len(status) > STATUS_CHARS_MAX:
            status = head.status if head is not None else "running"
        if "\0" in status:
            status = head.status if head is not None else "running"
        finished_at = parse_ms(state.get("finishedAt"))
        if status not in self.terminal:
            finished_at = None
        elif finished_at is None:
            finished_at = arrival
        return Projection(
            status=status,
            title=short_text(state.get("title"), TITLE_CHARS_MAX),
            status_detail=short_text(state.get("statusDetail"), REASON_CHARS_MAX),
            current_node=None,
            current_attempt=None,
            error=short_text(state.get("error"), REASON_CHARS_MAX),
            finished_at=finished_at,
        )

    def attempts(
        self, run: Run, state: Document, parts: Sequence[Part], arrival: int
    ) -> Sequence[Attempt]:
        """Steps of unknown documents are not looked for."""
        return ()

    def rows(self, run: Run, state: Document, change: Change, arrival: int) -> Rows:
        """Nor is anything else."""
        return Rows()

    def note(self, attempts: Sequence[Attempt], rows: Rows) -> Note:
        """Nothing is known of what changed."""
        return Note()

    def attempt_of_update(self, run: Run, command: Update, arrival: int) -> Attempt | None:
        """Attempts are names here, nothing more."""
        return None

    def interrupted(self, state: Document, reason: str, arrival: int) -> Document:
        """A document that shows its status shows this one too."""
        if "status" not in state:
            return state
        return {**state, "status": "failed", "finishedAt": iso(arrival), "error": reason}

    def reset(self, state: Document) -> Document:
        """A document that shows its status is running again."""
        if "status" not in state:
            return state
        left = {key: state[key] for key in state if key not in ("finishedAt", "error")}
        return {**left, "status": "running"}
