"""The dialect of pi workflow runs: steps become attempts, updates live in their own table.

`traceSeq`, `updatedAt` and `updates` of a state are the writer's: what a snapshot brings of them is
left out, and a reader gets them from the revision that it reads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any

from producers.contract.commands import BindSession, CreateRun, Source, Update
from producers.contract.limits import REASON_CHARS_MAX, TITLE_CHARS_MAX
from producers.contract.reasons import Reason
from writer.core.definition import definition_digest
from writer.core.dialect import Document, Moment, Projection
from writer.core.outcome import Refusal
from writer.core.parts import Arr, Node, Obj, Part
from writer.core.run import Attempt, Head, Run
from writer.dialects.generic import Generic, short_text
from writer.dialects.instant import iso, parse_ms
from writer.dialects.progress import check_progress

STATE_SCHEMA = "pi-workflows.run-state.v1"
BINDING_SCHEMA = "pi-workflows.session-binding.v1"
STATUSES = frozenset(("queued", "running", "waiting", *Generic.terminal))
STATUS_OF_OUTCOME = {"ok": "completed", "timed_out": "timed_out", "cancelled": "cancelled"}


class PiWorkflows(Generic):
    """Rules and projections of `pi-workflows.run-state.v1` documents."""

    name = "pi_workflows"
    stamped = frozenset(("traceSeq", "updatedAt", "updates"))
    event_types: Mapping[str, str] = {
        "run.create": "run_created",
        "run.adopt": "run_initialized",
        "run.snapshot": "run_snapshot",
        "run.update": "update_published",
        "run.resume": "run_resume_prepared",
        "run.reset": "run_reset",
        "run.interrupt": "run_interrupted",
        "run.delete": "run_deleted",
        "run.annotate": "run_annotated",
        "session.bind": "session_bound",
        "session.entry": "session.entry_appended",
        "session.events": "session.events_appended",
        "session.capture": "session.capture_updated",
        "lease.claim": "lease.claimed",
        "lease.release": "lease.released",
        "effect.settle": "effect_settled",
    }

    def check_create(self, command: CreateRun, run_id: str) -> CreateRun:
        """The workflow's name and source default to the definition's name and digest."""
        filled: dict[str, Any] = {}
        workflow = command.workflow
        if workflow is None:
            named = command.definition.get("name") if command.definition else None
            workflow = filled["workflow"] = short_text(named, TITLE_CHARS_MAX)
        if command.source is None:
            digest = definition_digest(command.definition)
            filled["source"] = Source(
                type="file",
                ref=f"inline:{workflow or 'workflow'}"[:TITLE_CHARS_MAX],
                revision=digest.hex() if digest is not None else None,
            )
        return command.model_copy(update=filled)

    def check_update(self, command: Update) -> None:
        """`progress` data follows its own schema."""
        if command.type == "progress":
            check_progress(command.data)

    def check_binding(self, command: BindSession, run_id: str) -> None:
        """A binding document names its schema, this run and this session."""
        binding = command.binding
        if binding is None:
            return
        if binding.get("schema") != BINDING_SCHEMA or binding.get("runId") != run_id:
            raise Refusal(Reason.BINDING_INVALID)
        if binding.get("piSessionId") != command.session:
            raise Refusal(Reason.BINDING_INVALID, "piSessionId")

    def enter(
        self, state: Document, run_id: str, touched: Collection[str] | None = None
    ) -> Document:
        """Without what the writer stamps. Refuse another schema, run or status."""
        if state:
            if state.get("schema") != STATE_SCHEMA:
                raise Refusal(Reason.STATE_INVALID, "schema")
            if state.get("runId") != run_id:
                raise Refusal(Reason.STATE_INVALID, "runId")
            status = state.get("status")
            if not isinstance(status, str) or status not in STATUSES:
                raise Refusal(Reason.STATE_INVALID, "status")
            if not isinstance(state.get("steps", []), list):
                raise Refusal(Reason.STATE_INVALID, "steps")
        return {key: state[key] for key in state if key not in self.stamped}

    def leave(self, state: dict[str, Any], moment: Moment) -> dict[str, Any]:
        """With what the writer stamps, as of the revision that is read."""
        state["traceSeq"] = moment.revision
        state["updatedAt"] = iso(moment.updated_at)
        state["updates"] = list(moment.updates)
        return state

    def project(self, state: Document, head: Head | None, arrival: int) -> Projection:
        """Status and its companions, column by column."""
        status = state.get("status", head.status if head is not None else "running")
        finished_at = parse_ms(state.get("finishedAt"))
        if status not in self.terminal and status != "waiting":
            finished_at = None
        elif finished_at is None and status in self.terminal:
            finished_at = arrival
        return Projection(
            status=status,
            title=short_text(state.get("title"), TITLE_CHARS_MAX),
            status_detail=short_text(state.get("statusDetail"), REASON_CHARS_MAX),
            current_node=short_text(state.get("currentNode"), TITLE_CHARS_MAX),
            current_attempt=short_text(state.get("currentAttemptId"), TITLE_CHARS_MAX),
            error=short_text(state.get("error"), REASON_CHARS_MAX),
            finished_at=finished_at,
        )

    def attempts(
        self, run: Run, state: Document, parts: Sequence[Part], arrival: int
    ) -> Sequence[Attempt]:
        """Attempts of the steps that changed, and of the step that is now under way."""
        found: dict[str, Attempt] = {}
        numbers: dict[str, int] = {}
        steps = state.get("steps", [])
        carried = state.get("carriedStepCount", 0)
        base, places = _changed_steps(run.state, parts, len(steps))
        for place in places:
            if isinstance(carried, int) and place < carried:
                continue
            attempt = _attempt_of_step(run, steps[place], base + place, numbers)
            if attempt is not None:
                found[attempt.attempt_id] = attempt
        node, attempt_id = state.get("currentNode"), state.get("currentAttemptId")
        if isinstance(node, str) and isinstance(attempt_id, str) and attempt_id not in found:
            status = "waiting" if state.get("status") == "waiting" else "running"
            started = parse_ms(state.get("currentNodeStartedAt")) or arrival
            current = _activate(run, attempt_id, node, status, started, numbers)
            if current is not None:
                found[attempt_id] = current
        return list(found.values())

    def attempt_of_update(self, run: Run, command: Update, arrival: int) -> Attempt | None:
        """The update's attempt runs. A finished one is never reopened."""
        if command.attempt_id is None:
            return None
        known = run.attempts.get(command.attempt_id)
        if known is not None and known.finished:
            raise Refusal(Reason.ATTEMPT_FINISHED)
        head = run.head
        status = "waiting" if head is not None and head.status == "waiting" else "running"
        node = command.node_id or (known.node_id if known is not None else "")
        return _activate(run, command.attempt_id, node, status, arrival, {})

    def interrupted(self, state: Document, reason: str, arrival: int) -> Document:
        """Failed, with nothing under way."""
        gone = (
            "currentNode",
            "currentAttemptId",
            "currentNodeStartedAt",
            "statusDetail",
            "paused",
        )
        left = {key: state[key] for key in state if key not in gone}
        if not left:
            return left
        return {**left, "status": "failed", "finishedAt": iso(arrival), "error": reason}

    def reset(self, state: Document) -> Document:
        """Running, with no end and no error."""
        left = {key: state[key] for key in state if key not in ("finishedAt", "error")}
        return {**left, "status": "running"} if left else left


