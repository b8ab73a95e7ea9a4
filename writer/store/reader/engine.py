"""What a workflow engine asks of one run: what to do next, and where each node stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import apsw
import orjson

from writer.core.parts import build, document
from writer.dialects.instant import iso
from writer.store.queries import named
from writer.store.reader.query import ROWS_MAX, Record, each, records
from writer.store.reader.states import Head, state_at

QUERIES = named("engine.sql")
DEFAULT_BATCH = "batch_1"
NODES, CALLS = "nodeSnapshotsByNodeId", "connectionInvocations"
ABSENT: Any = object()


def rows_of(connection: apsw.Connection, query: str, **bindings: Any) -> list[Record]:
    """All rows of a query of `engine.sql`."""
    return list(each(connection, QUERIES[query], bindings))


def part_at(connection: apsw.Connection, run_key: int, revision: int, *keys: str) -> Any:
    """A member of a state as of a revision, by the keys that lead there through objects; ABSENT if
    it is not there. Reads nothing of what stands beside it.
    """
    places = [""]
    for key in keys:
        places.append(f"{places[-1]}/{key.replace('~', '~0').replace('/', '~1')}")
    place = places[-1]
    rows = {
        row["pointer"]: row
        for row in rows_of(
            connection,
            "parts_at",
            run_key=run_key,
            revision=revision,
            above=orjson.dumps(places).decode(),
            first=f"{place}/",
            last=f"{place}0",
        )
    }
    for depth, above in enumerate(places):
        row = rows.get(above)
        if row is None:
            return ABSENT
        if row["shape"] == "value":
            return _member(orjson.loads(row["value"]), keys[depth:])
    own = [row for row in rows.values() if row["pointer"].startswith(place)]
    beneath = (
        (row["pointer"][len(place) :], row["shape"], row["value"])
        for row in own
        if row["pointer"] == place or row["pointer"].startswith(f"{place}/")
    )
    return document(build(beneath))


def _member(value: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            return ABSENT
        value = value[key]
    return value


def scheduling_state(connection: apsw.Connection, head: Head) -> Record:
    """`{queue, pending?}` as the state has them."""
    where = (connection, head.run_key, head.revision)
    queue, pending = part_at(*where, "queue"), part_at(*where, "pending")
    found: Record = {"queue": queue if isinstance(queue, list) else []}
    if isinstance(pending, dict):
        found["pending"] = pending
    return found


def run_detail(connection: apsw.Connection, head: Head) -> Record:
    """The keys are described at `StateReader.run_detail`."""
    state = state_at(connection, head, head.revision)
    nodes = _dict(state, NODES)
    attempts = rows_of(connection, "attempts", run_key=head.run_key, limit=ROWS_MAX)
    known = {attempt["attempt_id"] for attempt in attempts}
    instances = [_activation(connection, head, attempt, nodes) for attempt in attempts]
    calls = {
        record["invocationId"]: record
        for record in state.get(CALLS) or []
        if isinstance(record, dict) and isinstance(record.get("invocationId"), str)
    }
    instances += [
        _call(row, calls[row["invocation_id"]], known)
        for row in records(connection, "invocations", run_key=head.run_key, limit=ROWS_MAX)
    ]
    detail: Record = {"runId": head.run_id, "status": head.status}
    for name in ("workflowId", "startedAt", "finishedAt", "workflowSnapshot", "mutableState"):
        if name in state:
            detail[name] = state[name]
    if detail.get("finishedAt") is None and head.finished_at is not None:
        # Every end has a time, also one of which the host names none.
        detail["finishedAt"] = iso(head.finished_at)
    detail["slotStates"] = slot_states(connection, head)
    detail["executionInstances"] = instances
    detail["iterations"] = iterations_of(instances)
    return detail


def slot_states(connection: apsw.Connection, head: Head) -> list[Record]:
    """Where each node stands, by its id."""
    found = []
    for row in rows_of(connection, "slots", run_id=head.run_id):
        shown = {
            "slotNodeId": row["node_id"],
            "latestInstanceId": row["latest_attempt"],
            "latestTerminalInstanceId": row["latest_terminal"],
            "latestRunningInstanceId": row["latest_running"],
            "status": row["status"],
            "invocationCount": row["invocations"],
            "runCount": row["finished"],
        }
        found.append({name: value for name, value in shown.items() if value is not None})
    return found


def _activation(
    connection: apsw.Connection, head: Head, attempt: Record, nodes: Mapping[str, Any]
) -> Record:
    snapshot = _snapshot_of(connection, head, attempt, nodes)
    inputs, outputs = snapshot.get("inputsByPort"), snapshot.get("outputs")
    shown = {
        "instanceId": attempt["attempt_id"],
        "slotNodeId": attempt["node_id"],
        "workflowNodeId": attempt["node_id"],
        "kind": "workflowNodeActivation",
        "runIndex": attempt["number"],
        "batchId": attempt["batch_id"] or DEFAULT_BATCH,
        "activationId": snapshot.get("activationId"),
        "status": attempt["status"],
        **_times(snapshot),
        "itemCount": _items(inputs) or _items(outputs),
        "childRunId": attempt["child_run"],
        "error": snapshot.get("error"),
    }
    return _without_nothing(shown) | _payload(snapshot, "inputsByPort", "outputs")


def _snapshot_of(
    connection: apsw.Connection, head: Head, attempt: Record, nodes: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The node snapshot that last told of an attempt: the present one, or one of the history."""
    now = nodes.get(attempt["node_id"])
    if _tells_of(now, attempt):
        return _dict(nodes, attempt["node_id"])
    # One that was left behind was last seen just before that.
    for revision in (attempt["revision"], attempt["revision"] - 1):
        then = part_at(connection, head.run_key, revision, NODES, attempt["node_id"])
        if _tells_of(then, attempt):
            found: Mapping[str, Any] = then
            return found
    return {}


