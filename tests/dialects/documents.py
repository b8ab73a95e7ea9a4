"""Random documents of a workflow engine, with fields that nobody has heard of."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.support.engine import STARTED, WORKFLOW
from writer.dialects.codemation import Codemation

RUN = "run-1"
NODES = ("a", "b/c", "d~e", "0", "%2F")
NODE_STATUSES = (
    "pending",
    "queued",
    "running",
    "completed",
    "failed",
    "skipped",
    "hitl-approved",
    "hitl-timeout",
)
OPEN = tuple(sorted(Codemation.statuses - Codemation.terminal))

texts = st.text(st.characters(codec="utf-8"), max_size=6) | st.just("long " * 300)
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | texts
values = st.recursive(
    scalars | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(NODES)
times = st.integers(0, 59).map(lambda second: f"2026-08-23T00:00:{second:02d}.000Z")
ports = st.dictionaries(st.sampled_from(("in", "main", "other")), st.lists(values, max_size=3))


def record(required: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[Any]:
    """An object with these members, some of those, and one that is in no contract."""
    optional = {**optional, "unheardOf": values}
    return st.fixed_dictionaries(required, optional=optional)


snapshots = record(
    {"status": st.sampled_from(NODE_STATUSES), "updatedAt": times},
    {
        "activationId": st.sampled_from(("act-1", "act-2", "act-3")),
        "startedAt": times | st.none(),
        "inputsByPort": ports,
        "outputs": ports,
        "childRunId": texts | st.none(),
        "error": values,
    },
)
invocations = record(
    {"invocationId": st.sampled_from("klmno"), "status": st.sampled_from(NODE_STATUSES)},
    {
        "runId": st.sampled_from((RUN, RUN, "run-2")),
        "connectionNodeId": names,
        "updatedAt": times,
        "managedInput": values,
        "itemIndex": st.integers(-5, 2**64 - 1) | texts,
        "statusLabel": texts,
    },
)
entries = record(
    {"nodeId": names, "input": st.lists(values, max_size=2)},
    {
        "batchId": st.sampled_from(("b1", "b2")),
        "toInput": texts,
        "collect": record(
            {"expectedInputs": st.lists(st.sampled_from(("in", "other")))}, {"received": ports}
        ),
    },
)
under_way = record(
    {"activationId": st.sampled_from(("act-1", "act-2", "act-3")), "nodeId": names},
    {"batchId": texts, "itemsIn": values, "inputsByPort": ports, "enqueuedAt": times},
)
tasks = record({"taskId": texts}, {"timeoutAt": times | values, "itemIndex": values})
states = record(
    {"runId": st.just(RUN), "status": st.sampled_from(OPEN)},
    {
        "workflowId": st.just(WORKFLOW),
        "startedAt": st.just(STARTED),
        "finishedAt": st.none(),
        "queue": st.lists(entries, max_size=14) | st.none(),
        "pending": under_way | st.none(),
        "nodeSnapshotsByNodeId": st.dictionaries(names, snapshots) | st.none(),
        "outputsByNode": st.dictionaries(names, ports) | st.none(),
        "connectionInvocations": st.lists(invocations, max_size=6) | st.none(),
        "suspension": st.lists(tasks, max_size=3) | st.none(),
        "workflowSnapshot": values | st.dictionaries(texts, values),
        "policySnapshot": values,
        "executionOptions": values,
        "parent": values,
        "engineCounters": values,
        "pendingResume": values,
    },
)
"""States of a run that has not finished."""
