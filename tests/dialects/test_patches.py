"""A patch leaves exactly what a save of the whole document would have left."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dialects.documents import states
from tests.support.world import FileWorld

TABLES = ("attempts", "work_items", "invocations", "suspensions", "state_parts", "definition_uses")
COLUMNS = ("status", "workflow", "current_node", "state_digest", "definition_digest", "finished_at")

Document = dict[str, Any]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FileWorld]:
    made = FileWorld(tmp_path_factory.mktemp("patches"))
    yield made
    made.close()


def edits(before: Document, after: Document) -> Document:
    """The members of a document, and of the objects in it, that differ."""
    removed: list[list[str]] = []
    values: list[Document] = []

    def compare(path: list[str], old: Document, new: Document) -> None:
        removed.extend([*path, key] for key in old if key not in new)
        for key, value in new.items():
            was = old.get(key)
            if isinstance(was, dict) and isinstance(value, dict):
                compare([*path, key], was, value)
            elif key not in old or exact(was) != exact(value):
                values.append({"path": [*path, key], "value": value})

    compare([], before, after)
    return {"remove": removed, "set": values}


def exact(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def stored(world: FileWorld, run: str) -> Document:
    """All that a state makes of a run, but for the run's names."""
    head = world.only("runs", run)
    rows = {"runs": [{name: head[name] for name in COLUMNS}]}
    for table in TABLES:
        rows[table] = world.all(table, run)
        for row in rows[table]:
            for name in ("run_id", "run_key", "part_seq"):
                row.pop(name, None)
    return rows


def nameless(state: Document) -> Document:
    """A document that could be any run's."""
    state = {name: value for name, value in state.items() if name != "runId"}
    if state.get("connectionInvocations"):
        state["connectionInvocations"] = [
            {name: value for name, value in each.items() if name != "runId"}
            for each in state["connectionInvocations"]
        ]
    return state


@settings(max_examples=20)
@given(st.lists(states.map(nameless), min_size=2, max_size=5))
def test_a_patched_run_is_the_run_that_was_saved_whole(
    world: FileWorld, documents: list[Document]
) -> None:
    number = len(world.reader.list_runs(limit=10_000).runs)
    whole, patched = f"whole-{number}", f"patched-{number}"
    for run in (whole, patched):
        world.must(run, "run.create", {"dialect": "codemation"})
        world.must(run, "run.snapshot", {"state": documents[0]})
    base = sent = 2
    for before, after in pairwise(documents):
        world.must(whole, "run.snapshot", {"state": after})
        outcome = world.apply(patched, "run.patch", {"base": base, **edits(before, after)})
        sent += 1
        if outcome.reason == "base_changed":
            # Repeats of an invocation were folded: then a host sends the whole.
            world.must(patched, "run.snapshot", {"state": after})
            sent += 1
        else:
            assert outcome.kind == "applied", outcome
        base = sent
        assert exact(world.state(patched)) == exact(world.state(whole))
        assert stored(world, patched) == stored(world, whole)
