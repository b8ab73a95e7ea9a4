"""Documents of a workflow engine, as small as can be, for tests of the `codemation` dialect."""

from __future__ import annotations

from typing import Any

from tests.support.world import Outcome, StoredWorld, World

WORKFLOW = "wf-1"
STARTED = "2026-08-23T00:00:00.000Z"

Document = dict[str, Any]


def at(seconds: int) -> str:
    """An ISO time, so long after the run's start."""
    return f"2026-08-23T00:{seconds // 60:02d}:{seconds % 60:02d}.000Z"


def workflow_snapshot(nodes: int = 3, **more: Any) -> Document:
    """A workflow with a trigger and nodes behind it."""
    return {
        "id": WORKFLOW,
        "name": "Invoices",
        "nodes": [
            {
                "id": f"node-{number}",
                "kind": "node" if number else "trigger",
                "nodeTokenId": f"token-{number}",
                "configTokenId": f"config-{number}",
                "config": {"retries": 3, "prompt": f"do {number}"},
            }
            for number in range(nodes)
        ],
        "edges": [
            {
                "from": {"nodeId": f"node-{number}", "output": "main"},
                "to": {"nodeId": f"node-{number + 1}", "input": "in"},
            }
            for number in range(nodes - 1)
        ],
        **more,
    }


def items(*values: Any) -> list[Document]:
    """Items of a port."""
    return [{"json": value} for value in values]


def attachment(key: str, run: str = "run-1", **more: Any) -> Document:
    """What an item's `binary` names."""
    return {
        "id": f"id-{key}",
        "storageKey": key,
        "mimeType": "image/png",
        "size": 3,
        "storageDriver": "local",
        "previewKind": "image",
        "createdAt": STARTED,
        "runId": run,
        "workflowId": WORKFLOW,
        "nodeId": "node-a",
        "activationId": "act-1",
        **more,
    }


def new_run(run: str, **more: Any) -> Document:
    """The state of a create."""
    return {"runId": run, "workflowId": WORKFLOW, "startedAt": STARTED, **more}


def node(run: str, name: str, activation: str, status: str = "completed", **more: Any) -> Document:
    """A node snapshot."""
    return {
        "runId": run,
        "workflowId": WORKFLOW,
        "nodeId": name,
        "activationId": activation,
        "status": status,
        "updatedAt": STARTED,
        **more,
    }


def call(
    run: str, name: str, slot: str = "llm", status: str = "completed", **more: Any
) -> Document:
    """A connection invocation."""
    return {
        "invocationId": name,
        "runId": run,
        "workflowId": WORKFLOW,
        "connectionNodeId": slot,
        "parentAgentNodeId": "agent",
        "parentAgentActivationId": "act-agent",
        "status": status,
        "updatedAt": STARTED,
        **more,
    }


def pending(run: str, name: str, activation: str, batch: str = "batch_1", **more: Any) -> Document:
    """The activation that is under way."""
    return {
        "runId": run,
        "activationId": activation,
        "workflowId": WORKFLOW,
        "nodeId": name,
        "itemsIn": 1,
        "inputsByPort": {"in": items({"n": 1})},
        "receiptId": f"receipt-{activation}",
        "batchId": batch,
        "enqueuedAt": STARTED,
        **more,
    }


class Engine:
    """A workflow engine as it drives its store: load the whole, change a little, save the whole."""

    def __init__(self, world: StoredWorld, run: str = "run-1") -> None:
        self.world = world
        self.run = run

    def create(self, **more: Any) -> Outcome:
        """Create the run."""
        return self.world.must(self.run, "run.create", created(self.run, **more))

    def load(self) -> Document:
        """The run as it stands."""
        state = self.world.reader.load(self.run)
        assert isinstance(state, dict)
        return state

    def save(self, state: Document, **how: Any) -> Outcome:
        """Save a document that was loaded, with its revision: merged, if it is stale."""
        body = {"state": state, "expected_revision": state["revision"], "on_conflict": "merge"}
        return self.world.apply(self.run, "run.snapshot", body, **how)

    def replace(self, state: Document) -> Outcome:
        """Save without a revision."""
        return self.world.apply(self.run, "run.snapshot", {"state": state})

    def change(self, **members: Any) -> Document:
        """Load, change, save; returns what is loaded then."""
        outcome = self.save(self.load() | members)
        assert outcome.kind == "applied", outcome
        return self.load()


def created(run: str, **more: Any) -> Document:
    """The body of a create, its state with more members."""
    return {"dialect": "codemation", "state": new_run(run, **more)}


def create_in(world: World, run: str = "run-1", **more: Any) -> Outcome:
    """Create a run in any world."""
    return world.must(run, "run.create", created(run, **more))
