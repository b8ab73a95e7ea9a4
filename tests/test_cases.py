"""The table of cases from the field is whole, and each test that it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
CASES = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in (TOP / "docs/cases.md").read_text().splitlines()
    if line.startswith("| O")
]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@cache
def functions(path: Path) -> set[str]:
    """Names of the functions that a file defines."""
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_case_is_there_once() -> None:
    assert [cells[0] for cells in CASES] == [f"O{number}" for number in range(1, 29)]


@pytest.mark.parametrize("cells", CASES, ids=[cells[0] for cells in CASES])
def test_a_case_says_what_happens_and_is_proved(cells: list[str]) -> None:
    _, elsewhere, here, proofs = cells
    assert elsewhere
    assert here
    named = NAMED.findall(proofs)
    assert named
    assert NAMED.sub("", proofs).strip(" ,|") == ""
    for path, name in named:
        assert name.startswith("test_")
        assert name in functions(TOP / path), f"{path} has no {name}"
