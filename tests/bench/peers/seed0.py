"""A run store of seed 0's shape: one transaction for each operation, on its tables.

Statement for statement what such a store does: content-addressed blobs that are read back, one
event with a payload blob for each revision, the whole state as a blob for each, all attempts
written again at each snapshot, SQL prepared anew at each use. With `prepared` statements are kept
instead. JSON is made by orjson and ids come from a counter, kinder than it is to itself. WAL,
synchronous FULL. Its file after one typical run is within 1 % of what seed 0's own is.

    python -m tests.bench.peers.seed0 FILE RUN...     # runs per second, in a process of its own
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from hashlib import sha256
from itertools import count
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

import apsw
import orjson

from tests.bench.workload import Op, typical_ops
from tests.support.workload import iso

Document = dict[str, Any]
NOW = 1_787_443_200_000
JSON, TEXT = "application/json", "text/plain"
PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=FULL",
    "foreign_keys=ON",
    "busy_timeout=5000",
    "wal_autocheckpoint=1000",
)
STATEMENTS_KEPT = 100
OUTCOMES = {"ok": "completed", "timed_out": "timed_out", "cancelled": "cancelled"}


class Seed0:
    """The store. `perform` takes the operations of the workload; a run's state is its caller's."""

    def __init__(self, path: Path, *, prepared: bool = False) -> None:
        kept = STATEMENTS_KEPT if prepared else 0
        self._connection = apsw.Connection(str(path), statementcachesize=kept)
        for pragma in PRAGMAS:
            self._connection.execute(f"PRAGMA {pragma}").fetchall()
        tables = Path(__file__).with_name("seed0_tables.sql").read_text()
        self._connection.execute(tables).fetchall()
        self._sql = self._connection.execute
        self._ids = count(1)

    def perform_all(self, run: str, operations: Iterable[Op]) -> None:
        """Every operation of a run, the first of which creates it."""
        state: Document = {}
        for operation in operations:
            state = operation.payload[1] if operation.name == "init" else state
            self.perform(run, state, operation)

    def close(self) -> None:
        """Close the file: its WAL goes into it."""
        self._connection.close()

    def perform(self, run: str, state: Document, op: Op) -> None:
        """One operation, one transaction. `state` is what the host holds; it is stamped."""
        self._sql("BEGIN IMMEDIATE")
        match op:
            case Op("init", (definition, _)):
                self._initialize(run, state, definition)
            case Op("bind", binding):
                self._bind(run, binding)
            case Op("events", records):
                self._append_events(run, records)
            case Op("entry", entry):
                self._append_entry(run, entry)
            case Op("update", (node, attempt, published)):
                self._publish(run, state, node, attempt, published)
            case Op("capture", capture):
                self._capture(run, capture)
            case Op("snapshot", (_, draft)):
                self._write_run(run, state, draft["type"], draft)
            case _:
                raise ValueError(op.name)
        self._sql("COMMIT")

    def _blob(self, content: bytes, media: str = JSON) -> bytes:
        key = sha256(content).digest()
        self._sql(
            "INSERT INTO blobs VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (key, media, len(content), content, NOW),
        )
        found = self._one(
            "SELECT media_type, byte_length, content FROM blobs WHERE blob_hash=?", key
        )
        assert found == (media, len(content), content)
        return key

    def _json(self, value: Any) -> bytes:
        return self._blob(canonical(value))

    def _one(self, sql: str, *values: Any) -> Any:
        return self._sql(sql, values).fetchone()

    def _create_resource(self, kind: str, key: str) -> str:
        resource = identity(kind, key)
        self._sql(
            "INSERT INTO resources VALUES (?, ?, ?, 1, ?, ?)", (resource, kind, key, NOW, NOW)
        )
        self._sql("INSERT INTO leases (resource_id) VALUES (?)", (resource,))
        return resource

    def _event(
        self, resource: str, revision: int, kind: str, payload: bytes | None, actor: str = "system"
    ) -> None:
        self._sql(
            "INSERT INTO events (event_id, resource_id, resource_revision, event_type, actor_type,"
            " actor_id, lease_generation, payload_hash, recorded_at)"
            " VALUES (?, ?, ?, ?, ?, NULL, NULL, ?, ?)",
            (f"event-{next(self._ids):036}", resource, revision, kind, actor, payload, NOW),
        )

    def _admit(self, run: str) -> int:
        """The run's revision, after the checks that each write begins with."""
        resource = identity("run", run)
        (revision,) = self._one("SELECT revision FROM resources WHERE resource_id=?", resource)
        lease = self._one(
            "SELECT generation, owner_type, owner_id, token_hash, expires_at FROM leases"
            " WHERE resource_id=?",
            resource,
        )
        assert lease is not None
        assert lease[2] is None
        return int(revision)

    def _raise_revision(self, resource: str, revision: int) -> int:
        self._sql(
            "UPDATE resources SET revision=?, updated_at=? WHERE resource_id=? AND revision=?",
            (revision + 1, NOW, resource, revision),
        )
        return revision + 1

    def _initialize(self, run: str, state: Document, definition: Document) -> None:
        assert self._one("SELECT status FROM runs WHERE run_id=?", run) is None
        state |= {"traceSeq": 1, "updatedAt": iso(0)}
        digest = self._json(definition)
        given = self._json(state["input"])
        source = self._json({"kind": "file", "path": f"inline:{definition['name']}"})
        options = self._json({})
        output = self._json(state)
        self._sql(
            "INSERT INTO workflow_definitions VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (digest, definition["name"], digest, NOW),
        )
        resource = self._create_resource("run", run)
        self._sql(
            "INSERT INTO runs VALUES (?, ?, NULL, NULL, ?, ?, ?, ?, 'file', ?, ?, NULL, ?, 0, NULL,"
            " ?, ?, NULL, ?, ?, NULL)",
            (
                run,
                resource,
                digest,
                definition["name"],
                source,
                options,
                f"inline:{definition['name']}",
                digest.hex(),
                state["status"],
                given,
                output,
                milliseconds(state["startedAt"]),
                NOW,
            ),
        )
        named = {"scope": "run", "payload": {"workflowName": definition["name"]}}
        self._event(resource, 1, "run_created", self._json(named))
        self._sync_attempts(run, state)

    def _write_run(self, run: str, state: Document, kind: str, payload: Document) -> None:
        """One more revision of a run: event, state, attempts."""
        resource = identity("run", run)
        revision = self._raise_revision(resource, self._admit(run))
        state |= {"traceSeq": revision, "updatedAt": iso(0)}
        self._event(resource, revision, kind, self._json(payload))
        self._persist(run, state)
        self._sync_attempts(run, state)

    def _persist(self, run: str, state: Document) -> None:
        finished = state.get("finishedAt")
        self._sql(
            "UPDATE runs SET output_hash=?, error_hash=NULL, title=?, status=?, paused=0,"
            " status_detail=?, updated_at=?, finished_at=? WHERE run_id=?",
            (
                self._json(state),
                state.get("title"),
                state["status"],
                state.get("statusDetail"),
                NOW,
                None if finished is None else milliseconds(finished),
                run,
            ),
        )
        if state["status"] != "running":
            assert self._one("SELECT status FROM run_queue WHERE run_id=?", run) is None

    def _sync_attempts(self, run: str, state: Document) -> None:
        for step in state["steps"]:
            prompt = step.get("prompt")
            hashes = (
                None if prompt is None else self._json(prompt),
                self._json(step["output"]),
                self._json(step),
            )
            status = OUTCOMES.get(step["outcome"], "failed")
            self._put_attempt(run, step, status, hashes)
        if "currentAttemptId" in state:
            self._ensure_attempt(run, state, state["currentNode"], state["currentAttemptId"])

    def _put_attempt(self, run: str, step: Document, status: str, hashes: tuple[Any, ...]) -> None:
        attempt, finished = step["attemptId"], milliseconds(step["finishedAt"])
        if self._one("SELECT status FROM node_attempts WHERE attempt_id=?", attempt) is not None:
            self._sql(
                "UPDATE node_attempts SET status=?, presentation_hash=?, output_hash=?,"
                " result_hash=?, finished_at=?, updated_at=? WHERE attempt_id=?",
                (status, *hashes, finished, NOW, attempt),
            )
            return
        self._insert_attempt(
            run, step["nodeId"], attempt, step["nodeType"], status, hashes, finished
        )

    def _ensure_attempt(self, run: str, state: Document, node: str, attempt: str) -> None:
        status = "waiting" if state["status"] == "waiting" else "running"
        if self._one("SELECT status FROM node_attempts WHERE attempt_id=?", attempt) is not None:
            self._sql(
                "UPDATE node_attempts SET status=?, updated_at=? WHERE attempt_id=?",
                (status, NOW, attempt),
            )
            return
        self._insert_attempt(run, node, attempt, "agent", status, (None, None, None), None)

    def _insert_attempt(
        self,
        run: str,
        node: str,
        attempt: str,
        kind: str,
        status: str,
        hashes: tuple[Any, ...],
        finished: int | None,
    ) -> None:
        (number,) = self._one(
            "SELECT coalesce(max(attempt_number), 0) + 1 FROM node_attempts"
            " WHERE run_id=? AND node_id=?",
            run,
            node,
        )
        self._sql(
            "INSERT INTO node_attempts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, ?, ?, ?, ?)",
            (attempt, run, node, number, kind, status, *hashes, NOW, finished, NOW, NOW),
        )

    def _publish(
        self, run: str, state: Document, node: str, attempt: str, published: Document
    ) -> None:
        resource = identity("run", run)
        revision = self._raise_revision(resource, self._admit(run))
        update_id = f"upd_{next(self._ids):036}"
        record = {
            "updateId": update_id,
            "seq": revision,
            "at": iso(0),
            "runId": run,
            "nodeId": node,
            "attemptId": attempt,
            **published,
        }
        others = [
            each
            for each in state["updates"]
            if (each["type"], each["key"]) != (published["type"], published["key"])
        ]
        state["updates"] = [*others, record]
        state |= {"traceSeq": revision, "updatedAt": iso(0)}
        self._ensure_attempt(run, state, node, attempt)
        (number,) = self._one(
            "SELECT coalesce(max(update_seq), 0) + 1 FROM workflow_updates WHERE attempt_id=?",
            attempt,
        )
        data = self._json(published["data"])
        kind, key = published["type"], published["key"]
        self._sql(
            "INSERT INTO workflow_updates VALUES (?, ?, ?, ?, ?, ?, ?)",
            (update_id, attempt, number, kind, key, data, NOW),
        )
        told = {"updateId": update_id, **published}
        named = {"scope": "node", "nodeId": node, "attemptId": attempt, "payload": told}
        self._event(resource, revision, "update_published", self._json(named))
        self._persist(run, state)

    def _bind(self, run: str, binding: Document) -> None:
        revision = self._admit(run)
        segment = segment_id(run)
        known = self._one("SELECT segment_id FROM session_segments WHERE segment_id=?", segment)
        assert known is None
        bound = self._json(binding)
        session = binding["piSessionId"]
        resource = self._create_resource("session", segment)
        self._sql(
            "INSERT INTO session_segments VALUES (?, ?, NULL, ?, ?, ?, 'recording', 0, 0, NULL, ?,"
            " NULL)",
            (segment, run, session, resource, bound, milliseconds(binding["boundAt"])),
        )
        self._event(resource, 1, "session.created", bound, "session")
        self._sql(
            "INSERT INTO run_bindings VALUES (?, ?, 'interactive', ?) ON CONFLICT DO NOTHING",
            (run, session, NOW),
        )
        (stored,) = self._one(
            "SELECT content FROM blobs WHERE blob_hash="
            "(SELECT output_hash FROM runs WHERE run_id=?)",
            run,
        )
        state = orjson.loads(stored)
        own = identity("run", run)
        revision = self._raise_revision(own, revision)
        state |= {"traceSeq": revision, "updatedAt": iso(5)}
        named = {"scope": "run", "payload": {"piSessionId": session}}
        self._event(own, revision, "session_bound", self._json(named))
        self._persist(run, state)
        self._sync_attempts(run, state)

    def _segment(self, run: str) -> tuple[str, str, str, int, int, int]:
        """Segment id, resource id, status, counts and revision, after the run's checks."""
        segment = segment_id(run)
        resource, status, entries, events = self._one(
            "SELECT resource_id, status, entry_count, event_count FROM session_segments"
            " WHERE segment_id=?",
            segment,
        )
        self._admit(run)
        (revision,) = self._one("SELECT revision FROM resources WHERE resource_id=?", resource)
        return segment, resource, status, entries, events, revision

    def _append_entry(self, run: str, entry: Document) -> None:
        segment, resource, _, entries, _, revision = self._segment(run)
        content = self._json(entry)
        self._sql(
            "INSERT INTO session_entries VALUES (?, ?, ?, ?, ?)",
            (segment, entries + 1, entry["id"], content, NOW),
        )
        self._sql(
            "UPDATE session_segments SET entry_count=? WHERE segment_id=?", (entries + 1, segment)
        )
        revision = self._raise_revision(resource, revision)
        self._event(resource, revision, "session.entry_appended", content)

    def _append_events(self, run: str, records: list[Document]) -> None:
        segment, resource, status, _, events, revision = self._segment(run)
        assert status == "recording"
        for record in records:
            events += 1
            assert record["seq"] == events
            assert len(canonical(record)) <= 1_048_576
            self._sql(
                "INSERT INTO session_events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    segment,
                    events,
                    record["type"],
                    record["nodeId"],
                    record["attemptId"],
                    record.get("turnId"),
                    record.get("messageId"),
                    record.get("toolCallId"),
                    self._json(record["payload"]),
                    milliseconds(record["at"]),
                ),
            )
        self._sql("UPDATE session_segments SET event_count=? WHERE segment_id=?", (events, segment))
        revision = self._raise_revision(resource, revision)
        told = self._json({"count": len(records), "lastSeq": events})
        self._event(resource, revision, "session.events_appended", told)

    def _capture(self, run: str, capture: Document) -> None:
        segment, resource, status, _, _, revision = self._segment(run)
        assert status == "recording"
        self._sql(
            "UPDATE session_segments SET status=?, entry_count=?, event_count=?,"
            " failure_hash=NULL, finished_at=? WHERE segment_id=?",
            (capture["status"], capture["entryCount"], capture["eventCount"], NOW, segment),
        )
        revision = self._raise_revision(resource, revision)
        self._event(resource, revision, "session.capture_updated", self._json(capture))


