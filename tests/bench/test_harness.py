"""Every figure can be measured, and the table says what was."""

from __future__ import annotations

import json
from math import isnan
from pathlib import Path

import pytest
from rich.console import Console

from tests.bench.__main__ import main, measured, names
from tests.bench.peers.seed0 import Seed0
from tests.bench.peers.seed1 import Seed1
from tests.bench.room import Room
from tests.bench.table import Figure, at_least, at_most, compare, skipped, verdict
from tests.bench.workload import typical_ops
from tests.support.servers import require


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.parametrize("name", names())
def test_a_group_can_be_measured(name: str, tmp_path: Path) -> None:
    require("redis")
    rows = list(measured(name, Room(tmp_path, Console(quiet=True), rounds=1, quick=True)))
    assert rows
    for row in rows:
        assert verdict(row) != "FAILED", row.note


@pytest.mark.parametrize(
    "ours, theirs, less_is_better, ratio",
    [
        ([10.0, 30.0, 20.0], [5.0, 10.0, 10.0], False, 2.0),
        ([10.0, 30.0, 20.0], [5.0, 10.0, 10.0], True, 0.5),
    ],
)
def test_a_ratio_is_the_median_of_the_rounds(
    ours: list[float], theirs: list[float], less_is_better: bool, ratio: float
) -> None:
    made = compare("f", ours, "x/s", "peer", theirs, less_is_better=less_is_better)
    assert (made.ours, made.theirs, made.ratio) == (20.0, 10.0, ratio)


def test_so_little_that_it_is_none_has_no_ratio() -> None:
    assert compare("f", [0.0], "ms", "peer", [1.0], less_is_better=True).ratio is None
    assert compare("f", [0.0, 2.0], "ms", "peer", [1.0, 4.0], less_is_better=True).ratio == 2.0
    assert verdict(compare("f", [1.0], "ms", "peer", [0.0], target=at_least(2))) == ""


def test_a_target_is_judged_by_the_ratio_or_by_our_own_number() -> None:
    def made(target: object) -> Figure:
        return compare("f", [20.0], "ms", "peer", [10.0], target=target)  # type: ignore[arg-type]

    assert verdict(made(at_least(2))) == "met"
    assert verdict(made(at_least(3))) == "MISSED"
    assert verdict(made(at_most(1.9))) == "MISSED"
    assert verdict(made(at_most(20, of="ours"))) == "met"
    assert verdict(made(None)) == ""


def test_what_was_not_measured_is_a_row(tmp_path: Path) -> None:
    row = skipped("f", "no compiler")
    assert (verdict(row), row.met) == ("skipped", None)
    assert isnan(row.ours)
    rows = list(measured("no such group", Room(tmp_path, Console(quiet=True))))
    assert [verdict(row) for row in rows] == ["skipped"]


@pytest.mark.server
def test_a_run_is_kept_as_json_and_to_be_read(tmp_path: Path) -> None:
    require("redis")
    kept = tmp_path / "kept.json"
    code = main(["--only", "growth", "--quick", "--rounds", "1", "--json", str(kept)])
    assert code == 0
    known = json.loads(kept.read_text())
    assert {"date", "python", "sqlite", "processor"} <= known["about"].keys()
    assert [row["figure"] for row in known["figures"]]
    assert "| figure |" in kept.with_suffix(".md").read_text()


def test_the_seed_0_peer_keeps_each_revision(tmp_path: Path) -> None:
    store = Seed0(tmp_path / "s.sqlite")
    store.perform_all("run", typical_ops("run"))
    ask = store._connection.execute
    assert ask("SELECT count(*), max(resource_revision) FROM events").fetchone() == (484, 402)
    assert ask("SELECT entry_count, event_count FROM session_segments").fetchone() == (200, 2000)
    assert ask("SELECT status FROM runs").fetchone() == ("completed",)
    assert ask("SELECT count(*) FROM node_attempts").fetchone() == (40,)
    store.close()


def test_the_seed_1_peer_writes_every_row_again(tmp_path: Path) -> None:
    from tests.bench.figures.seed1 import RUN, documents

    store = Seed1(tmp_path / "s.sqlite")
    states = list(documents(5, 3))
    store.create(RUN, states[0])
    before = store._connection.total_changes()
    for revision, state in enumerate(states):
        store.save(RUN, state, revision)
    rows = 5 + 1 + 1
    assert store._connection.total_changes() - before == 3 * rows + 1
    assert store._connection.execute("SELECT revision FROM Run").fetchone() == (3,)
    store.close()
