"""One run as plain dicts, for newline-delimited JSON: all of it, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import apsw

from writer.dialects.pi_workflows import update_id
from writer.errors import StoreUnavailable
from writer.store.reader.files import OpenFile
from writer.store.reader.query import Record, decode, identity_of, one, page, records
from writer.store.reader.states import Head, head_of, state_at

PAGE_ROWS = 500
UNLIMITED = -1
BESIDE = (
    ("attempt", "attempts", ()),
    ("invocation", "invocations", ()),
    ("work_item", "work_items", ()),
    ("suspension", "suspensions", ()),
    ("effect", "effects", ("result",)),
    ("lease", "lease", ()),
    ("producer", "export_producers", ("gaps",)),
    ("definition", "export_definitions", ("definition",)),
)
"""(type of the line, its query, columns that hold JSON), in the order in which they come."""
Find = Callable[[], OpenFile | None]


class Export:
    """Reads page by page, each in a transaction of its own, up to where the run stood at first.

    What it pages through is only ever appended, so the pages fit together. A run that is deleted
    meanwhile, or a file that is replaced, ends it with StoreUnavailable.
    """

    def __init__(self, find: Find, run_id: str) -> None:
        self._find = find
        self._run_id = run_id

    def lines(self) -> Iterator[Record]:
        """Each as `{"type": T, T: {...}}`; none if the run does not exist."""
        file = self._find()
        if file is None:
            return
        with file.read() as connection:
            head = head_of(connection, self._run_id)
            if head is None:
                return
            self._head: Head = head
            self._lineage = _lineage(connection)
            run = self._run(connection)
            side = list(_beside(connection, head.run_key))
            segments = records(connection, "export_segments", run_key=head.run_key)
            refused = one(connection, "last_rejection_seq")
        yield {"type": "run", "run": run}
        for event in self._events(0, head.revision):
            yield {"type": "event", "event": {"capture_key": None, **event}}
        yield self._state()
        for update in self._pages("export_updates", "revision", last=head.revision):
            update["update_id"] = update_id(self._run_id, update["revision"])
            yield {"type": "update", "update": decode(update, "data")}
        yield from side
        for segment in segments:
            yield from self._segment(segment)
        assert refused is not None
        for rejection in self._pages("export_rejections", "rejection_seq", last=refused[0]):
            yield {"type": "rejection", "rejection": decode(rejection, "fields", "head")}

    def _run(self, connection: apsw.Connection) -> Record:
        run = records(connection, "export_head", run_key=self._head.run_key)[0]
        decode(run, "tags", "effects", "definition")
        run["reserved"] = bool(run["reserved"])
        if run["input"] is None:
            del run["input"]
            return run
        return decode(run, "input")

    def _state(self) -> Record:
        with self._again() as connection:
            state = state_at(connection, self._head, self._head.revision)
        return {"type": "state", "state": {"revision": self._head.revision, "document": state}}

    def _segment(self, segment: Record) -> Iterator[Record]:
        no = segment.pop("segment")
        where = {"capture_key": segment["capture_key"]}
        yield {"type": "segment", "segment": decode(segment, "binding", "failure")}
        for event in self._events(no, segment["revision"]):
            yield {"type": "event", "event": {**where, **event}}
        last = segment["entry_count"]
        for entry in self._pages("entries", "seq", segment=no, last=last):
            yield {"type": "entry", "entry": {**where, **decode(entry, "entry")}}
        last = segment["event_count"]
        for event in self._pages("session_events", "seq", segment=no, last=last):
            yield {"type": "session_event", "session_event": {**where, **decode(event, "event")}}

    def _events(self, segment: int, last: int) -> Iterator[Record]:
        for event in self._pages(
            "export_events", "revision", segment=segment, last=last, run_id=self._run_id
        ):
            yield {"segment": segment, **decode(event, "payload")}

    def _pages(self, query: str, key: str, **bindings: Any) -> Iterator[Record]:
        after, after_message = 0, ""
        while True:
            with self._again() as connection:
                rows = page(
                    connection,
                    query,
                    run_key=self._head.run_key,
                    after=after,
                    after_message=after_message,
                    limit=PAGE_ROWS,
                    **bindings,
                )
            yield from rows
            if not rows:
                return
            after, after_message = rows[-1][key], rows[-1].get("message_id") or ""

    @contextmanager
    def _again(self) -> Iterator[apsw.Connection]:
        gone = StoreUnavailable(
            f"run {self._run_id} was deleted, or its file replaced, during its export",
            hint="export it again",
        )
        file = self._find()
        if file is None:
            raise gone
        with file.read() as connection:
            head = head_of(connection, self._run_id)
            same = head is not None and head.run_key == self._head.run_key
            if not same or _lineage(connection) != self._lineage:
                raise gone
            yield connection


def _beside(connection: apsw.Connection, run_key: int) -> Iterator[Record]:
    """Lines of the tables whose rows change, and so have to be read in one go."""
    for name, query, columns in BESIDE:
        for row in records(connection, query, run_key=run_key, limit=UNLIMITED):
            yield {"type": name, name: decode(row, *columns)}


def _lineage(connection: apsw.Connection) -> str:
    identity = identity_of(connection)
    assert identity is not None
    return identity.lineage