class Took(NamedTuple):
    """Runs per second, and the processor milliseconds of each."""

    per_s: float
    cpu_ms: float


def timed(path: Path, runs: Sequence[str], *, prepared: bool = False) -> Took:
    """Typical runs into a new file; making the workload's values is not counted."""
    took = busy = 0.0
    store = Seed0(path, prepared=prepared)
    for run in runs:
        state: Any = None
        for operation in typical_ops(run):
            state = operation.payload[1] if state is None else state
            started, used = perf_counter(), process_time()
            store.perform(run, state, operation)
            took += perf_counter() - started
            busy += process_time() - used
    store.close()
    return Took(len(runs) / took, busy / len(runs) * 1000)


def canonical(value: Any) -> bytes:
    """JSON with sorted keys."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def identity(kind: str, key: str) -> str:
    """A resource's id."""
    return f"{kind}-{short_hash(kind, key)}"


def segment_id(run: str) -> str:
    """The id of a run's own segment."""
    return f"segment-{short_hash(run, '')}"


def short_hash(first: str, second: str) -> str:
    """40 hex digits of two texts."""
    return sha256(first.encode() + b"\0" + second.encode()).hexdigest()[:40]


def milliseconds(text: str) -> int:
    """A host's time as an integer."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


if __name__ == "__main__":
    print(timed(Path(sys.argv[1]), sys.argv[2:]).per_s)