def _changed_steps(
    before: Node | None, parts: Sequence[Part], steps: int
) -> tuple[int, Sequence[int]]:
    """The base of the new `steps`, and the places in it whose step may differ from the old
    one's.
    """
    old = before.members.get("steps") if isinstance(before, Obj) else None
    base = old.base if isinstance(old, Arr) else 0
    for part in parts:
        if part.value is not None and part.shape == "value" and part.pointer in ("", "/steps"):
            return 0, range(steps)
        if part.pointer == "/steps" and part.shape == "array" and part.value is not None:
            base = int(part.value[1:].partition(",")[0])
    touched = {
        int(part.pointer.split("/", 3)[2]) - base
        for part in parts
        if part.pointer.startswith("/steps/")
    }
    return base, sorted(place for place in touched if 0 <= place < steps)


def _attempt_of_step(run: Run, step: Any, key: int, numbers: dict[str, int]) -> Attempt | None:
    """The attempt that a step has finished; None if the step names none or changes nothing."""
    if not isinstance(step, dict):
        return None
    attempt_id, node = step.get("attemptId"), step.get("nodeId")
    if not isinstance(attempt_id, str) or not isinstance(node, str):
        return None
    outcome = short_text(step.get("outcome"), 64)
    node_type = short_text(step.get("nodeType"), 64) or "agent"
    known = run.attempts.get(attempt_id)
    attempt = Attempt(
        attempt_id=attempt_id,
        node_id=node,
        number=known.number if known is not None else _next_number(run, node, numbers),
        node_type=node_type,
        status=STATUS_OF_OUTCOME.get(outcome or "", "failed"),
        outcome=outcome,
        step=key,
        started_at=parse_ms(step.get("startedAt")),
        finished_at=parse_ms(step.get("finishedAt")),
    )
    if known is not None:
        attempt.revision = known.revision
    return None if attempt == known else attempt


def _activate(
    run: Run,
    attempt_id: str,
    node: str,
    status: str,
    started_at: int,
    numbers: dict[str, int],
) -> Attempt | None:
    """The attempt, now active; None if it is so already, or has finished."""
    known = run.attempts.get(attempt_id)
    if known is None:
        number = _next_number(run, node, numbers)
        return Attempt(attempt_id, node, number, "agent", status, started_at=started_at)
    if known.finished or known.status == status:
        return None
    return Attempt(
        attempt_id=attempt_id,
        node_id=known.node_id,
        number=known.number,
        node_type=known.node_type,
        status=status,
        started_at=known.started_at,
    )


def _next_number(run: Run, node: str, numbers: dict[str, int]) -> int:
    if node not in numbers:
        numbers[node] = max(
            (attempt.number for attempt in run.attempts.values() if attempt.node_id == node),
            default=0,
        )
    numbers[node] += 1
    return numbers[node]


def update_id(run_id: str, revision: int) -> str:
    """The id of the update that made a revision."""
    return f"upd_{sha256(f'{run_id}:{revision}'.encode()).hexdigest()[:32]}"
