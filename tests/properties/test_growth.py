"""Linear cost: what is stored grows with what changed, and every revision reads back equal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import orjson
import pytest

from tests.support.workload import base_state, entry, event_draft, growth_states
from tests.support.world import FileWorld
from writer.store.partition import partition_path

RUN = "run-1"
BATCH = 100
STAMPED = ("traceSeq", "updatedAt", "updates")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[FileWorld]:
    world = FileWorld(tmp_path)
    yield world
    world.close()


def canonical(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def kept(state: dict[str, Any]) -> bytes:
    """A state's bytes without what the writer stamps."""
    return canonical({name: value for name, value in state.items() if name not in STAMPED})


def settle_every(world: FileWorld, number: int) -> None:
    if number % BATCH == BATCH - 1:
        assert {outcome.kind for outcome in world.settle()} == {"applied"}


def stored_bytes(world: FileWorld) -> int:
    """The size of the file with all of the WAL in it."""
    path = partition_path(world.data, 0)
    connection = apsw.Connection(str(path))
    # A connection that has read nothing does not know of the WAL.
    connection.pragma("schema_version")
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    connection.close()
    return path.stat().st_size


@pytest.mark.slow
def test_800_steps_are_stored_in_at_most_4_times_the_final_state(world: FileWorld) -> None:
    world.create(RUN)
    for number, (state, draft) in enumerate(growth_states(RUN, 800)):
        world.send(RUN, "run.snapshot", {"state": state, "event": event_draft(draft)})
        settle_every(world, number)

    assert stored_bytes(world) <= 4 * len(canonical(state))
    for revision, (state, _) in enumerate(growth_states(RUN, 800), 2):
        read = world.state(RUN, revision)
        assert read["traceSeq"] == revision
        assert kept(read) == kept(state)
    # The event repeats its step's output, which is stored once and read back whole.
    for event, (_, draft) in zip(
        world.reader.trace(RUN, after=1), growth_states(RUN, 800), strict=True
    ):
        assert event["payload"] == draft["payload"]


def test_a_window_of_100_messages_is_stored_in_at_most_3_times_all_seen(world: FileWorld) -> None:
    messages = [entry("m-", number) for number in range(600)]
    seen = len(canonical(messages))
    world.create(RUN)
    for number in range(500):
        state = base_state(RUN) | {"messages": messages[number : number + 100]}
        world.send(RUN, "run.snapshot", {"state": state})
        settle_every(world, number)

    assert stored_bytes(world) <= 3 * seen
    for number in range(500):
        read = world.state(RUN, number + 2)
        assert canonical(read["messages"]) == canonical(messages[number : number + 100])


def test_an_equal_snapshot_stores_its_event_only(world: FileWorld) -> None:
    state = base_state(RUN) | {"messages": [entry("m-", number) for number in range(100)]}
    world.create(RUN, state=state)
    before = stored_bytes(world)
    for number in range(BATCH):
        world.send(RUN, "run.snapshot", {"state": state})
        settle_every(world, number)
    assert stored_bytes(world) - before < 100 * 1_000
    assert {row["revision"] for row in world.all("state_parts", RUN)} == {1}
