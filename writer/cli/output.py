"""What commands print: JSON for programs, tables and lines for people, notes to stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from writer.clock import iso, now_ms

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

PLAIN_WIDTH = 400
"""Columns of output that goes to a file or a pipe: nothing is cut there."""
GAP = 2
COLOURS = {
    "applied": "green",
    "completed": "green",
    "running": "cyan",
    "duplicate": "yellow",
    "queued": "yellow",
    "waiting": "yellow",
    "pending": "yellow",
    "rejected": "red",
    "failed": "red",
    "quarantined": "red",
    "held": "red",
    "timed_out": "red",
    "halted": "red",
    "suspended": "yellow",
    "cancelled": "magenta",
}


def emit(value: Any) -> None:
    """One JSON value on a line of stdout."""
    import orjson

    sys.stdout.buffer.write(orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE))


def write(text: str) -> None:
    """One line of stdout, as it is."""
    sys.stdout.write(f"{text}\n")


def note(text: str) -> None:
    """One line for people beside the output proper: stderr."""
    sys.stdout.flush()
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def console(*, stderr: bool = False) -> Console:
    """Where rich draws; it interprets nothing in what it is given."""
    from rich.console import Console

    made = Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    if not made.is_terminal:
        made.width = PLAIN_WIDTH
    return made


def draw(*shown: RenderableType) -> None:
    """Print for people."""
    sys.stdout.flush()
    screen = console()
    for each in shown:
        screen.print(each)


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    right: Sequence[str] = (),
    narrow: Sequence[str] = (),
) -> Table:
    """A table without lines. Columns named in `right` hold numbers; where the screen is too narrow
    for all, those named in `narrow` are left. The first one is never cut: it is what people copy.
    """
    from rich.table import Table
    from rich.text import Text

    shown = [[cell(value) for value in row] for row in rows]
    widths = [
        max(len(column), *(len(row[place].plain) for row in shown)) if shown else len(column)
        for place, column in enumerate(columns)
    ]
    places = list(range(len(columns)))
    if narrow and sum(widths) + GAP * len(widths) > console().width:
        places = [place for place in places if columns[place] in narrow]
    made = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for place in places:
        fixed = place == 0 or columns[place] in right
        made.add_column(
            Text(columns[place]),
            justify="right" if columns[place] in right else "left",
            no_wrap=True,
            overflow="ellipsis",
            min_width=widths[place] if fixed else None,
        )
    for row in shown:
        made.add_row(*(row[place] for place in places))
    return made


def facts(rows: Iterable[tuple[str, Any]]) -> Table:
    """Names with their values below each other; what is None is left out."""
    from rich.table import Table

    made = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in rows:
        if value is not None:
            made.add_row(name, cell(value))
    return made


def cell(value: Any) -> Text:
    """A value in a table; statuses and outcomes have their colour."""
    from rich.text import Text

    if value is None:
        return Text("-", style="dim")
    if isinstance(value, int) and not isinstance(value, bool):
        return Text(f"{value:,}")
    text = printable(str(value))
    return Text(text, style=COLOURS.get(text, ""))


def printable(text: str) -> str:
    """Text that a terminal shows as it is: control characters, which hosts may send, escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def document(value: Any) -> RenderableType:
    """A JSON document, indented and coloured."""
    import orjson
    from rich.syntax import Syntax
    from rich.text import Text

    text = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    if not console().is_terminal:
        return Text(text)
    return Syntax(text, "json", background_color="default", word_wrap=True)


def compact(value: Any, chars_max: int = 120) -> str:
    """A JSON document on one line, cut."""
    import orjson

    text = printable(orjson.dumps(value).decode())
    return text if len(text) <= chars_max else f"{text[: chars_max - 1]}…"


def clock(ms: int | None) -> str | None:
    """A time for people: UTC, to the second."""
    if ms is None:
        return None
    return iso(ms).partition(".")[0].replace("T", " ")


def moment(ms: int | None) -> str | None:
    """A time for people: UTC, to the millisecond."""
    return None if ms is None else iso(ms).replace("T", " ").rstrip("Z")


def age(ms: int | None, now: int | None = None) -> str | None:
    """How long ago a time is: `3 s ago`, `in 2 min`."""
    if ms is None:
        return None
    seconds = ((now_ms() if now is None else now) - ms) / 1000
    shown = duration(abs(seconds))
    return f"{shown} ago" if seconds >= 0 else f"in {shown}"


def duration(seconds: float) -> str:
    """A length of time in its largest fitting unit."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def size(count: int | None) -> str | None:
    """Bytes for people."""
    if count is None:
        return None
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"


def counted(count: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
