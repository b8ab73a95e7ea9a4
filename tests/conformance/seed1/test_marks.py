"""`docs/conformance.md` and the tests say the same of which marks of the second seed there are."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent
PAGE = Path(__file__).parents[3] / "docs" / "conformance.md"

CASES = [f"U{number}" for number in range(1, 26)]
FLAWS = [
    *(f"X{number}" for number in range(1, 23)),
    *(f"F{number}" for number in range(1, 18)),
    *(f"C{number}" for number in range(1, 8)),
]
CASE = re.compile(r"^\| `(U\d+)` \| (kept|adapted|does not apply) \| .+ \|$", re.MULTILINE)
FLAW = re.compile(r"^\| (`[XFC]\d+`(?:, `[XFC]\d+`)*) \| .+ \|$", re.MULTILINE)
NAME = re.compile(r"^def test_((?:[UXFC]\d+_)+)", re.MULTILINE)

FOLDERS = (FOLDER, FOLDER.parents[1] / "dialects", FOLDER.parents[1] / "retention")
"""Where tests are named after marks of the second seed."""


def page() -> str:
    text = PAGE.read_text(encoding="utf-8")
    return text[text.index("# The second store") :]


def with_a_test() -> set[str]:
    return {
        mark
        for folder in FOLDERS
        for path in folder.glob("test_*.py")
        for marks in NAME.findall(path.read_text(encoding="utf-8"))
        for mark in marks.rstrip("_").split("_")
    }


def test_every_case_is_listed_once() -> None:
    assert [mark for mark, _ in CASE.findall(page())] == CASES


def test_every_flaw_is_listed_once() -> None:
    found = [mark.strip("`") for row in FLAW.findall(page()) for mark in row.split(", ")]
    assert sorted(found) == sorted(FLAWS)


def test_what_is_kept_or_adapted_and_every_flaw_has_a_test() -> None:
    applies = {mark for mark, word in CASE.findall(page()) if word != "does not apply"}
    assert with_a_test() == applies | set(FLAWS)
