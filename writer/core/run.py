"""The aggregate: all that a decision about one run may look at.

A `Run` stands for a stream, so it exists before its run is created: messages may be refused for an
unknown run, and their sequences are used up all the same. Decisions change it in place, and only
when they apply; the store writes what is marked changed and drops the aggregate after any rollback.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from producers.contract.envelope import Authority
from writer.core.parts import NOTHING, Node, Size

ATTEMPT_ACTIVE = frozenset(("pending", "queued", "running", "waiting"))
ATTEMPT_OPEN = ATTEMPT_ACTIVE | {"interrupted"}
"""In every dialect an attempt (or an invocation) of any other status has finished."""


@dataclass(slots=True)
class Cursor:
    """The last settled message and how many ended how. Id texts are `<ms>-<n>`, as Redis has
    them.
    """

    incarnation: int = 1
    message_id: str = "0-0"
    applied: int = 0
    duplicates: int = 0
    rejected: int = 0


@dataclass(slots=True)
class Sequences:
    """What one producer has sent: its last sequence and the open gaps `[first, last]` below it.

    `state_seq` and `lease_seq` are the newest sequences that it had applied of the two groups in
    which a late command would undo a newer one. `had_gaps`: gaps are stored.
    """

    no: int
    producer: str
    last: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)
    state_seq: int = 0
    lease_seq: int = 0
    had_gaps: bool = False


@dataclass(slots=True)
class Lease:
    """The lease in force, or the last one while the run is free (`released_at` set). Times in
    ms.
    """

    generation: int
    owner_type: str
    owner_id: str
    token_sha256: str
    lease_ms: int
    acquired_at: int
    renewed_at: int
    expires_at: int
    released_at: int | None = None


@dataclass(slots=True)
class Segment:
    """A session's transcript under a capture key ("" for the run's own, flat one).

    `reclaimed` is set once the owner that bound it has claimed the run again: its older authority
    has ended then, also for this segment.
    """

    no: int
    capture_key: str
    session: str
    binding: str | None
    bound_by: Authority | None
    producer_no: int
    created_at: int
    reclaimed: bool = False
    status: str = "recording"
    revision: int = 1
    entry_count: int = 0
    event_count: int = 0
    captured: str | None = None
    failure: str | None = None
    finished_at: int | None = None


@dataclass(slots=True)
class Attempt:
    """One attempt at a node; its id is scoped by the run.

    `step` is the key of its step in the state's `steps` (`/steps/<key>` where that is split).
    """

    attempt_id: str
    node_id: str
    number: int
    node_type: str
    status: str
    outcome: str | None = None
    step: int | None = None
    started_at: int | None = None
    finished_at: int | None = None
    revision: int = 0
    batch_id: str | None = None
    child_run: str | None = None

    @property
    def key(self) -> tuple[str]:
        """What tells it from the run's other attempts."""
        return (self.attempt_id,)

    @property
    def finished(self) -> bool:
        """Whether nothing reopens it."""
        return self.status not in ATTEMPT_OPEN


@dataclass(slots=True)
class WorkItem:
    """What an engine has to do next; `position` is its key in the state's queue, or 0.

    `kind`: `queued`, `collect` (waits for several inputs) or `claimed`. `items` counts its inputs.
    """

    kind: str
    position: int
    node_id: str
    attempt_id: str | None
    batch_id: str | None
    port: str | None
    items: int
    queue: str | None
    enqueued_at: int | None
    revision: int = 0

    @property
    def key(self) -> tuple[str, int]:
        """What tells it from the run's other work items."""
        return (self.kind, self.position)


@dataclass(slots=True)
class Invocation:
    """A call that a node makes while it runs; `number` counts those at one connection.

    `position` is its key in the state's list, by which they are ordered.
    """

    invocation_id: str
    position: int
    node_id: str
    number: int
    agent_node: str | None
    attempt_id: str | None
    status: str
    status_label: str | None = None
    subject_name: str | None = None
    iteration_id: str | None = None
    item_index: int | None = None
    parent_invocation: str | None = None
    queued_at: int | None = None
    started_at: int | None = None
    finished_at: int | None = None
    revision: int = 0

    @property
    def key(self) -> tuple[str]:
        """What tells it from the run's other invocations."""
        return (self.invocation_id,)


