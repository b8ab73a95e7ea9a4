"""A save writes rows in proportion to what it changed, whatever the document holds beside it."""

# ruff: noqa: N802 - a case is named after its mark
from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine import Engine, call, items, node, pending, workflow_snapshot
from tests.support.world import FileWorld

RUN = "run-1"
TABLES = (
    "state_parts",
    "events",
    "attempts",
    "work_items",
    "invocations",
    "suspensions",
    "definitions",
    "definition_uses",
    "runs",
    "cursors",
    "producers",
)


class Written:
    """Counts the rows that are written, by table: triggers of the test's own connection tell."""

    def __init__(self, world: FileWorld) -> None:
        self._connection = world.file._connection
        self.rows: Counter[str] = Counter()
        self._connection.create_scalar_function("written", self._note, 1)
        for table in TABLES:
            for act in ("INSERT", "UPDATE", "DELETE"):
                self._connection.execute(
                    f"CREATE TEMP TRIGGER {table}_{act} AFTER {act} ON main.{table} "
                    f"BEGIN SELECT written('{table}'); END"
                )

    def _note(self, table: str) -> None:
        self.rows[table] += 1

    def take(self) -> dict[str, int]:
        """What was written since the last time."""
        taken = dict(self.rows)
        self.rows.clear()
        return taken


def document(nodes: int) -> dict[str, Any]:
    """A run with so many nodes, calls and queue entries; each node has 2 KB."""
    names = [f"node-{number}" for number in range(nodes)]
    return {
        "workflowSnapshot": workflow_snapshot(nodes),
        "nodeSnapshotsByNodeId": {name: finished(name) for name in names},
        "outputsByNode": {name: {"main": items("y" * 1_000)} for name in names},
        "queue": [{"nodeId": name, "input": items("z" * 100)} for name in names],
        "connectionInvocations": [call(RUN, f"inv-{name}") for name in names],
    }


def finished(name: str, fill: str = "x") -> dict[str, Any]:
    return node(
        RUN,
        name,
        f"act-{name}",
        inputsByPort={"in": items(fill * 1_000)},
        outputs={"main": items("o" * 1_000)},
    )


@pytest.fixture(params=[20, 100, 400])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    world = FileWorld(tmp_path)
    made = Engine(world)
    made.create()
    made.change(**document(request.param))
    yield made
    world.close()


def test_C1_a_save_that_changes_one_node_writes_rows_of_one_node(engine: Engine) -> None:
    written = Written(engine.world)  # type: ignore[arg-type]
    state = engine.load()
    written.take()
    state["nodeSnapshotsByNodeId"]["node-7"] |= {"status": "failed", "error": {"message": "no"}}
    engine.save(state)
    rows = written.take()
    assert rows["attempts"] == 1
    assert rows["events"] == 1
    # The snapshot's status and its error.
    assert rows["state_parts"] <= 4
    assert "work_items" not in rows
    assert "invocations" not in rows
    assert "definitions" not in rows
    assert sum(rows.values()) <= 12


def test_C1_a_save_that_changes_one_output_writes_that(engine: Engine) -> None:
    written = Written(engine.world)  # type: ignore[arg-type]
    state = engine.load()
    written.take()
    state["nodeSnapshotsByNodeId"]["node-7"]["outputs"] = {"main": items("new" * 300)}
    engine.save(state)
    rows = written.take()
    # It is in the state, and in no other row.
    assert rows["state_parts"] <= 2
    assert set(rows) == {"state_parts", "events", "runs", "cursors", "producers"}
    assert sum(rows.values()) <= 6


def test_C1_a_save_that_takes_from_the_queue_and_calls_writes_rows_of_that(engine: Engine) -> None:
    written = Written(engine.world)  # type: ignore[arg-type]
    state = engine.load()
    written.take()
    state["queue"] = state["queue"][1:]
    state["pending"] = pending(RUN, "node-0", "act-new")
    state["connectionInvocations"] = [*state["connectionInvocations"], call(RUN, "new")]
    engine.save(state)
    rows = written.take()
    # One taken away, one claimed.
    assert rows["work_items"] == 2
    assert rows["invocations"] == 1
    assert rows["state_parts"] <= 12
    assert sum(rows.values()) <= 24


def test_C1_a_save_that_changes_nothing_writes_an_event(engine: Engine) -> None:
    written = Written(engine.world)  # type: ignore[arg-type]
    state = engine.load()
    written.take()
    engine.save(state)
    rows = written.take()
    assert rows["events"] == 1
    assert set(rows) <= {"events", "runs", "cursors", "producers"}
