"""A third dialect, as the page on dialects makes it: few lines, and nothing else has to change."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.world import FileWorld
from writer.core.dialect import Dialect
from writer.dialects import DIALECTS

PAGE = Path(__file__).parents[2] / "docs" / "dialects.md"
RUN = "run-1"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[FileWorld]:
    """A writer that knows it. The wire contract does not, so it stands in for `generic`."""
    (code,) = re.findall(r"^```python toy\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    made: dict[str, Any] = {}
    exec(code, made)
    tickets: Dialect = made["Tickets"]()
    world = FileWorld(tmp_path)
    world.applier.dialects = {**DIALECTS, "generic": tickets}
    yield world
    world.close()


def save(world: FileWorld, state: dict[str, Any], **more: Any) -> Any:
    return world.apply(RUN, "run.snapshot", {"state": state, **more})


def test_the_page_is_short() -> None:
    assert len(PAGE.read_text().splitlines()) < 150


def test_a_toy_dialect_has_its_statuses_rows_and_merge(world: FileWorld) -> None:
    state = {"state": "open", "subject": "It broke", "tasks": ["look", "mend"], "comments": []}
    world.must(RUN, "run.create", {"state": state, "effects": ["run.parked"]})
    rows = world.rows("SELECT node_id FROM v_work_items ORDER BY position")
    assert [row["node_id"] for row in rows] == ["look", "mend"]
    (run,) = world.reader.list_runs().runs
    assert (run["status"], run["title"], run["terminal"]) == ("open", "It broke", 0)

    save(world, state | {"tasks": ["mend"], "comments": [{"id": 1, "text": "a"}]})
    stale = state | {"comments": [{"id": 2, "text": "b"}]}
    assert save(world, stale, expected_revision=1, on_conflict="merge").revision == 3
    merged = world.state(RUN)
    assert [each["id"] for each in merged["comments"]] == [1, 2]
    assert merged["tasks"] == ["mend"]
    assert len(world.all("work_items", RUN)) == 1

    assert save(world, {"state": "no such"}).reason == "state_invalid"
    save(world, merged | {"state": "on_hold"})
    assert world.only("effects", RUN)["kind"] == "run.parked"
    save(world, merged | {"state": "closed"})
    assert save(world, merged).reason == "run_terminal"
    later = 1_700_000_000_000 + 10**8
    found = world.reader.prune_candidates(later, default_seconds=1)
    assert found == []  # An effect is pending.
    (run,) = world.reader.list_runs().runs
    assert (run["status"], run["terminal"]) == ("closed", 1)
