"""What is saved is what is loaded: a property of any document, and of any history of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dialects.documents import RUN, states
from tests.support.world import FileWorld
from writer.store.digest import verify_states

Document = dict[str, Any]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FileWorld]:
    made = FileWorld(tmp_path_factory.mktemp("lossless"))
    yield made
    made.close()


def exact(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def expected(state: Document, run: str) -> Document:
    """The document less foreign invocations and repeats, judged apart from what the writer does."""
    calls = state.get("connectionInvocations")
    if not calls:
        return state
    own = [each for each in calls if each.get("runId", run) == run]
    names = list(dict.fromkeys(each["invocationId"] for each in own))
    counted = [_counts([each for each in own if each["invocationId"] == name]) for name in names]
    return {**state, "connectionInvocations": counted}


def _counts(records: list[Document]) -> Document:
    best = records[0]
    for other in records[1:]:
        ended = [each["status"] not in ("pending", "queued", "running") for each in (best, other)]
        if ended[0] != ended[1]:
            best = other if ended[1] else best
        elif not ("updatedAt" in best and "updatedAt" in other) or (
            other["updatedAt"] >= best["updatedAt"]
        ):
            best = other
    return best


def renamed(state: Document, run: str) -> Document:
    """The document as another run's."""
    state = {**state, "runId": run}
    if state.get("connectionInvocations"):
        state["connectionInvocations"] = [
            each | ({"runId": run} if each.get("runId") == RUN else {})
            for each in state["connectionInvocations"]
        ]
    return state


@settings(max_examples=40)
@given(st.data())
def test_every_state_of_a_history_reads_back_as_it_was_saved(
    world: FileWorld, data: st.DataObject
) -> None:
    run = f"run-{len(world.reader.list_runs(limit=10_000).runs)}"
    saved = [renamed(each, run) for each in data.draw(st.lists(states, min_size=2, max_size=4))]
    world.must(run, "run.create", {"dialect": "codemation", "state": saved[0]})
    for state in saved[1:]:
        assert world.apply(run, "run.snapshot", {"state": state}).kind == "applied"
    for revision, state in enumerate(saved[1:], 2):
        shown = world.state(run, revision)
        assert exact(shown) == exact(expected(state, run) | {"revision": revision})
    connection = world.file._connection
    ((key,),) = connection.execute("SELECT run_key FROM cursors WHERE run_id = ?", (run,))
    assert verify_states(connection, key) == []
    _compare_tables(world, run, saved[-1])


def _compare_tables(world: FileWorld, run: str, last: Document) -> None:
    """Rows that were written step by step are those that the last document alone would give."""
    alone = f"{run}-alone"
    state = renamed(last, alone)
    if state.get("connectionInvocations"):
        state["connectionInvocations"] = [
            each | ({"runId": alone} if each.get("runId") == run else {})
            for each in state["connectionInvocations"]
        ]
    world.must(alone, "run.create", {"dialect": "codemation", "state": {"runId": alone}})
    world.must(alone, "run.snapshot", {"state": state})
    for table in ("work_items", "invocations", "suspensions"):
        stored = [_content(world, table, each) for each in (run, alone)]
        assert stored[0] == stored[1], table


def _content(world: FileWorld, table: str, run: str) -> list[Document]:
    """A table without what history decides: where a row stands, and since when."""
    rows = sorted(world.all(table, run), key=lambda row: (row.get("kind"), row["position"]))
    for row in rows:
        for name in ("run_key", "run_id", "revision", "position", "number"):
            row.pop(name, None)
    return rows


@settings(max_examples=40)
@given(states)
def test_the_same_documents_are_kept_in_generic_unchanged(
    world: FileWorld, state: Document
) -> None:
    run = f"run-{len(world.reader.list_runs(limit=10_000).runs)}"
    world.must(run, "run.create", {"state": {}})
    world.must(run, "run.snapshot", {"state": state | {"revision": 7}})
    assert exact(world.state(run)) == exact(state | {"revision": 7})
    for table in ("attempts", "work_items", "invocations", "suspensions"):
        assert world.all(table, run) == []
