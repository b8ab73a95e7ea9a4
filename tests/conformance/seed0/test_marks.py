"""`docs/conformance.md` and the tests say the same of which marks there are."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent
PAGE = Path(__file__).parents[3] / "docs" / "conformance.md"

MARKS = [
    *(f"S{n}" for n in range(1, 7)),
    *(f"B{n}" for n in (1, 2, 3, 4, 5, "5b", 6, 7, 8, 9, 10)),
    *(f"D{n}" for n in range(1, 8)),
    *(f"L{n}" for n in range(1, 7)),
    *(f"Q{n}" for n in range(1, 12)),
    "F1",
    *(f"R{n}" for n in range(1, 6)),
    *(f"U{n}" for n in range(1, 4)),
    *(f"C{n}" for n in range(1, 8)),
    *(f"P{n}" for n in range(1, 4)),
]
FLAWS = "abcdefghijklmnopq"

ROW = re.compile(
    r"^\| ([A-Z][0-9A-Za-z, ]*) \| (kept|adapted|does not apply) \| .+ \|$", re.MULTILINE
)
FLAW = re.compile(r"^\| ([a-q]) \| .+ \|$", re.MULTILINE)
TEST = re.compile(r"^def test_(flaw_[a-q]|[A-Z]\d+b?)_", re.MULTILINE)

# Tested elsewhere, or with the code that they are about.
WITHOUT_A_TEST_HERE = {"D2", "D4", "P1", "P2"}


def listed() -> dict[str, str]:
    """What the page says of each mark."""
    found = [
        (mark, word)
        for marks, word in ROW.findall(PAGE.read_text(encoding="utf-8"))
        for mark in marks.split(", ")
    ]
    assert len(found) == len(dict(found)), "a mark is listed twice"
    return dict(found)


def with_a_test() -> set[str]:
    """Marks that have a test."""
    return {
        mark
        for path in FOLDER.glob("test_*.py")
        for mark in TEST.findall(path.read_text(encoding="utf-8"))
    }


def test_every_mark_is_listed() -> None:
    assert listed().keys() == set(MARKS)


def test_every_flaw_is_listed() -> None:
    found = FLAW.findall(PAGE.read_text(encoding="utf-8"))
    assert found == list(FLAWS)


def test_what_is_kept_or_adapted_has_a_test_and_nothing_else_has() -> None:
    applies = {mark for mark, word in listed().items() if word != "does not apply"}
    expected = (applies - WITHOUT_A_TEST_HERE) | {f"flaw_{mark}" for mark in FLAWS}
    assert with_a_test() == expected
