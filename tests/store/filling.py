"""Partition files filled as the writer fills them, without Redis, for tests of what is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from producers.contract.commands import Auth
from producers.contract.envelope import encode, seal, token_sha256
from producers.contract.keys import partition_of
from writer.apply import Aggregates, Applier, Message
from writer.core.outcome import Applied, Outcome
from writer.store.database import open_reader
from writer.store.partition import PartitionFile, partition_path

START_MS = 1_000


class Sent(NamedTuple):
    """A message that was applied, and how it ended."""

    id: str
    producer: str
    seq: int
    outcome: Outcome


class Filling:
    """A data folder and its writers. Each message arrives 1 ms after the one before."""

    def __init__(self, data: Path, partitions: int = 1, lineage: str = "first") -> None:
        data.mkdir(parents=True, exist_ok=True)
        self.data = data
        self.partitions = partitions
        self._now = START_MS
        self._seqs: dict[tuple[str, str], int] = {}
        self._appliers: list[Applier] = []
        for partition in range(partitions):
            file = PartitionFile.open(
                partition_path(data, partition),
                partition=partition,
                partitions=partitions,
                lineage=lineage,
                now=START_MS,
                synchronous="NORMAL",
            )
            file.take("test", rules_version=1, now=START_MS)
            self._appliers.append(Applier(file, partition, partitions, Aggregates(file)))

    def message(
        self,
        run: str,
        kind: str,
        body: Mapping[str, Any],
        *,
        producer: str = "p",
        seq: int | None = None,
        auth: Auth | None = None,
        raw: Mapping[bytes, bytes] | None = None,
    ) -> Message:
        """A message that has just arrived; `raw` replaces some of its fields."""
        self._now += 1
        number = self._seqs.get((run, producer), 0) + 1 if seq is None else seq
        self._seqs[run, producer] = max(number, self._seqs.get((run, producer), 0))
        fields = encode(kind, body, producer=producer, seq=number, auth=auth)
        return Message(run, f"{self._now}-0", seal(fields | dict(raw or {})))

    def settle(self, messages: Iterable[Message], partition: int | None = None) -> list[Outcome]:
        """One batch for each partition; outcomes by partition, then by message."""
        outcomes: list[Outcome] = []
        waiting = list(messages)
        for applier in self._appliers:
            batch = [
                message
                for message in waiting
                if applier.partition
                == (partition_of(message.run, self.partitions) if partition is None else partition)
            ]
            if batch:
                settled, _ = applier.apply(batch, now=self._now)
                outcomes += [each.outcome for each in settled]
        return outcomes

    def send(self, run: str, kind: str, body: Mapping[str, Any] | None = None, **how: Any) -> Sent:
        """Settle one message, whatever its end."""
        message = self.message(run, kind, body or {}, **how)
        seq = int(message.fields[b"seq"]) if message.fields[b"seq"].isdigit() else 0
        producer = message.fields[b"producer"].decode()
        return Sent(message.id, producer, seq, self.settle([message])[0])

    def apply(self, run: str, kind: str, body: Mapping[str, Any] | None = None, **how: Any) -> Sent:
        """Settle one message that must be applied."""
        sent = self.send(run, kind, body, **how)
        assert isinstance(sent.outcome, Applied), (kind, sent.outcome)
        return sent

    def path(self, run: str) -> Path:
        """The file of a run."""
        return partition_path(self.data, partition_of(run, self.partitions))

    def edit(self, run: str, statement: str, *bindings: Any) -> None:
        """Damage a run's file behind its writer's back."""
        connection = apsw.Connection(str(self.path(run)))
        connection.execute(statement, bindings).fetchall()
        connection.close()

    def rows(self, run: str, query: str, *bindings: Any) -> list[dict[str, Any]]:
        """Rows of a run's file, as any client of SQLite gets them."""
        return rows_of(self.path(run), query, *bindings)

    def close(self) -> None:
        """Stop all writers."""
        for applier in self._appliers:
            applier.file.close()
        self._appliers.clear()


def rows_of(path: Path, query: str, *bindings: Any) -> list[dict[str, Any]]:
    """Rows of a file as dicts."""
    connection = open_reader(path)
    try:
        cursor = connection.cursor()
        found = []
        for row in cursor.execute(query, bindings):
            names = [column[0] for column in cursor.get_description()]
            found.append(dict(zip(names, row, strict=True)))
        return found
    finally:
        connection.close()


