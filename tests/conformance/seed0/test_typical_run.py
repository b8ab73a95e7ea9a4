"""A typical run, all 483 operations of it: what is read is what was sent."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from tests.support.workload import Document, capture, command, typical_ops, workflow
from tests.support.world import DUPLICATE, StoredWorld

RUN = "run-1"
STAMPED = ("traceSeq", "updatedAt", "updates")


def own(state: Document) -> Document:
    """A state without what the writer stamps."""
    return {name: value for name, value in state.items() if name not in STAMPED}


def test_a_typical_run_reads_back_equal(stored: StoredWorld) -> None:
    sent: dict[str, list[Any]] = {name: [] for name in ("entry", "events", "update", "snapshot")}
    messages = []
    for op in typical_ops(RUN):
        messages.append(stored.send(RUN, *command(op)))
        if op.name in sent:
            sent[op.name].append(deepcopy(op.payload))
    assert {outcome.kind for outcome in stored.settle()} == {"applied"}

    run = stored.reader.read_run(RUN)
    assert run is not None
    assert own(run["state"]) == own(sent["snapshot"][-1][0])
    assert run["snapshot"] == workflow()
    assert [kept["entry"] for kept in run["sessionEntries"]] == sent["entry"]
    assert run["sessionEvents"] == [event for batch in sent["events"] for event in batch]
    assert run["sessionCapture"] == capture(200, 2_000)
    assert run["sessionIntegrity"] == {"status": "complete", "diagnostics": []}
    last = {update["key"]: update["data"] for _, _, update in sent["update"]}
    assert {update["key"]: update["data"] for update in run["state"]["updates"]} == last
    trace = run["traceEvents"]
    assert [event["seq"] for event in trace] == list(range(1, 83))
    finished = [event["payload"] for event in trace if event["type"] == "node_finished"]
    assert finished == [draft["payload"] for _, draft in sent["snapshot"]]
    snapshots = [event["seq"] for event in trace if event["type"] == "node_finished"]
    for revision, (state, _) in zip(snapshots, sent["snapshot"], strict=True):
        assert own(stored.state(RUN, revision)) == own(state)

    for message in messages:
        stored.resend(message)
    assert set(stored.settle()) == {DUPLICATE}
    assert stored.reader.read_run(RUN) == run
