"""What a run that is saved whole became is a function of its messages, however they are batched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dialects.documents import RUN, states
from tests.support.world import FileWorld
from writer.store.invariants import violations

Message = tuple[str, dict[str, Any]]


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """Saves with and without a revision, and whatever else happens to a run."""
    found: list[Message] = []
    for revision in range(1, draw(st.integers(2, 9))):
        state = draw(states)
        what = draw(st.integers(0, 9))
        if what == 0:
            found.append(("run.snapshot", {"state": state | {"status": "completed"}}))
        elif what == 1:
            found.append(("run.reset", {}))
        elif what == 2:
            found.append(("run.interrupt", {"reason": "gone"}))
        elif what == 3:
            found.append(("run.resume", {}))
        elif what == 4 and revision > 6:
            found.append(("run.delete", {}))
        elif what < 8:
            seen = draw(st.integers(1, revision))
            body = {"state": state, "expected_revision": seen, "on_conflict": "merge"}
            found.append(("run.snapshot", body))
        else:
            found.append(("run.snapshot", {"state": state}))
    return found


def digests(first: dict[str, Any], history: list[Message]) -> Iterator[Any]:
    for size in (1, 3, 100):
        with TemporaryDirectory() as folder:
            world = FileWorld(Path(folder))
            world.send(RUN, "run.create", {"dialect": "codemation", "state": first})
            for place, (kind, body) in enumerate(history, 1):
                if place % size == 0:
                    world.settle()
                world.send(RUN, kind, body)
            world.settle()
            assert list(violations(world.file._connection)) == []
            yield world.reader.digest()["runs"]
            world.close()


@settings(max_examples=15)
@given(states, histories())
def test_any_batch_size_gives_the_same_digest(
    first: dict[str, Any], history: list[Message]
) -> None:
    one, three, all_ = digests(first, history)
    assert one == three == all_
