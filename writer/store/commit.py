"""One batch, one transaction: rows, heads, cursors and the fencing check, all or nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import apsw

from writer.core.rows import (
    DefinitionRow,
    DefinitionUseRow,
    EntryRow,
    EventRow,
    PartRow,
    Row,
    SessionEventRow,
    UpdateRow,
)
from writer.core.run import Changed, Run
from writer.errors import Fenced
from writer.store.database import transaction
from writer.store.heads import ORDER, changed_rows
from writer.store.queries import named

QUERIES = named("commit.sql")
ERASED = (
    "runs",
    "leases",
    "events",
    "state_parts",
    "updates",
    "attempts",
    "work_items",
    "invocations",
    "suspensions",
    "definition_uses",
    "effects",
    "segments",
    "session_entries",
    "session_events",
    "rejections",
)
"""Tables of which nothing stays when a run is deleted."""

FREES = ("resume", "skip")
"""Acts that end a quarantine."""

Hook = Callable[[str], None]


def no_hook(point: str) -> None:
    """The default crash point: go on."""


class RejectionRow(NamedTuple):
    """A refused message as it is kept; see the table of this name in `schema.sql`."""

    run_key: int
    incarnation: int
    message_id: str
    kind: str | None
    producer: str | None
    producer_seq: int | None
    reason: str
    detail: str
    fields: str | None
    head: str | None
    fields_bytes: int
    fields_sha256: bytes
    body_hash: bytes
    recorded_at: int
    dropped_at: int | None = None


class QuarantineRow(NamedTuple):
    """A run that waits at a message, and why."""

    run_key: int
    message_id: str
    cause: str
    detail: str
    version: int | None
    since: int


class ActRow(NamedTuple):
    """An operator act and what became of it: `done`, or `refused` with the cause in `detail`."""

    control_id: str
    act: str
    run_id: str
    incarnation: int
    message_id: str
    operator: str
    outcome: str
    detail: str
    recorded_at: int


class DropRow(NamedTuple):
    """A refused message whose bytes are to go. `dropped_at` in ms."""

    dropped_at: int
    run_key: int
    incarnation: int
    message_id: str


@dataclass(slots=True)
class Batch:
    """What one commit writes. `rows` and `rejections` are in the order of their messages by run."""

    runs: list[Run] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    rejections: list[RejectionRow] = field(default_factory=list)
    quarantines: list[QuarantineRow] = field(default_factory=list)
    acts: list[ActRow] = field(default_factory=list)
    drops: list[DropRow] = field(default_factory=list)
    messages: int = 0
    to_archive: Callable[[], str | None] | None = None
    """Is called once nobody else can take the file; returns what `archived` is to be."""
    archived: str | None = None
    control_cursor: str | None = None


_INSERTS: tuple[tuple[type[Row], str], ...] = (
    (DefinitionRow, "insert_definition"),
    (DefinitionUseRow, "insert_definition_use"),
    (EventRow, "insert_event"),
    (PartRow, "insert_part"),
    (UpdateRow, "insert_update"),
    (EntryRow, "insert_entry"),
    (SessionEventRow, "insert_session_event"),
)


def commit(connection: apsw.Connection, batch: Batch, epoch: int, hook: Hook = no_hook) -> int:
    """Write a batch under `epoch`; returns the new commit_seq.

    Raises Fenced if another writer has raised the epoch, and any apsw error: then nothing of it is
    written, and the batch's aggregates must be loaded again. `hook` is called at named points.
    """
    with transaction(connection):
        hook("begun")
        check_epoch(connection, epoch)
        if batch.to_archive is not None:
            # Whoever lost the partition must not add to what its next writer has read.
            batch.archived = batch.to_archive() or batch.archived
            hook("archived")
        for run in batch.runs:
            if run.changed.erased:
                _erase(connection, run)
        events = _insert(connection, batch)
        hook("inserted")
        _put(connection, batch.runs)
        _put_acts(connection, batch)
        hook("put")
        commit_seq = _record(connection, batch, epoch, events)
        hook("written")
    hook("committed")
    for run in batch.runs:
        run.changed = Changed()
        run.stored = True
    return commit_seq


def check_epoch(connection: apsw.Connection, epoch: int) -> None:
    """Raise Fenced if another writer has taken the file. To be asked inside the transaction."""
    found = connection.execute(QUERIES["epoch"]).fetchone()
    if found != (epoch,):
        raise Fenced(
            f"epoch {epoch} is over: the file is at {found[0] if found else 'none'}",
            hint="another writer has the partition; this one wrote nothing and may rejoin",
        )


def _erase(connection: apsw.Connection, run: Run) -> None:
    key = (run.run_key,)
    definitions = connection.execute(QUERIES["definitions_of"], key).fetchall()
    for table in ERASED:
        connection.execute(f"DELETE FROM {table} WHERE run_key = ?", key)  # noqa: S608 - our names
    for definition in definitions:
        connection.execute(QUERIES["collect_definition"], definition)
    grave = run.tombstone
    assert grave is not None
    connection.execute(
        QUERIES["put_tombstone"],
        (
            run.run_key,
            run.run_id,
            grave.revision,
            grave.events,
            grave.segments,
            grave.reason,
            grave.message_id,
            grave.deleted_at,
        ),
    )


def _insert(connection: apsw.Connection, batch: Batch) -> int:
    """Append the rows, a statement a table; returns how many events they were."""
    by_table: defaultdict[type, list[Row]] = defaultdict(list)
    for row in batch.rows:
        by_table[type(row)].append(row)
    for table, query in _INSERTS:
        if table in by_table:
            connection.executemany(QUERIES[query], by_table[table])
    if batch.rejections:
        connection.executemany(QUERIES["insert_rejection"], batch.rejections)
    return len(by_table[EventRow])


def _put(connection: apsw.Connection, runs: Iterable[Run]) -> None:
    """Write what the batch changed in its aggregates, a statement a table."""
    rows = changed_rows(runs)
    for query in ORDER:
        if query in rows:
            connection.executemany(QUERIES[query], rows[query])


def _put_acts(connection: apsw.Connection, batch: Batch) -> None:
    if batch.acts:
        connection.executemany(QUERIES["insert_act"], batch.acts)
        freed = [(act.run_id,) for act in batch.acts if act.act in FREES and act.outcome == "done"]
        connection.executemany(QUERIES["delete_quarantine"], freed)
    if batch.drops:
        connection.executemany(QUERIES["drop_rejection"], batch.drops)
    if batch.control_cursor is not None:
        connection.execute(QUERIES["set_control_cursor"], (batch.control_cursor,))
    if batch.quarantines:
        connection.executemany(QUERIES["put_quarantine"], batch.quarantines)


def _record(connection: apsw.Connection, batch: Batch, epoch: int, events: int) -> int:
    last = connection.execute(QUERIES["last_event_seq"]).fetchone()
    unarchived = batch.messages if batch.archived is None else 0
    connection.execute(
        QUERIES["record_commit"],
        (batch.messages, events, last[0] if last else 0, epoch, unarchived),
    )
    raised = connection.execute(QUERIES["raise_commit_seq"], (batch.archived,))
    (commit_seq,) = raised.fetchall()[0]
    assert isinstance(commit_seq, int)
    return commit_seq
