"""The dialect of a workflow engine that saves its whole run: `PersistedRunState` documents.

What is saved is what is loaded, with these exceptions: `revision` is the writer's; invocations of
another run are left out, and repeats of one id folded; the workflow snapshot is kept once for all
runs that have it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from producers.contract.commands import CreateRun, Parent, Update
from producers.contract.limits import (
    REASON_CHARS_MAX,
    RETENTION_SECONDS_MAX,
    TAGS_MAX,
    TITLE_CHARS_MAX,
)
from producers.contract.reasons import Reason
from writer.core.dialect import Document, Moment, Named, Note, Projection, Rows
from writer.core.outcome import Refusal
from writer.core.parts import Change, Part
from writer.core.run import Attempt, Head, Run
from writer.dialects.codemation_definition import kept_of, named_in, shown_of
from writer.dialects.codemation_merge import merge_states, supersede
from writer.dialects.codemation_queue import changed_suspensions, changed_work
from writer.dialects.codemation_slots import (
    CALLS,
    NODES,
    changed_attempts,
    changed_invocations,
    gone_attempts,
    note_of,
)
from writer.dialects.generic import Generic, short_text
from writer.dialects.instant import iso, parse_ms
from writer.dialects.places import text_in

SNAPSHOT = "workflowSnapshot"
RELATION = "subworkflow"
SHAPES: Mapping[str, type] = {
    "queue": list,
    "pending": dict,
    NODES: dict,
    "outputsByNode": dict,
    CALLS: list,
    "suspension": list,
}
NEW: Document = {"status": "running", "queue": [], "outputsByNode": {}, NODES: {}}
"""What a new run has beside what its create names."""


class Codemation(Generic):
    """Rules and projections of `PersistedRunState` documents."""

    name = "codemation"
    stamped = frozenset(("revision",))
    opaque = frozenset((SNAPSHOT,))
    terminal = frozenset(("completed", "failed", "halted"))
    parked = frozenset(("suspended",))
    statuses = frozenset(("running", "pending", *terminal, *parked))

    def check_create(self, command: CreateRun, run_id: str) -> CreateRun:
        """Head columns that the command does not name are taken from its state."""
        if command.state is None:
            return command
        given = command.state
        state = {**NEW, "runId": run_id, **given}
        filled: dict[str, Any] = {"state": state}
        if SNAPSHOT not in state and command.definition is not None:
            state[SNAPSHOT] = command.definition
        elif command.definition is None and named_in(state.get(SNAPSHOT)) is not None:
            filled["definition"] = state[SNAPSHOT]
        filled["workflow"] = _workflow_of(given) or command.workflow
        if command.title is None:
            name = text_in(state.get(SNAPSHOT), "name")
            filled["title"] = short_text(name, TITLE_CHARS_MAX)
        if command.parent is None:
            filled["parent"] = _parent_of(given)
        if command.retention_seconds is None:
            filled["retention_seconds"] = _retention_of(given)
        filled["tags"] = _tags_of(given, command.tags)
        return command.model_copy(update=filled)

    def test_case_status(self, command: CreateRun) -> str | None:
        """A test case has begun."""
        return None if command.state is None or not _test_of(command.state) else "running"

    def enter(
        self, state: Document, run_id: str, touched: Collection[str] | None = None
    ) -> Document:
        """As it is kept. Refuse another run's, an unknown status, and members of another shape."""
        if state.get("runId", run_id) != run_id:
            raise Refusal(Reason.STATE_INVALID, "runId")
        status = state.get("status", "running")
        if not isinstance(status, str) or status not in self.statuses:
            raise Refusal(Reason.STATE_INVALID, "status")
        for name, shape in SHAPES.items():
            if not isinstance(state.get(name), shape | None):
                raise Refusal(Reason.STATE_INVALID, name)
        kept = {key: value for key, value in state.items() if key not in self.stamped}
        if SNAPSHOT in kept and (touched is None or SNAPSHOT in touched):
            kept[SNAPSHOT] = kept_of(kept[SNAPSHOT])
        if kept.get(CALLS) and (touched is None or CALLS in touched):
            folded = _folded(kept[CALLS], run_id)
            if len(folded) < len(kept[CALLS]):
                kept[CALLS] = folded
        return kept

    def is_as_sent(self, state: Document, kept: Document) -> bool:
        """Unless invocations were left out."""
        return len(kept.get(CALLS) or ()) == len(state.get(CALLS) or ())

    def leave(self, state: dict[str, Any], moment: Moment) -> dict[str, Any]:
        """With its revision, and the workflow snapshot in its place."""
        state["revision"] = moment.revision
        if SNAPSHOT in state:
            state[SNAPSHOT] = shown_of(state[SNAPSHOT], moment.definition)
        return state

    def definition(self, state: Document) -> Named | None:
        """The workflow snapshot."""
        return named_in(state.get(SNAPSHOT))

    def merge(self, base: Document, theirs: Document, latest: Document) -> Document:
        """See `codemation_merge`."""
        return merge_states(base, theirs, latest)

    def project(self, state: Document, head: Head | None, arrival: int) -> Projection:
        """Status and its companions, column by column."""
        status = state.get("status", head.status if head is not None else "running")
        pending = state.get("pending")
        finished_at = None
        if status in self.terminal:
            finished_at = parse_ms(state.get("finishedAt"))
            finished_at = arrival if finished_at is None else finished_at
        return Projection(
            status=status,
            title=None,
            status_detail=short_text(state.get("reason"), REASON_CHARS_MAX),
            current_node=short_text(text_in(pending, "nodeId"), TITLE_CHARS_MAX),
            current_attempt=short_text(text_in(pending, "activationId"), TITLE_CHARS_MAX),
            error=_error_of(state) if status == "failed" else None,
            finished_at=finished_at,
            workflow=_workflow_of(state),
        )

    def attempts(
        self, run: Run, state: Document, parts: Sequence[Part], arrival: int
    ) -> Sequence[Attempt]:
        """An attempt for each activation of a node that a snapshot told of."""
        return changed_attempts(run, state, parts)

    def rows(self, run: Run, state: Document, change: Change, arrival: int) -> Rows:
        """Invocations, the queue, and suspensions."""
        calls, gone_calls = changed_invocations(run, state, change)
        items, gone_items = changed_work(run, state, change)
        tasks, gone_tasks = changed_suspensions(run, state, change)
        gone = [*gone_attempts(run, state, change.parts), *gone_calls, *gone_items, *gone_tasks]
        return Rows(items, calls, tasks, gone)

    def note(self, attempts: Sequence[Attempt], rows: Rows) -> Note:
        """Which nodes and calls changed."""
        return note_of(attempts, rows)

    def attempt_of_update(self, run: Run, command: Update, arrival: int) -> Attempt | None:
        """Only a snapshot tells of attempts. A finished one takes no updates."""
        known = run.attempts.get(command.attempt_id or "")
        if known is not None and known.finished:
            raise Refusal(Reason.ATTEMPT_FINISHED)
        return None

    def interrupted(self, state: Document, reason: str, arrival: int) -> Document:
        """Failed; what was queued and under way stays, so that a reset can go on with it."""
        return {**state, "status": "failed", "finishedAt": iso(arrival)}

    def reset(self, state: Document) -> Document:
        """Running, with no end."""
        left = {key: state[key] for key in state if key not in ("finishedAt", "reason")}
        return {**left, "status": "running"}


