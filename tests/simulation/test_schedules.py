"""Seeded schedules of faults over the real core, store, loop and archive, in virtual time.

A failure names its seed: `python -m tests.simulation.run --seed N` replays it exactly. As many of
2,000 schedules run here as fit into a minute; `make soak` runs 100,000.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.simulation.mutants import MUTANTS, SEEDS_MAX
from tests.simulation.run import caught_at, long_run, regressions, run_seeds

SECONDS = 60
SCHEDULES = 2_000
SOAKED = 100_000
SAMPLE = (
    "sequence off by one",
    "a filled gap forgets what lies before it",
    "no catching up",
    "one message too many is trimmed",
    "a quarantined run goes on",
)


@pytest.mark.slow
def test_schedules_that_failed_once() -> None:
    tally = run_seeds(regressions())
    assert not tally.failures, tally.told()


@pytest.mark.slow
def test_schedules(capsys: pytest.CaptureFixture[str]) -> None:
    tally = run_seeds(range(SCHEDULES), time.time() + SECONDS)
    with capsys.disabled():
        print(f"\nsimulation: {tally}")
    assert not tally.failures, tally.told()
    assert tally.schedules > 0


@pytest.mark.soak
def test_many_schedules(tmp_path: Path) -> None:
    assert long_run(range(SOAKED), 2, float("inf"), tmp_path / "progress") == 0


@pytest.mark.slow
def test_a_seed_is_one_schedule_whatever_the_hash_seed() -> None:
    first, second = (trace_of(range(5), hash_seed) for hash_seed in ("1", "2"))
    assert first == second
    assert first.count("calm") == 5


def trace_of(seeds: range, hash_seed: str) -> str:
    """The traces of schedules in a process of their own."""
    script = (
        "from tests.simulation.schedule import run_schedule\n"
        f"for seed in {seeds!r}: print(*run_schedule(seed).trace, sep='\\n')"
    )
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLE)
def test_a_planted_bug_is_caught(name: str) -> None:
    assert caught_at(name, SEEDS_MAX) is not None


@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_every_planted_bug_is_caught(name: str) -> None:
    assert caught_at(name, SEEDS_MAX) is not None
