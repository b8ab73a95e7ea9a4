"""A deleted run leaves its tombstone, its sequences and one event, however it was batched."""

from __future__ import annotations

import pytest

from tests.support.world import DUPLICATE, StoredWorld

RUN = "run-1"
EMPTIED = (
    "runs",
    "leases",
    "state_parts",
    "updates",
    "attempts",
    "effects",
    "segments",
    "session_entries",
    "session_events",
    "rejections",
)


@pytest.mark.parametrize("batches", [1, 2], ids=["in one batch", "in a batch of its own"])
def test_everything_that_hung_on_it_goes(stored: StoredWorld, batches: int) -> None:
    stored.send(RUN, "run.create", {"definition": {"name": "d"}, "state": {"big": "x" * 2_000}})
    stored.send(RUN, "session.bind", {"session": "s"})
    stored.send(RUN, "session.entry", {"entry": {"id": "a"}})
    stored.send(RUN, "run.update", {"type": "note", "key": "k", "data": {}})
    stored.send(RUN, "run.update", {"type": "Bad", "key": "k", "data": {}})
    if batches == 2:
        stored.settle()
    stored.send(RUN, "run.delete", {"reason": "old"})
    stored.settle()

    assert {table: stored.all(table, RUN) for table in EMPTIED} == {table: [] for table in EMPTIED}
    (event,) = stored.all("events", RUN)
    assert (event["revision"], event["type"]) == (4, "run.delete")
    grave = stored.only("tombstones", RUN)
    assert (grave["revision"], grave["events"], grave["segments"]) == (4, 4, 1)
    run = stored.reader.run(RUN)
    assert run is not None
    assert (run["status"], run["deleted"]["reason"]) == (None, "old")
    cursor = run["cursor"]
    assert (cursor["applied"], cursor["rejected"]) == (5, 1)
    assert stored.rows("SELECT * FROM definitions") == []


def test_what_comes_later_is_refused_and_what_is_known_a_duplicate(stored: StoredWorld) -> None:
    stored.must(RUN, "run.create", {})
    stored.must(RUN, "run.delete")
    assert stored.apply(RUN, "run.create", {}).reason == "run_deleted"
    assert stored.apply(RUN, "run.create", {"title": "t"}, seq=1) == DUPLICATE
    assert len(stored.all("rejections", RUN)) == 1


def test_a_definition_stays_while_another_run_has_it(stored: StoredWorld) -> None:
    for run in (RUN, "run-2"):
        stored.must(run, "run.create", {"definition": {"name": "shared"}})
    stored.must(RUN, "run.delete")
    assert len(stored.rows("SELECT * FROM definitions")) == 1
    stored.send("run-3", "run.create", {"definition": {"name": "shared"}})
    stored.send("run-2", "run.delete")
    stored.settle()
    kept = stored.reader.read_run("run-3")
    assert kept is not None
    assert kept["snapshot"] == {"name": "shared"}
