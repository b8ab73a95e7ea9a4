"""Runs many schedules: `python -m tests.simulation.run --seeds 0-999`, or replays one: `--seed 7`.

`--progress FILE` lets a long run go on where it was stopped, `--failures N` where one failed.
`--mutant NAME` plants a bug first.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context
from pathlib import Path

CHUNK = 10
TRACE_LINES = 200
ERROR_CHARS = 500
REGRESSIONS = Path(__file__).with_name("regressions.txt")


@dataclass
class Tally:
    """What schedules did together; `failures` holds seeds with what was wrong."""

    schedules: int = 0
    messages: int = 0
    commits: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    failures: dict[int, str] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        """Count another's too."""
        self.schedules += other.schedules
        self.messages += other.messages
        self.commits += other.commits
        self.faults += other.faults
        self.failures |= other.failures

    def __str__(self) -> str:
        faults = sum(count for fault, count in self.faults.items() if fault != "wake")
        return (
            f"{self.schedules} schedules, {self.messages} messages, {self.commits} commits, "
            f"{self.faults['crash']} crashes, {faults} faults in all, {len(self.failures)} failed"
        )

    def to_json(self) -> str:
        """For `of_json`."""
        return json.dumps(vars(self))

    @classmethod
    def of_json(cls, text: str) -> Tally:
        """What `to_json` wrote."""
        told = json.loads(text)
        failures = {int(seed): error for seed, error in told.pop("failures").items()}
        return cls(**told | {"faults": Counter(told["faults"]), "failures": failures})

    def told(self) -> str:
        """Every kind of fault, and every failure."""
        lines = [f"  {count:7d} {fault}" for fault, count in sorted(self.faults.items())]
        lines += [
            f"seed {seed}: {error}\n  replay: python -m tests.simulation.run --seed {seed}"
            for seed, error in sorted(self.failures.items())
        ]
        return "\n".join([str(self), *lines])


@cache
def collect_rarely() -> None:
    """What is imported stays: it need not be looked through for garbage all the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)


def run_seeds(seeds: Sequence[int], ends_at: float = float("inf"), failures_max: int = 1) -> Tally:
    """Run schedules one after the other, up to a time (`time.time`) or a number of failures."""
    from tests.simulation.schedule import run_schedule

    tally = Tally()
    collect_rarely()
    for seed in seeds:
        if time.time() >= ends_at:
            break
        outcome = run_schedule(seed)
        tally.schedules += 1
        tally.messages += outcome.messages
        tally.commits += outcome.commits
        tally.faults += outcome.faults
        if outcome.error is not None:
            tally.failures[seed] = f"{type(outcome.error).__name__}: {outcome.error}"[:ERROR_CHARS]
            if len(tally.failures) == failures_max:
                break
    return tally


def run_parallel(
    seeds: Sequence[int], processes: int, ends_at: float = float("inf"), failures_max: int = 1
) -> Iterator[Tally]:
    """The same in processes of their own; yields the sum over the first so many, again and again.

    What failed is told at once, wherever it stands.
    """
    chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    total, ahead = Tally(), dict[int, Tally]()
    added = 0
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        waiting = iter(enumerate(chunks))
        running = {}
        while True:
            while (
                len(running) <= processes
                and len(total.failures) < failures_max
                and time.time() < ends_at
            ):
                at, chunk = next(waiting, (-1, ()))
                if at < 0:
                    break
                running[pool.submit(run_seeds, chunk, ends_at, failures_max)] = at
            if not running:
                return
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                ahead[running.pop(future)] = future.result()
                total.failures |= future.result().failures
            while added in ahead and ahead[added].schedules == len(chunks[added]):
                total.add(ahead.pop(added))
                added += 1
            yield total


def regressions() -> list[int]:
    """Seeds that failed once: they run first."""
    lines = REGRESSIONS.read_text(encoding="utf-8").splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


def replay(seed: int) -> int:
    """Run one schedule and tell what happened in it."""
    from tests.simulation.schedule import run_schedule

    outcome = run_schedule(seed)
    print("\n".join(outcome.trace[-TRACE_LINES:]))
    print(outcome.fate)
    print(dict(outcome.faults))
    if outcome.error is None:
        print(f"seed {seed}: ok")
        return 0
    traceback.print_exception(outcome.error)
    print(f"seed {seed}: {outcome.error}")
    return 1


def caught_at(mutant: str, seeds: int, timeout_s: float = 600.0) -> int | None:
    """The first seed below `seeds` that catches a planted bug; None if none does."""
    command = [sys.executable, "-m", "tests.simulation.run", "--mutant", mutant]
    ended = subprocess.run(
        [*command, "--seeds", f"0-{seeds - 1}", "--first"],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    if ended.returncode == 0:
        return None
    last = ended.stdout.strip().splitlines()[-1] if ended.stdout.strip() else ""
    if ended.returncode != 1 or not last.startswith("first failure: seed "):
        raise AssertionError(f"mutant {mutant}:\n{ended.stdout}\n{ended.stderr}")
    return int(last.rpartition(" ")[2])


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="replay one schedule and print its trace")
    parser.add_argument("--seeds", default="0-1999", help="first and last seed")
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after these")
    parser.add_argument("--progress", type=Path, help="file that says how far an earlier run got")
    parser.add_argument("--failures", type=int, default=1, help="stop after so many")
    parser.add_argument("--mutant", help="plant this bug first; see mutants.py")
    parser.add_argument("--first", action="store_true", help="one process; say the failing seed")
    options = parser.parse_args()
    if options.mutant is not None:
        from tests.simulation.mutants import plant

        plant(options.mutant)
    if options.seed is not None:
        return replay(options.seed)
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    if options.first:
        tally = run_seeds(seeds)
        if tally.failures:
            print(tally.told())
            print(f"first failure: seed {min(tally.failures)}")
        return 1 if tally.failures else 0
    return long_run(seeds, options.processes, options.seconds, options.progress, options.failures)


def long_run(
    seeds: range, processes: int, seconds: float, progress: Path | None, failures_max: int = 1
) -> int:
    """Run all seeds, the regressions first, and tell every few seconds how far it is."""
    started = told = time.time()
    before = Tally()
    if progress is not None and progress.exists():
        before = Tally.of_json(progress.read_text())
    begin = seeds.start + before.schedules
    before.failures = {seed: error for seed, error in before.failures.items() if seed < begin}
    total = run_seeds(regressions())
    if not total.failures:
        total = before
        left = range(begin, seeds.stop)
        for so_far in run_parallel(left, processes, started + seconds, failures_max):
            total = Tally()
            total.add(before)
            total.add(so_far)
            if progress is not None:
                progress.write_text(total.to_json() + "\n")
            if time.time() - told >= 10:
                told = time.time()
                rate = so_far.schedules / (told - started)
                print(f"{rate:6.1f}/s  {total}", flush=True)
    print(total.told())
    print(f"{time.time() - started:.0f} s from seed {begin}")
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