def _folded(calls: list[Any], run_id: str) -> list[Any]:
    """Without other runs' records; of those with one id the one that counts, in the first place."""
    places: dict[str, int] = {}
    left: list[Any] = []
    for record in calls:
        if isinstance(record, dict) and record.get("runId", run_id) != run_id:
            continue
        name = text_in(record, "invocationId")
        if name is not None and name in places:
            left[places[name]] = supersede(left[places[name]], record)
            continue
        if name is not None:
            places[name] = len(left)
        left.append(record)
    return left


def _workflow_of(state: Document) -> str | None:
    return short_text(state.get("workflowId"), TITLE_CHARS_MAX)


def _parent_of(state: Document) -> Parent | None:
    try:
        return Parent(run=state["parent"]["runId"], relation=RELATION)
    except (KeyError, TypeError, ValueError):
        # Not a reference that the column can hold; the state keeps it as it is.
        return None


def _retention_of(state: Document) -> int | None:
    policy = state.get("policySnapshot")
    seconds = policy.get("retentionSeconds") if isinstance(policy, dict) else None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds < 0:
        return None
    return min(max(int(seconds), 1), RETENTION_SECONDS_MAX)


def _test_of(state: Document) -> Document:
    options = state.get("executionOptions")
    test = options.get("testContext") if isinstance(options, dict) else None
    return test if isinstance(test, dict) else {}


def _tags_of(state: Document, given: dict[str, str] | None) -> dict[str, str] | None:
    """The command's tags, and those of a test case: suite, index, label."""
    test = _test_of(state)
    found = dict(given or {})
    for name in ("testSuiteRunId", "testCaseIndex", "testCaseLabel"):
        value = test.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        shown = short_text(value, TITLE_CHARS_MAX)
        if shown is not None and name not in found and len(found) < TAGS_MAX:
            found[name] = shown
    return found or given


def _error_of(state: Document) -> str | None:
    """What the last node that failed said."""
    failed = [
        snapshot
        for snapshot in (state.get(NODES) or {}).values()
        if isinstance(snapshot, dict) and snapshot.get("status") == "failed"
    ]
    failed.sort(key=lambda snapshot: parse_ms(snapshot.get("updatedAt")) or 0)
    error = failed[-1].get("error") if failed else None
    return short_text(text_in(error, "message"), REASON_CHARS_MAX)