def plan_of(path: Path, query: str, bindings: Any) -> list[str]:
    """How SQLite would go about a query, a line a step."""
    connection = open_reader(path)
    try:
        steps = connection.execute(f"EXPLAIN QUERY PLAN {query}", bindings).fetchall()
        return [str(step[3]) for step in steps]
    finally:
        connection.close()


TOKEN = "open sesame"


def claim(owner: str = "host-1", lease_ms: int = 60_000) -> dict[str, Any]:
    """The body of a claim."""
    return {
        "owner_type": "host",
        "owner_id": owner,
        "token_sha256": token_sha256(TOKEN),
        "lease_ms": lease_ms,
    }


def auth(owner: str = "host-1") -> Auth:
    """The authority that goes with it."""
    return Auth(owner_type="host", owner_id=owner, token=TOKEN)


def pi_state(run: str, **more: Any) -> dict[str, Any]:
    """A state of the pi_workflows dialect."""
    return {"schema": "pi-workflows.run-state.v1", "runId": run, "status": "running", **more}


def binding(run: str, session: str) -> dict[str, Any]:
    """A binding of the pi_workflows dialect."""
    return {
        "schema": "pi-workflows.session-binding.v1",
        "runId": run,
        "piSessionId": session,
    }


def record(seq: int, **more: Any) -> dict[str, Any]:
    """A session event as a host sends it."""
    return {
        "seq": seq,
        "at": "2026-08-23T00:00:00.000Z",
        "type": "assistant_event",
        "payload": {"delta": f"d{seq}"},
        **more,
    }


def pi_run(filling: Filling, run: str) -> None:
    """A run of which every table has a row."""
    definition = {"name": "flow", "startAt": "plan", "nodes": {}, "edges": []}
    filling.apply(
        run,
        "run.create",
        {
            "dialect": "pi_workflows",
            "definition": definition,
            "state": pi_state(run),
            "input": {"n": 1},
            "tags": {"team": "a"},
            "effects": ["run.settled"],
            "parent": {"run": "parent-1"},
        },
    )
    filling.apply(run, "lease.claim", claim())
    mine = {"auth": auth()}
    filling.apply(
        run,
        "run.snapshot",
        {
            "state": pi_state(run, currentNode="plan", currentAttemptId="a1"),
            "event": {
                "type": "node_started",
                "scope": "node",
                "node_id": "plan",
                "attempt_id": "a1",
                "payload": {"why": "first"},
            },
        },
        **mine,
    )
    for done in (1, 2):
        filling.apply(
            run,
            "run.update",
            {
                "type": "progress",
                "key": "tests",
                "data": {
                    "schema": "pi-workflows.progress.v1",
                    "completed": done,
                    "total": 10,
                    "unit": "files",
                },
                "node_id": "plan",
                "attempt_id": "a1",
            },
            **mine,
        )
    filling.apply(
        run, "session.bind", {"session": "s-flat", "binding": binding(run, "s-flat")}, **mine
    )
    filling.apply(
        run,
        "session.bind",
        {"session": "s-b", "capture_key": "capture-b", "binding": binding(run, "s-b")},
        **mine,
    )
    filling.apply(run, "session.entry", {"entry": {"id": "e1", "text": "one\0"}}, **mine)
    filling.apply(run, "session.entry", {"entry": {"text": "no id", "big": 2**53 + 1}}, **mine)
    filling.apply(
        run,
        "session.events",
        {"events": [record(1), record(2, nodeId="plan", attemptId="a1", turnId="t1")]},
        **mine,
    )
    filling.apply(
        run, "session.events", {"events": [record(1)], "capture_key": "capture-b"}, **mine
    )
    filling.apply(
        run,
        "session.capture",
        {"status": "complete", "entry_count": 2, "event_count": 2, "last_event_seq": 2},
        **mine,
    )
    filling.apply(
        run,
        "session.capture",
        {
            "capture_key": "capture-b",
            "status": "failed",
            "failure": {"code": "entry_write_failed", "message": "disk full"},
        },
        **mine,
    )
    filling.send(run, "run.create", {"dialect": "generic"}, producer="q")
    filling.send(run, "run.annotate", {"title": "later"}, producer="q", seq=5)
    step = {"attemptId": "a1", "nodeId": "plan", "outcome": "ok", "output": "x" * 2000}
    filling.apply(
        run,
        "run.snapshot",
        {
            "state": pi_state(run, status="completed", steps=[step]),
            "event": {"type": "run_completed"},
        },
        **mine,
    )
