"""Pruning: what is due goes, what something hangs on stays, and nothing is left behind."""

# ruff: noqa: N802 - a case is named after its mark
from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from producers.contract.keys import Keys
from tests.store.filling import plan_of
from tests.support.engine import Engine, attachment, created, workflow_snapshot
from tests.support.servers import RealServer
from tests.support.wait import poll
from tests.support.world import DaemonWorld, FileWorld, Host
from writer.clock import now_ms
from writer.pruning import ABANDONED, BATCH_RUNS, Pruner
from writer.store.partition import partition_path
from writer.store.reader import engine, retention
from writer.streams.publish import Publisher

HOUR_MS = 3_600_000


def end(world: FileWorld | DaemonWorld, run: str, status: str = "completed", **more: Any) -> None:
    world.must(run, "run.create", created(run, **more))
    engine = Engine(world, run)
    assert engine.save(engine.load() | {"status": status}).kind == "applied"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[FileWorld]:
    made = FileWorld(tmp_path)
    yield made
    made.close()


def due(world: FileWorld, kept: list[dict[str, Any]] | None = None) -> list[str]:
    """Runs that may go a day later, of those that are kept an hour."""
    later = 1_700_000_000_000 + 24 * HOUR_MS
    found = world.reader.prune_candidates(later, default_seconds=3_600, kept=kept)
    return [run["run_id"] for run in found]


def test_without_a_default_only_runs_with_a_policy_of_their_own_go(world: FileWorld) -> None:
    end(world, "own", policySnapshot={"retentionSeconds": 60})
    end(world, "none")
    found = world.reader.prune_candidates(1_700_000_000_000 + HOUR_MS)
    assert [run["run_id"] for run in found] == ["own"]


def test_runs_of_every_dialect_are_kept_as_long_as_they_ask(world: FileWorld) -> None:
    world.must("g", "run.create", {"retention_seconds": 60})
    world.must("g", "run.snapshot", {"state": {"status": "cancelled"}})
    world.create("pi")
    assert due(world) == ["g"]


def test_a_parent_stays_while_a_run_below_it_is_under_way(world: FileWorld) -> None:
    end(world, "top")
    end(world, "middle", parent={"runId": "top"})
    world.must("leaf", "run.create", created("leaf", parent={"runId": "middle"}))
    end(world, "other")
    kept: list[dict[str, Any]] = []
    assert due(world, kept) == ["other"]
    assert [(run["run_id"], run["kept_by"]) for run in kept] == [
        ("top", "child_live"),
        ("middle", "child_live"),
    ]
    engine = Engine(world, "leaf")
    engine.change(status="completed")
    assert due(world) == ["top", "middle", "other", "leaf"]


def test_runs_that_name_each_other_as_parent_are_looked_at_once(world: FileWorld) -> None:
    end(world, "a", parent={"runId": "b"})
    end(world, "b", parent={"runId": "a"})
    assert due(world) == ["a", "b"]


def test_a_held_lease_keeps_a_run_until_it_expires(world: FileWorld) -> None:
    end(world, "run-1")
    world.must("run-1", "lease.claim", Host("h").claim(lease_ms=3_000_000), at=23 * HOUR_MS)
    kept: list[dict[str, Any]] = []
    found = world.reader.prune_candidates(
        1_700_000_000_000 + 23 * HOUR_MS + 1_000, default_seconds=3_600, kept=kept
    )
    assert found == []
    assert [run["kept_by"] for run in kept] == ["lease_held"]
    assert due(world) == ["run-1"]


def test_X17_runs_that_something_keeps_hide_none_that_may_go(world: FileWorld) -> None:
    """However many they are: they are looked at page by page."""
    count = retention.PAGE + 1
    for number in range(count):
        world.send(f"kept-{number}", "run.create", created(f"kept-{number}", status="completed"))
        world.send(f"kept-{number}", "lease.claim", Host("h").claim(lease_ms=3_600_000))
    world.settle()
    end(world, "due")
    kept: list[dict[str, Any]] = []
    found = world.reader.prune_candidates(
        1_700_000_000_000 + 60_000, default_seconds=1, limit=1, kept=kept
    )
    assert [run["run_id"] for run in found] == ["due"]
    assert len(kept) == count


def test_a_pending_effect_keeps_a_run_until_it_is_settled(world: FileWorld) -> None:
    world.must("run-1", "run.create", created("run-1") | {"effects": ["run.settled"]})
    engine = Engine(world)
    engine.change(status="halted")
    assert due(world) == []
    effect = world.only("effects", "run-1")
    settled = {"effect_id": effect["effect_id"], "occurrence": 1, "status": "applied"}
    world.must("run-1", "effect.settle", settled)
    assert due(world) == ["run-1"]


def test_a_suspended_run_parks(world: FileWorld) -> None:
    world.must("run-1", "run.create", created("run-1") | {"effects": ["run.parked"]})
    engine = Engine(world)
    engine.change(status="suspended")
    assert world.only("effects", "run-1")["kind"] == "run.parked"
    assert world.apply("run-1", "run.interrupt").reason == "run_not_running"


