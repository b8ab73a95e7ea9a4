"""What is printed for people."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from writer.cli import output
from writer.cli.rejections import parse_since
from writer.errors import Usage

NOW = 1_800_000_000_000


def drawn(shown: object, columns: int) -> list[str]:
    """Lines on a screen of so many columns."""
    screen = Console(file=io.StringIO(), width=columns, markup=False)
    screen.print(shown)
    assert isinstance(screen.file, io.StringIO)
    return [line.rstrip() for line in screen.file.getvalue().splitlines()]


def test_the_first_column_is_never_cut() -> None:
    name = "a-run-id-of-forty-characters-0123456789"
    head, row = drawn(output.table(("run", "title"), [(name, "t" * 80)]), 60)
    assert head.startswith("run")
    assert row.startswith(f"{name}  ttt")
    assert len(row) <= 60


def test_a_table_without_rows_has_its_heads() -> None:
    assert drawn(output.table(("a", "b"), []), 80) == ["a  b"]


@pytest.mark.parametrize(
    "seconds, shown", [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7_200, "2 h"), (200_000, "2 d")]
)
def test_duration(seconds: float, shown: str) -> None:
    assert output.duration(seconds) == shown


@pytest.mark.parametrize(
    "at, shown", [(None, None), (NOW - 5_000, "5 s ago"), (NOW + 180_000, "in 3 min")]
)
def test_age(at: int | None, shown: str | None) -> None:
    assert output.age(at, NOW) == shown


@pytest.mark.parametrize(
    "count, shown", [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 * 2**40, "5120.0 GiB")]
)
def test_size(count: int, shown: str) -> None:
    assert output.size(count) == shown


def test_control_characters_are_shown_and_not_obeyed() -> None:
    assert output.printable("a\x1b[31mb\x00\n") == r"a\x1b[31mb\x00\n"
    assert output.printable("ünïcode ✓") == "ünïcode ✓"


@pytest.mark.parametrize(
    "text, expected",
    [
        ("30s", NOW - 30_000),
        ("2h", NOW - 7_200_000),
        ("2026-01-31T12:00:00Z", 1_769_860_800_000),
        ("2026-01-31T12:00:00", 1_769_860_800_000),
        ("2026-01-31T13:00:00+01:00", 1_769_860_800_000),
    ],
)
def test_since(text: str, expected: int) -> None:
    assert parse_since(text, NOW) == expected


@pytest.mark.parametrize("text", ["", "soon", "5", "-1h", "2026-13-01"])
def test_a_since_that_is_none(text: str) -> None:
    with pytest.raises(Usage):
        parse_since(text, NOW)
