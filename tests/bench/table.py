"""What a benchmark says: one figure a row, each a ratio of two things measured in the same run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import isnan
from statistics import median
from typing import Any, Literal

from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """One row. `ours` and `theirs` are medians in `unit`; `ratio` is what the target is about.

    `met` is None where there is no target, or nothing to hold against it.
    """

    figure: str
    ours: float
    unit: str
    against: str
    theirs: float | None
    ratio: float | None
    target: str | None
    met: bool | None
    note: str = ""


@dataclass(frozen=True)
class Target:
    """A bound for the ratio of a figure, or for our own number."""

    sense: Literal["at least", "at most"]
    bound: float
    of: Literal["ratio", "ours"] = "ratio"

    def met(self, ours: float, ratio: float | None) -> bool | None:
        """Whether it is; None without a number to judge."""
        value = ours if self.of == "ours" else ratio
        if value is None or isnan(value):
            return None
        return value >= self.bound if self.sense == "at least" else value <= self.bound

    def __str__(self) -> str:
        shown = f"{self.bound:,g}"
        return f"{self.sense} {shown}{' x' if self.of == 'ratio' else ''}"


def at_least(bound: float, of: Literal["ratio", "ours"] = "ratio") -> Target:
    """A bound from below."""
    return Target("at least", bound, of)


def at_most(bound: float, of: Literal["ratio", "ours"] = "ratio") -> Target:
    """A bound from above."""
    return Target("at most", bound, of)


def compare(
    name: str,
    ours: Sequence[float],
    unit: str,
    against: str = "",
    theirs: Sequence[float] | None = None,
    *,
    target: Target | None = None,
    less_is_better: bool = False,
    note: str = "",
) -> Figure:
    """A figure out of samples, one a round.

    The ratio is the median of the rounds' own ratios, since both sides of a round saw the same
    machine: ours to theirs, or theirs to ours with `less_is_better`, so that more is better. For a
    growth factor ("800 against 50") leave `less_is_better` alone.
    """
    ratio = None
    if theirs is not None:
        pairs = [(b, a) if less_is_better else (a, b) for a, b in zip(ours, theirs, strict=True)]
        # Processor time comes in ticks: so little as to be none has no ratio.
        ratios = [above / below for above, below in pairs if below]
        ratio = median(ratios) if ratios else None
    middle = median(ours)
    spread = f"spread {spread_percent(ours):.0f} %" if len(ours) > 1 and middle else ""
    if spread and theirs is not None:
        spread += f" / {spread_percent(theirs):.0f} %"
    return Figure(
        figure=name,
        ours=middle,
        unit=unit,
        against=against,
        theirs=None if theirs is None else median(theirs),
        ratio=ratio,
        target=None if target is None else str(target),
        met=None if target is None else target.met(middle, ratio),
        note="; ".join(part for part in (note, spread) if part),
    )


def spread_percent(samples: Sequence[float]) -> float:
    """From the smallest to the largest, in percent of the median."""
    middle = median(samples)
    return (max(samples) - min(samples)) / middle * 100 if middle else 0.0


def skipped(name: str, why: str) -> Figure:
    """A row that says what was not measured."""
    return Figure(name, float("nan"), "", "", None, None, None, None, f"skipped: {why}")


def failed(name: str, error: Exception) -> Figure:
    """A row of what went wrong."""
    why = f"failed: {type(error).__name__}: {error}".partition("\n")[0]
    return Figure(name, float("nan"), "", "", None, None, None, None, why)


def verdict(figure: Figure) -> str:
    """The last word of a row."""
    if figure.note.startswith("failed: "):
        return "FAILED"
    if figure.met is None:
        return "skipped" if isnan(figure.ours) else ""
    return "met" if figure.met else "MISSED"


COLUMNS = ("figure", "ours", "unit", "against", "theirs", "ratio", "target", "verdict", "note")


def cells(figure: Figure) -> tuple[str, ...]:
    """A row's texts, one for each of COLUMNS."""
    return (
        figure.figure,
        number(figure.ours),
        figure.unit,
        figure.against,
        number(figure.theirs),
        "" if figure.ratio is None else f"{number(figure.ratio)} x",
        figure.target or "",
        verdict(figure),
        figure.note,
    )


def number(value: float | None) -> str:
    """Three digits that matter, or nothing."""
    if value is None or isnan(value):
        return ""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def rich_table(figures: Iterable[Figure]) -> Table:
    """For a terminal."""
    table = Table(*COLUMNS[:-1])
    for figure in figures:
        style = {"MISSED": "red", "FAILED": "red", "met": "green", "skipped": "dim"}.get(
            verdict(figure)
        )
        table.add_row(*cells(figure)[:-1], style=style)
    return table


def markdown(figures: Iterable[Figure]) -> str:
    """For a file that people read."""
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    lines += [f"| {' | '.join(cells(figure))} |" for figure in figures]
    return "\n".join(lines) + "\n"


def as_json(figure: Figure) -> dict[str, Any]:
    """Plain values; what was not measured is null."""
    return {
        name: None if isinstance(value, float) and isnan(value) else value
        for name, value in asdict(figure).items()
    }
