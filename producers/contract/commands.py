"""Every kind of command as one strict model, and their union: the language that hosts speak.

A model is a message's `kind` and body. Inside the opaque documents (`state`, `entry`, `payload`,
`data`, ...) anything that JSON can say is allowed and comes back equal; around them an unknown
field is refused. `docs/wire-contract.md` explains each kind in words.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, with_config
from typing_extensions import TypedDict

from producers.contract import limits

Id = Annotated[
    str,
    StringConstraints(min_length=1, max_length=limits.ID_CHARS_MAX, pattern=limits.NO_NUL_PATTERN),
]
RunId = Annotated[str, StringConstraints(pattern=limits.RUN_ID_PATTERN)]
Title = Annotated[
    str,
    StringConstraints(
        min_length=1, max_length=limits.TITLE_CHARS_MAX, pattern=limits.NO_NUL_PATTERN
    ),
]
Sentence = Annotated[str, StringConstraints(max_length=limits.REASON_CHARS_MAX)]
Tags = Annotated[dict[Id, Title], Field(max_length=limits.TAGS_MAX)]
Count = Annotated[int, Field(ge=0, le=limits.COUNTER_MAX)]
Counter = Annotated[int, Field(ge=1, le=limits.COUNTER_MAX)]
EventType = Annotated[str, StringConstraints(pattern=limits.EVENT_TYPE_PATTERN)]
Document = dict[str, Any]

Dialect = Literal["generic", "pi_workflows", "codemation"]
EffectKind = Literal["run.settled", "run.parked"]
OwnerType = Literal["session", "host", "controller", "channel", "system"]
CaptureStatus = Literal["recording", "complete", "failed"]
TestCaseStatus = Literal["running", "succeeded", "failed", "errored", "cancelled"]


class Model(BaseModel):
    """What all models share: no coercion (`"1"` and `1.0` are not 1) and no unknown field."""

    model_config = ConfigDict(strict=True, extra="forbid")


class EventDraft(Model):
    """The trace event that a snapshot brings along. Unlike the state it is kept per revision."""

    type: EventType
    scope: Literal["run", "node"] = "run"
    node_id: Id | None = None
    attempt_id: Id | None = None
    payload: Document | None = None


class Source(Model):
    """Where a run's definition came from, for example a file and its hash."""

    type: Literal["builtin", "file"]
    ref: Title
    revision: Title | None = None


class Parent(Model):
    """The run that this one hangs below. The parent is not looked at: it may not even exist."""

    run: RunId
    relation: Id = "child"


# A typed dictionary takes two thirds of the time of a model, and there are many of these.
@with_config(ConfigDict(strict=True, extra="allow"))
class SessionEvent(TypedDict):
    """One temporal event of a session. A document: fields beyond these are kept as they came."""

    seq: Counter
    at: Id
    type: Id
    payload: Document
    nodeId: NotRequired[Id | None]
    attemptId: NotRequired[Id | None]
    turnId: NotRequired[Id | None]
    messageId: NotRequired[Id | None]
    toolCallId: NotRequired[Id | None]


class Failure(BaseModel):
    """Why a capture failed. A document: fields beyond these are kept as they came."""

    model_config = ConfigDict(strict=True, extra="allow")

    code: Id
    message: Sentence


class CreateRun(Model):
    """Create a run; with `status: queued` reserve its id, to be adopted by a second create."""

    kind: Literal["run.create"] = "run.create"
    dialect: Dialect = "generic"
    workflow: Title | None = None
    definition: Document | None = None
    input: Any = None
    source: Source | None = None
    state: Document | None = None
    status: Literal["queued"] | None = None
    parent: Parent | None = None
    title: Title | None = None
    tags: Tags | None = None
    retention_seconds: Annotated[int, Field(ge=1, le=limits.RETENTION_SECONDS_MAX)] | None = None
    effects: Annotated[list[EffectKind], Field(max_length=limits.EFFECT_KINDS_MAX)] | None = None


class Snapshot(Model):
    """Replace the run's state document, and say what happened.

    `expected_revision` makes it conditional: on another revision it is refused, or merged
    (three ways, the state at that revision being the base).
    """

    kind: Literal["run.snapshot"] = "run.snapshot"
    state: Document
    event: EventDraft | None = None
    expected_revision: Counter | None = None
    on_conflict: Literal["reject", "merge"] = "reject"


Step = str | Count
Path = Annotated[list[Step], Field(min_length=1, max_length=limits.PATH_STEPS_MAX)]
"""Where in a document: keys of objects, places in arrays from 0."""


class SetMember(Model):
    """Give a member a value: an object's, new or known, or a known one of an array."""

    path: Path
    value: Any


class Splice(Model):
    """Put `items` in the place of `delete` members of an array of `length`, from `start` on."""

    path: Path
    length: Count
    start: Count
    delete: Count
    items: list[Any]


class Patch(Model):
    """Replace parts of the state, and say what happened: a snapshot that travels as what changed.

    It builds on the state that the command of sequence `base` of the same producer left, and is
    refused if that is not the latest. First members go, then they are set, then arrays spliced.
    """

    kind: Literal["run.patch"] = "run.patch"
    base: Counter
    remove: list[Path] = []
    set: list[SetMember] = []
    splice: list[Splice] = []
    event: EventDraft | None = None