@dataclass(slots=True)
class Suspension:
    """A person's task that the run waits for; `position` is its key in the state's list."""

    position: int
    task_id: str
    node_id: str
    attempt_id: str | None
    item_index: int | None
    on_timeout: str | None
    timeout_at: int | None
    revision: int = 0

    @property
    def key(self) -> tuple[int]:
        """What tells it from the run's other suspensions."""
        return (self.position,)


Key = tuple[str | int, ...]


@dataclass(slots=True)
class Effect:
    """A side effect decided with its cause; `occurrence` counts the run's effects of this kind."""

    effect_id: str
    kind: str
    occurrence: int
    revision: int
    created_at: int
    status: str = "pending"
    result: str | None = None
    error: str | None = None
    settled_at: int | None = None


@dataclass(slots=True)
class Head:
    """The run itself, in columns. JSON columns are texts; times are ms.

    `state_producer` and `state_seq` name the command that sent the state just as it is; both are 0
    if none did: it was merged, or made by the writer.
    `terminal`: it has finished, as its dialect says; only a reset leads on.
    """

    dialect: str
    created_at: int
    updated_at: int
    status: str
    create_digest: bytes
    reserved: bool = False
    workflow: str | None = None
    definition_digest: bytes | None = None
    source_type: str | None = None
    source_ref: str | None = None
    source_revision: str | None = None
    parent_run: str | None = None
    parent_relation: str | None = None
    title: str | None = None
    tags: str | None = None
    test_case_status: str | None = None
    retention_seconds: int | None = None
    effects: str | None = None
    input: str | None = None
    status_detail: str | None = None
    current_node: str | None = None
    current_attempt: str | None = None
    error: str | None = None
    finished_at: int | None = None
    terminal: bool = False
    revision: int = 0
    state_revision: int = 0
    state_producer: int = 0
    state_seq: int = 0
    state_digest: int = 0


@dataclass(slots=True)
class Tombstone:
    """What stays of a deleted run beside its cursor, sequences and gaps."""

    revision: int
    events: int
    segments: int
    reason: str | None
    message_id: str
    deleted_at: int


@dataclass(slots=True)
class Changed:
    """Which of the aggregate's rows the next commit must write; `gone` by table and key."""

    head: bool = False
    lease: bool = False
    erased: bool = False
    producers: dict[int, Sequences] = field(default_factory=dict)
    segments: dict[int, Segment] = field(default_factory=dict)
    attempts: dict[str, Attempt] = field(default_factory=dict)
    work_items: dict[Key, WorkItem] = field(default_factory=dict)
    invocations: dict[str, Invocation] = field(default_factory=dict)
    suspensions: dict[Key, Suspension] = field(default_factory=dict)
    gone: set[tuple[str, Key]] = field(default_factory=set)
    effects: dict[str, Effect] = field(default_factory=dict)


@dataclass(slots=True)
class Run:
    """A run's stream and what became of it. `run_key` is the store's name for it, nothing else's.

    `document` is the state decoded, where patches have asked for it. Never changed in place.
    `definitions`: digests of those that its earlier states name beside the one it has now.
    `skips`, `breaks` and `drops` (with the time, ms) are operator acts, by (incarnation, message
    id): see `core.acts`.
    """

    run_key: int
    run_id: str
    cursor: Cursor = field(default_factory=Cursor)
    producers: dict[str, Sequences] = field(default_factory=dict)
    head: Head | None = None
    tombstone: Tombstone | None = None
    state: Node | None = None
    state_size: Size = NOTHING
    document: Mapping[str, Any] | None = None
    lease: Lease | None = None
    segments: dict[str, Segment] = field(default_factory=dict)
    attempts: dict[str, Attempt] = field(default_factory=dict)
    work_items: dict[Key, WorkItem] = field(default_factory=dict)
    invocations: dict[str, Invocation] = field(default_factory=dict)
    suspensions: dict[Key, Suspension] = field(default_factory=dict)
    definitions: set[bytes] = field(default_factory=set)
    updates: set[tuple[str, str]] = field(default_factory=set)
    effects: dict[str, Effect] = field(default_factory=dict)
    skips: set[tuple[int, str]] = field(default_factory=set)
    breaks: set[tuple[int, str]] = field(default_factory=set)
    drops: dict[tuple[int, str], int] = field(default_factory=dict)
    changed: Changed = field(default_factory=Changed)
    stored: bool = False

    def sequences(self, producer: str) -> Sequences:
        """The producer's sequences, new if it never sent to this run."""
        known = self.producers.get(producer)
        if known is None:
            known = Sequences(len(self.producers) + 1, producer)
            self.producers[producer] = known
        return known
