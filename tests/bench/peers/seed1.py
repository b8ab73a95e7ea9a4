"""A run repository of seed 1's shape: each save writes all rows of the run in one transaction.

Statement for statement what such a store does: work items are deleted and inserted, every node's
row is written whatever changed, the projection and the workflow's snapshot too, and the revision is
compared last. Kinder than it is to itself: statements are kept (apsw), JSON is made by orjson, and
there is no client library between. WAL and synchronous FULL, where it ships with a rollback
journal. What is not in the documents that we measure (queue, pending, calls, interruptions) is
written as it would be without them.
"""

from __future__ import annotations

from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import apsw
import orjson

Document = dict[str, Any]
PRAGMAS = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "wal_autocheckpoint=1000")
NOW = "2026-08-23T00:00:00.000Z"
TERMINAL = ("completed", "failed")
COLUMNS = (
    "workflow_id",
    "slot_node_id",
    "workflow_node_id",
    "kind",
    "connection_kind",
    "activation_id",
    "batch_id",
    "parent_instance_id",
    "parent_run_id",
    "status",
    "queued_at",
    "started_at",
    "finished_at",
    "updated_at",
    "item_count",
    "output_item_count",
    "successful_item_count",
    "failed_item_count",
    "input_storage_kind",
    "output_storage_kind",
    "input_json",
    "output_json",
    "error_json",
    "used_pinned_output",
    "child_run_id",
)
"""Of an instance, those that each save writes."""
UPDATE = (
    f"UPDATE ExecutionInstance SET {', '.join(f'{name}=?' for name in COLUMNS)} WHERE instance_id=?"
)
INSERT = (
    f"INSERT INTO ExecutionInstance ({', '.join(COLUMNS)}, run_id, run_index, instance_id)"
    f" VALUES ({', '.join('?' * (len(COLUMNS) + 3))})"
)