class Update(Model):
    """A progress update: the last one of each type and key (and attempt) is current."""

    kind: Literal["run.update"] = "run.update"
    type: Annotated[str, StringConstraints(pattern=limits.UPDATE_TYPE_PATTERN)]
    key: Annotated[str, StringConstraints(pattern=limits.UPDATE_KEY_PATTERN)]
    data: Document
    node_id: Id | None = None
    attempt_id: Id | None = None


class Resume(Model):
    """A host takes a running run up again: what was active is interrupted, its own recordings
    end.
    """

    kind: Literal["run.resume"] = "run.resume"


class Reset(Model):
    """Lead a finished run back to `running`."""

    kind: Literal["run.reset"] = "run.reset"
    reason: Sentence | None = None


class Interrupt(Model):
    """The run's host is gone: it has failed. An operator may send it once the lease expired."""

    kind: Literal["run.interrupt"] = "run.interrupt"
    reason: Sentence = "The host stopped before the run finished."


class DeleteRun(Model):
    """Remove the run and all that hangs on it; a tombstone stays, so its id is never used again."""

    kind: Literal["run.delete"] = "run.delete"
    reason: Sentence | None = None


class Annotate(Model):
    """Title, tags, test-case status. Only what is named changes; null takes it away."""

    kind: Literal["run.annotate"] = "run.annotate"
    title: Title | None = None
    tags: Tags | None = None
    test_case_status: TestCaseStatus | None = None


class BindSession(Model):
    """Open a segment: the transcript of a session under (run) or (run, capture key)."""

    kind: Literal["session.bind"] = "session.bind"
    session: Id
    capture_key: Id | None = None
    binding: Document | None = None


class AppendEntry(Model):
    """Append one settled transcript entry; its identity is `entry_id`, else the entry's own
    `id`.
    """

    kind: Literal["session.entry"] = "session.entry"
    capture_key: Id | None = None
    entry: Document
    entry_id: Id | None = None


class AppendEvents(Model):
    """Append a batch of temporal events whose `seq` goes on without a hole: 1, 2, 3, ..."""

    kind: Literal["session.events"] = "session.events"
    capture_key: Id | None = None
    events: Annotated[
        list[SessionEvent],
        Field(min_length=1, max_length=limits.SESSION_EVENTS_PER_COMMAND_MAX),
    ]


class Capture(Model):
    """How a segment's recording stands; counts that are named are checked against what is
    stored.
    """

    kind: Literal["session.capture"] = "session.capture"
    capture_key: Id | None = None
    status: CaptureStatus
    entry_count: Count | None = None
    event_count: Count | None = None
    last_event_seq: Count | None = None
    failure: Failure | None = None


class ClaimLease(Model):
    """Claim the authority to write the run. Only the SHA-256 (hex) of the new token travels."""

    kind: Literal["lease.claim"] = "lease.claim"
    owner_type: OwnerType
    owner_id: Id
    token_sha256: Annotated[str, StringConstraints(pattern=limits.SHA256_PATTERN)]
    lease_ms: Annotated[int, Field(ge=1, le=limits.LEASE_MS_MAX)]


class RenewLease(Model):
    """Move the expiry to the arrival plus `lease_ms`."""

    kind: Literal["lease.renew"] = "lease.renew"
    lease_ms: Annotated[int, Field(ge=1, le=limits.LEASE_MS_MAX)]


class ReleaseLease(Model):
    """Give the lease back: the run takes commands without authority again."""

    kind: Literal["lease.release"] = "lease.release"


class SettleEffect(Model):
    """The outcome of an effect, sent by the job that ran it."""

    kind: Literal["effect.settle"] = "effect.settle"
    effect_id: Id
    occurrence: Counter
    status: Literal["applied", "rejected", "ambiguous", "cancelled"]
    result: Any = None
    error: Sentence | None = None


Command = (
    CreateRun
    | Snapshot
    | Patch
    | Update
    | Resume
    | Reset
    | Interrupt
    | DeleteRun
    | Annotate
    | BindSession
    | AppendEntry
    | AppendEvents
    | Capture
    | ClaimLease
    | RenewLease
    | ReleaseLease
    | SettleEffect
)

COMMANDS: TypeAdapter[Command] = TypeAdapter(Annotated[Command, Field(discriminator="kind")])
MODELS: dict[str, type[Model]] = {
    model.model_fields["kind"].default: model for model in Command.__args__
}


class Auth(Model):
    """Authority as it travels in the message's `auth` field: the only place of a token."""

    owner_type: OwnerType
    owner_id: Id
    token: Annotated[str, StringConstraints(min_length=1, max_length=limits.ID_CHARS_MAX)]
    generation: Counter | None = None


class SealedAuth(Model):
    """Authority after the reader has replaced the token by its SHA-256 (hex)."""

    owner_type: OwnerType
    owner_id: Id
    token_sha256: Annotated[str, StringConstraints(pattern=limits.SHA256_PATTERN)]
    generation: Counter | None = None
