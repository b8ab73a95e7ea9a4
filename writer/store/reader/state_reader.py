"""`StateReader`: every read there is, each in one read transaction of each file it looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import apsw

from writer.errors import Usage
from writer.store.reader import (
    changes,
    recorded,
    rejections,
    runs,
    sessions,
    settlements,
    states,
    status,
    sums,
    trace,
)
from writer.store.reader.changes import Changes
from writer.store.reader.engine_reads import EngineReads
from writer.store.reader.export import Export
from writer.store.reader.files import Files, OpenFile
from writer.store.reader.query import ROWS_MAX, Record, check_limit, records
from writer.store.reader.rejections import RejectionPage
from writer.store.reader.runs import RunPage
from writer.store.reader.states import Head

T = TypeVar("T")


class StateReader(EngineReads):
    """Reads the partition files of a data folder, at rest or while a writer is at work.

    It never writes, and holds no transaction between calls. Files that appear or are replaced are
    noticed at the next call; a folder or file that is not there is an empty answer. Use one per
    thread. Times are integer milliseconds, unless a key says that it is in the hosts' shape, with
    ISO texts. What does not exist is None, or an empty list.

    Pages of documents (`trace`, `transcript`, `session_events`) hold up to `limit` rows, fewer if
    these are large: read on, `after` the last one, until a page is empty.

    Raises StoreUnavailable, FileCorrupt, FileTooNew; Usage for a limit or token that is none.
    """

    def __init__(self, data: Path) -> None:
        self._files = Files(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the files; the next call would open them again."""
        self._files.close()

    # --- lists and heads ---

    def list_runs(
        self,
        *,
        status: str | None = None,
        workflow: str | None = None,
        dialect: str | None = None,
        parent: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> RunPage:
        """Runs of all partitions by (created_at, run_id), the newest first.

        Light rows: the columns of the view `v_runs`, `tags` decoded.
        """
        filters = runs.Filters(status, workflow, dialect, parent)
        return runs.newest_runs(self._files, filters, after, limit)

    def run(self, run_id: str) -> Record | None:
        """One stream and its run: the light row and, each None or a list if there is none,

        cursor      {incarnation, message_id, applied, duplicates, rejected}
        lease       {owner_type, owner_id, generation, lease_ms, acquired_at, renewed_at,
                    expires_at, released_at}; released_at set: this was the last one
        producers   [{producer, last_seq, gaps: [[first, last], ...]}]
        segments    [{capture_key, session, status, revision, entry_count, event_count,
                    bound_owner_type, bound_owner_id, bound_generation, failure, created_at,
                    finished_at}]; capture_key None: the run's own
        effects     [{effect_id, kind, occurrence, revision, status, result, error, created_at,
                    settled_at}]
        work_items, invocations, suspensions
                    where the dialect tells of them: the columns of the views of these names
        quarantine  {message_id, cause, detail, version, since}
        truncated   names of those lists that show their first 1,000 only

        Of a run that is deleted or was never created: run_id, `status` None, cursor, producers,
        quarantine, truncated, and `deleted` {revision, events, segments, reason, message_id,
        deleted_at} if it was.
        """
        return self._read(run_id, lambda connection: runs.run_detail(connection, run_id), None)

    def attempts(self, run_id: str, *, limit: int = ROWS_MAX) -> list[Record]:
        """Attempts by their start: the columns of the view `v_attempts` but the run's id."""
        check_limit(limit)
        return self._of_run(
            run_id,
            lambda connection, head: records(
                connection, "attempts", run_key=head.run_key, limit=limit
            ),
            [],
        )

    # --- states, trace, updates ---

    def state(self, run_id: str, revision: int | None = None) -> Any:
        """The state document as of a revision (None: the latest), stamped by its dialect.

        None for a run or revision that does not exist.
        """

        def read(connection: apsw.Connection, head: Head) -> Any:
            at = head.revision if revision is None else revision
            return states.state_at(connection, head, at) if 1 <= at <= head.revision else None

        return self._of_run(run_id, read, None)

    def updates(self, run_id: str, revision: int | None = None) -> list[Record]:
        """The current updates as of a revision: the newest of each (type, key), oldest first.

        `{revision, type, key, data, node_id, attempt_id, recorded_at, update_id}`
        """

        def read(connection: apsw.Connection, head: Head) -> list[Record]:
            return states.updates_at(
                connection, head, head.revision if revision is None else revision
            )

        return self._of_run(run_id, read, [])

    def trace(self, run_id: str, *, after: int = 0, limit: int = 1000) -> list[Record]:
        """The run's events past a revision: the columns of `v_trace`, `payload` decoded."""
        check_limit(limit)
        return self._of_run(
            run_id,
            lambda connection, head: trace.trace_after(connection, head, after, limit),
            [],
        )

    def last_trace_event(self, run_id: str) -> Record | None:
        """The newest event in the hosts' shape, as in `read_run`."""

        def read(connection: apsw.Connection, head: Head) -> Record:
            rows = trace.trace_after(connection, head, head.revision - 1, 1)
            return trace.trace_event(rows[0])

        return self._of_run(run_id, read, None)

    def read_run(self, run_id: str, *, include_trace: bool = True) -> Record | None:
        """A whole run in the hosts' shape:

        runId, state, snapshot (the definition), traceEvents [{seq, at, runId, scope, type,
        nodeId?, attemptId?, payload}], and of the run's own session: sessionBinding, sessionEntries
        [{seq, at, entry}], sessionEvents (as they came), sessionCapture {schema, eventSchema,
        status, entryCount, eventCount, lastEventSeq, failure?}, sessionIntegrity {status:
        unavailable | recording | complete | failed | invalid, diagnostics}; and sessionSegments
        [{captureKey, session, binding, entries, events, capture, integrity}] for those with a key.
        """
        return self._of_run(
            run_id,
            lambda connection, head: recorded.recorded_run(
                connection, head, include_trace=include_trace
            ),
            None,
        )

    # --- sessions ---

    def transcript(
        self, run_id: str, *, capture_key: str | None = None, after: int = 0, limit: int = 1000
    ) -> list[Record]:
        """Entries of one segment past a seq: `{seq, entry_id, entry, recorded_at}`."""
        check_limit(limit)

        def read(connection: apsw.Connection, head: Head) -> list[Record]:
            segment = sessions.segment_at(connection, head.run_key, capture_key)
            if segment is None:
                return []
            return sessions.transcript_after(connection, segment, after, limit)

        return self._of_run(run_id, read, [])

    def session_events(
        self, run_id: str, *, capture_key: str | None = None, after: int = 0, limit: int = 1000
    ) -> list[Record]:
        """Temporal events of one segment past a seq: `{seq, event, recorded_at}`."""
        check_limit(limit)

        def read(connection: apsw.Connection, head: Head) -> list[Record]:
            segment = sessions.segment_at(connection, head.run_key, capture_key)
            if segment is None:
                return []
            return sessions.session_events_after(connection, segment, after, limit)

        return self._of_run(run_id, read, [])

    def session_counts(self, run_id: str, capture_key: str | None = None) -> Record:
        """`{entryCount, eventCount, lastEventSeq}` of one segment; zeros if there is none."""
        return self._of_run(
            run_id,
            lambda connection, head: sessions.counts_of(
                sessions.segment_at(connection, head.run_key, capture_key)
            ),
            sessions.counts_of(None),
        )

    def has_session_binding(self, run_id: str) -> bool:
        """Whether any session was bound."""
        return self._of_run(
            run_id,
            lambda connection, head: sessions.has_segment(connection, head.run_key),
            False,
        )

    def list_session_segments(self, run_id: str) -> list[str]:
        """Capture keys of the run's segments in order; its own segment has none."""
        return self._of_run(
            run_id,
            lambda connection, head: sessions.capture_keys(connection, head.run_key),
            [],
        )

    # --- rejections and outcomes ---

    def rejections(
        self,
        *,
        run: str | None = None,
        reason: str | None = None,
        since: int | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> RejectionPage:
        """Refused messages without their bytes, the newest first; `since` in ms.

        `{id, run_id, message_id, kind, producer, producer_seq, reason, detail, fields_bytes,
        recorded_at}`
        """
        filters = rejections.Filters(run, reason, since)
        return rejections.newest_rejections(self._files, filters, after, limit)

    def rejection(self, rejection_id: str) -> Record | None:
        """One rejection by its id: as in the list, and `incarnation`, `fields` (the stream fields,
        a value that is not UTF-8 being {"hex": ...}; None if the message was too large, when `head`
        has the first bytes of each), `head`, `fields_sha256` (hex).
        """
        return rejections.whole_rejection(self._files, rejection_id)

    def outcome(
        self,
        run_id: str,
        message_id: str,
        producer: str | None = None,
        seq: int | None = None,
    ) -> Record | None:
        """How a message ended; None while it is pending. `producer` and `seq` are the message's.

        {outcome: applied, revision, segment, capture_key}: segment 0 is the run itself
        {outcome: rejected, reason, detail}
        {outcome: duplicate, of: the id of the message that used the sequence, and how that ended}
        {outcome: settled}: it made no event and was not refused (a duplicate, or a lease renewal),
        or its run was deleted since, or producer and seq were not given
        """
        try:
            settlements.order_of(message_id)
        except ValueError:
            raise Usage(f"{message_id[:60]!r} is no message id", hint="<ms>-<n>") from None
        return self._read(
            run_id,
            lambda connection: settlements.outcome_of(
                connection, run_id, message_id, producer, seq
            ),
            None,
        )

    def settled(self, run_ids: Iterable[str]) -> dict[str, tuple[int, str]]:
        """Incarnation and last settled message of those streams of which any is settled."""
        by_file: dict[OpenFile, list[str]] = {}
        for run_id in run_ids:
            file = self._files.of(run_id)
            if file is not None:
                by_file.setdefault(file, []).append(run_id)
        found = {}
        for file, names in by_file.items():
            with file.read() as connection:
                for name in names:
                    at = settlements.settled_at(connection, name)
                    if at is not None:
                        found[name] = at
        return found

    # --- everything ---

    def changes(self, since: str | None = None, limit: int = 1000) -> Changes:
        """Events of all runs and segments after a token (None: from the beginning).

        `{partition, event_seq, run_id, segment, capture_key, revision, type, scope, node_id,
        attempt_id, recorded_at, message_id, producer, producer_seq}`; segment 0 is the run itself.
        Each partition gives its share of `limit`, at least one. No events: nothing happened since.
        """
        return changes.changes_since(self._files, since, limit)

    def status(self) -> Record:
        """`{partitions: [{partition, file, bytes, wal_bytes, epoch, commit_seq, lineage, runs (by
        status), streams, applied, duplicates, rejected, open_gaps, missing (sequences in them),
        quarantined, last_event_at}], totals: {...}}`
        """
        return status.status_of(self._files)

    def digest(self, *, runs: bool = True) -> Record:
        """`{runs: {run_id: hex}, partitions: {"0": hex}, digest: hex}`; see `writer.store.digest`.

        Without `runs` it keeps none of theirs in memory. Each partition is read in one transaction.
        """
        return sums.digests_of(self._files, runs=runs)

    def export_run(self, run_id: str) -> Iterator[Record]:
        """The whole run as dicts `{"type": T, T: {...}}`, in bounded memory; none if there is none.

        T in this order: run (head, definition, input), event, state {revision, document} (the
        latest), update, attempt, invocation, work_item, suspension, effect, lease, producer,
        definition (earlier ones), then of each segment: segment, event, entry, session_event;
        then rejection. All as of one moment, though read page by page. Raises
        StoreUnavailable if the run is deleted, or its file replaced, before the end.
        """
        return Export(lambda: self._files.of(run_id), run_id).lines()

    # --- how to get there ---

    def _read(self, run_id: str, read: Callable[[apsw.Connection], T], absent: T) -> T:
        file = self._files.of(run_id)
        if file is None:
            return absent
        with file.read() as connection:
            return read(connection)

    def _of_run(self, run_id: str, read: Callable[[apsw.Connection, Head], T], absent: T) -> T:
        def of_head(connection: apsw.Connection) -> T:
            head = states.head_of(connection, run_id)
            return absent if head is None else read(connection, head)

        return self._read(run_id, of_head, absent)