class Seed1:
    """The repository. Its caller holds the document and tracks the revision."""

    def __init__(self, path: Path) -> None:
        self._connection = apsw.Connection(str(path))
        for pragma in (*PRAGMAS, "busy_timeout=5000"):
            self._connection.execute(f"PRAGMA {pragma}").fetchall()
        tables = Path(__file__).with_name("seed1_tables.sql").read_text()
        self._connection.execute(tables).fetchall()
        self._sql = self._connection.execute
        self._ids = count(1)

    def close(self) -> None:
        """Close the file: its WAL goes into it."""
        self._connection.close()

    def create(self, run: str, state: Document) -> None:
        """A run at revision 0."""
        self._sql(
            "INSERT INTO Run (run_id, workflow_id, started_at, updated_at, status, revision,"
            " outputs_by_node_json) VALUES (?, ?, ?, ?, 'running', 0, '{}')",
            (run, state["workflowId"], state["startedAt"], NOW),
        )

    def save(self, run: str, state: Document, revision: int) -> None:
        """The whole document over `revision`, which is the one before."""
        self._sql("BEGIN IMMEDIATE")
        workflow = state["workflowId"]
        snapshot = _json(state.get("workflowSnapshot"))
        named = None if snapshot is None else self._snapshot(workflow, snapshot)
        self._sql("DELETE FROM RunWorkItem WHERE run_id=?", (run,))
        known: dict[str, int] = {}
        newest: dict[str, int] = {}
        for instance, slot, index in self._sql(
            "SELECT instance_id, slot_node_id, run_index FROM ExecutionInstance WHERE run_id=?",
            (run,),
        ):
            known[instance] = index
            newest[slot] = max(newest.get(slot, 0), index)
        slots: Document = {}
        for node, each in state["nodeSnapshotsByNodeId"].items():
            instance = f"{run}:node:{node}:{each['activationId']}"
            values = _instance(workflow, node, each)
            if instance in known:
                self._sql(UPDATE, (*values, instance))
            else:
                newest[node] = newest.get(node, 0) + 1
                self._sql(INSERT, (*values, run, newest[node], instance))
            slots[node] = _slot(instance, each["status"])
        self._sql(
            "INSERT INTO RunSlotProjection VALUES (?, ?, ?, ?, ?) ON CONFLICT (run_id) DO UPDATE"
            " SET workflow_id=excluded.workflow_id, revision=excluded.revision,"
            " updated_at=excluded.updated_at, slot_states_json=excluded.slot_states_json",
            (run, workflow, revision + 1, NOW, _json({"slotStatesByNodeId": slots})),
        )
        self._put_run(run, state, revision, snapshot, named)
        self._sql("COMMIT")

    def _put_run(
        self, run: str, state: Document, revision: int, snapshot: str | None, named: str | None
    ) -> None:
        nodes = state["nodeSnapshotsByNodeId"]
        outputs = {
            node: ports for node, ports in state["outputsByNode"].items() if node not in nodes
        }
        self._sql(
            "UPDATE Run SET workflow_id=?, started_at=?, status=?, finished_at=?, updated_at=?,"
            " revision=?, parent_json=?, execution_options_json=?, control_json=?,"
            " workflow_snapshot_json=?, workflow_snapshot_id=?, mutable_state_json=?,"
            " policy_snapshot_json=?, engine_counters_json=?, hitl_state_json=NULL,"
            " outputs_by_node_json=? WHERE run_id=? AND revision=?",
            (
                state["workflowId"],
                state["startedAt"],
                state["status"],
                state.get("finishedAt"),
                NOW,
                revision + 1,
                _json(state.get("parent")),
                _json(state.get("executionOptions")),
                _json(state.get("control")),
                snapshot,
                named,
                _json(state.get("mutableState")),
                _json(state.get("policySnapshot")),
                _json(state.get("engineCounters")),
                _json(outputs),
                run,
                revision,
            ),
        )
        assert self._connection.changes() == 1

    def _snapshot(self, workflow: str, text: str) -> str:
        digest = sha256(text.encode()).hexdigest()
        found = self._sql(
            "SELECT id FROM WorkflowSnapshot WHERE workflow_id=? AND snapshot_hash=?",
            (workflow, digest),
        ).fetchone()
        if found is not None:
            return str(found[0])
        made = f"{next(self._ids):036}"
        self._sql(
            "INSERT INTO WorkflowSnapshot VALUES (?, ?, ?, ?, ?)",
            (made, workflow, digest, text, NOW),
        )
        return made


def _instance(workflow: str, node: str, snapshot: Document) -> tuple[Any, ...]:
    """The values of COLUMNS."""
    inputs, outputs = snapshot.get("inputsByPort"), snapshot.get("outputs")
    items = _items(inputs)
    made = None if outputs is None else _items(outputs)
    return (
        workflow,
        node,
        node,
        "workflowNodeActivation",
        None,
        snapshot["activationId"],
        "batch_1",
        None,
        None,
        snapshot["status"],
        snapshot.get("queuedAt"),
        snapshot.get("startedAt"),
        snapshot.get("finishedAt"),
        snapshot["updatedAt"],
        items or made or 0,
        made,
        None,
        items if snapshot["status"] == "failed" else None,
        "inline",
        "inline",
        _json(inputs),
        _json(outputs),
        _json(snapshot.get("error")),
        snapshot.get("usedPinnedOutput"),
        snapshot.get("childRunId"),
    )


def _slot(instance: str, status: str) -> Document:
    ended = status in TERMINAL
    return {
        "latestInstanceId": instance,
        "latestStatus": status,
        **({"latestTerminalInstanceId": instance} if ended else {}),
        "invocationCount": 0,
        "runCount": 1 if ended else 0,
    }


def _items(ports: Document | None) -> int:
    return sum(len(items) for items in (ports or {}).values())


def _json(value: Any) -> str | None:
    return orjson.dumps(value).decode() if value is not None else None