def _tells_of(snapshot: Any, attempt: Record) -> bool:
    if not isinstance(snapshot, dict):
        return False
    activation = snapshot.get("activationId") or f"na:{attempt['node_id']}"
    return attempt["attempt_id"] in (activation, f"{attempt['node_id']}:{activation}")


def _call(row: Record, record: Mapping[str, Any], attempts: set[str]) -> Record:
    shown = {
        "instanceId": row["invocation_id"],
        "slotNodeId": row["node_id"],
        "workflowNodeId": row["agent_node"] or row["node_id"],
        "parentInstanceId": row["attempt_id"] if row["attempt_id"] in attempts else None,
        "kind": "connectionInvocation",
        "connectionKind": record.get("connectionKind"),
        "runIndex": row["number"],
        "batchId": record.get("batchId") or DEFAULT_BATCH,
        "activationId": row["attempt_id"],
        "status": row["status"],
        "statusLabel": row["status_label"],
        "subjectName": row["subject_name"],
        **_times(record),
        "itemCount": 0,
        "iterationId": row["iteration_id"],
        "itemIndex": row["item_index"],
        "parentInvocationId": row["parent_invocation"],
        "error": record.get("error"),
    }
    return _without_nothing(shown) | _payload(record, "managedInput", "managedOutput")


def _times(record: Mapping[str, Any]) -> Record:
    names = ("queuedAt", "startedAt", "finishedAt", "updatedAt")
    return {name: record[name] for name in names if name in record}


def _payload(record: Mapping[str, Any], taken: str, given: str) -> Record:
    """Input and output; null is one, and not the same as none."""
    names = {"inputJson": taken, "outputJson": given}
    return {shown: record[name] for shown, name in names.items() if name in record}


def iterations_of(instances: list[Record]) -> list[Record]:
    """Invocations by the iteration that they belong to: see `StateReader.run_detail`."""
    groups: dict[str, list[Record]] = {}
    for each_ in instances:
        if each_["kind"] == "connectionInvocation":
            groups.setdefault(_iteration_id(each_), []).append(each_)
    found = [_iteration(name, calls) for name, calls in groups.items()]
    return sorted(found, key=lambda one: (one["itemIndex"], one.get("startedAt", "")))


def _iteration_id(call: Record) -> str:
    named_ = call.get("iterationId")
    if named_ is not None:
        return str(named_)
    return "::".join(
        (
            "legacy",
            call["workflowNodeId"],
            call.get("activationId", ""),
            str(call.get("itemIndex", 0)),
        )
    )


def _iteration(name: str, calls: list[Record]) -> Record:
    first = calls[0]
    statuses = {call["status"] for call in calls}
    status = "running"
    if "failed" in statuses:
        status = "failed"
    elif statuses == {"completed"}:
        status = "completed"
    ordered = sorted(
        calls, key=lambda call: (call.get("startedAt", call.get("queuedAt", "")), call["runIndex"])
    )
    started = [call["startedAt"] for call in calls if "startedAt" in call]
    finished = [call["finishedAt"] for call in calls if "finishedAt" in call]
    shown = {
        "iterationId": name,
        "agentNodeId": first["workflowNodeId"],
        "activationId": first.get("activationId"),
        "itemIndex": first.get("itemIndex", 0),
        "status": status,
        "startedAt": min(started, default=None),
        "finishedAt": max(finished, default=None) if status != "running" else None,
        "invocationIds": [call["instanceId"] for call in ordered],
    }
    return _without_nothing(shown)


def _items(ports: Any) -> int:
    if not isinstance(ports, dict):
        return 0
    return sum(len(items) for items in ports.values() if isinstance(items, list))


def _dict(value: Any, name: str) -> Mapping[str, Any]:
    member = value.get(name)
    return member if isinstance(member, dict) else {}


def _without_nothing(shown: Record) -> Record:
    return {name: value for name, value in shown.items() if value is not None}
