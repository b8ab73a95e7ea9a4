"""The benchmark of whole-document saves runs, and tells what it is to tell."""

from __future__ import annotations

import re

from tests.bench.seed1 import ROUNDS, report


def test_the_benchmark_runs_small() -> None:
    lines = list(report(sizes=(5, 20), saves=5))
    assert len(lines) == 1 + 2 * len(ROUNDS)
    for line in lines[1:]:
        assert re.search(r"\d", line), line