@pytest.mark.parametrize("query", ["due_by_own", "due_by_default", "silent", "children", "suite"])
def test_C4_what_retention_asks_has_an_index(world: FileWorld, query: str) -> None:
    text = (retention.QUERIES | engine.QUERIES)[query]
    bindings = {
        "now": 0,
        "before": 0,
        "limit": 1,
        "offset": 0,
        "parents": "[]",
        "suite": "s",
        "parked": "[]",
        "runs": "[]",
    }
    named = {name: value for name, value in bindings.items() if f":{name}" in text}
    plan = plan_of(partition_path(world.data, 0), text, named)
    assert not [step for step in plan if step.startswith("SCAN r") and "INDEX" not in step], plan
    # Whoever is due first is found first: no run is looked at that is not due.
    sorted_ = [step for step in plan if "TEMP B-TREE" in step]
    assert not sorted_ or query in ("silent", "suite"), plan


# --- carried out ------------------------------------------------------------------------------


@pytest.fixture
def running(tmp_path: Path, redis_server: RealServer) -> Iterator[DaemonWorld]:
    made = DaemonWorld(tmp_path, redis_server)
    yield made
    made.close()


def pruner(world: DaemonWorld) -> Pruner:
    return Pruner(world.reader, Publisher(world.client, world.keys, 1))


def test_more_runs_than_one_batch_go_with_all_that_they_leave(running: DaemonWorld) -> None:
    count = BATCH_RUNS + 20
    names = [f"run-{number}" for number in range(count)]
    for name in names:
        body = created(name, workflowSnapshot=workflow_snapshot(), status="completed")
        running.send(name, "run.create", body)
    running.settle()
    found = running.reader.prune_candidates(now_ms(), default_seconds=1, limit=1_000)
    assert len(found) == count
    assert sorted(pruner(running).prune(found).deleted) == sorted(names)

    assert running.rows("SELECT 1 FROM runs") == []
    assert running.rows("SELECT 1 FROM definitions") == []
    assert running.rows("SELECT 1 FROM leases") == []
    assert running.reader.prune_candidates(now_ms(), default_seconds=1) == []
    # The streams are emptied now, and removed by the sweep.
    keys = [Keys("world").run(0, name) for name in names]
    poll(lambda: not any(running.client.xlen(key) for key in keys), message="empty streams")
    running.daemon.sweep_soon(0)
    poll(lambda: not running.client.exists(*keys), message="no streams")


def test_U23_a_prune_asks_for_candidates_and_keys_and_deletes_runs(running: DaemonWorld) -> None:
    """As a timer does it: without loading a run, the files after the runs that named them."""
    for name, status in (("due", "completed"), ("at-work", "running")):
        file = {"json": attachment(f"file-of-{name}", name)}
        outputs = {"a": {"main": [file]}}
        running.must(name, "run.create", created(name, status=status, outputsByNode=outputs))
    found = running.reader.prune_candidates(now_ms(), default_seconds=1)
    keys = {run["run_id"]: running.reader.binary_storage_keys(run["run_id"]) for run in found}
    assert keys == {"due": ["file-of-due"]}
    assert pruner(running).prune(found).deleted == ["due"]
    assert running.reader.binary_storage_keys("due") == []
    assert running.reader.binary_storage_keys("at-work") == ["file-of-at-work"]


def test_a_run_that_was_taken_up_again_since_is_left_alone(running: DaemonWorld) -> None:
    for run in ("reset", "claimed", "due"):
        running.must(run, "run.create", created(run, status="completed"))
    found = running.reader.prune_candidates(now_ms(), default_seconds=1)
    running.must("reset", "run.reset", at=running.time() + 1)
    # A host's claim, in time as Redis has it.
    host = Host("h")
    moment = now_ms() - 1_700_000_000_000
    running.must("claimed", "lease.claim", host.claim(lease_ms=3_600_000), at=moment)

    pruned = pruner(running).prune(found)
    assert pruned.deleted == ["due"]
    assert pruned.left == {"reset": "changed", "claimed": "lease_held"}
    # What was claimed for nothing is free again.
    lease = running.only("leases", "reset")
    assert lease["owner_id"] == "retention"
    assert lease["released_at"] is not None


def test_an_abandoned_run_is_interrupted_and_later_pruned(running: DaemonWorld) -> None:
    running.must("run-1", "run.create", created("run-1"))
    silent = running.reader.silent_runs(now_ms(), HOUR_MS)
    assert [run["run_id"] for run in silent] == ["run-1"]
    assert pruner(running).prune([], silent).interrupted == ["run-1"]
    (run,) = running.reader.list_runs().runs
    assert (run["status"], run["error"]) == ("failed", ABANDONED)
    assert run["lease_owner_id"] is None
    assert running.reader.silent_runs(now_ms(), HOUR_MS) == []
    found = running.reader.prune_candidates(now_ms() + 10_000, default_seconds=1)
    assert pruner(running).prune(found).deleted == ["run-1"]


def test_space_goes_back_to_the_file_system(running: DaemonWorld) -> None:
    for number in range(12):
        state = {"status": "completed", "outputsByNode": {"a": {"main": [os.urandom(2**19).hex()]}}}
        running.send(f"run-{number}", "run.create", created(f"run-{number}", **state))
        running.settle()
    path = partition_path(running.data, 0)
    poll(lambda: path.stat().st_size > 10 * 2**20, message="the file to grow")
    found = running.reader.prune_candidates(now_ms(), default_seconds=1)
    assert len(pruner(running).prune(found).deleted) == 12
    poll(lambda: path.stat().st_size < 2 * 2**20, message="the file to shrink")
