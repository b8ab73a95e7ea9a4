"""Measure, print a table, keep it: `python -m tests.bench --help`."""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

from rich.console import Console

from tests.bench import figures, table
from tests.bench.machine import busy, machine
from tests.bench.room import Room, Skip
from tests.bench.table import Figure
from writer.collector import look_rarely

RESULTS = Path(__file__).parent / "results"


def names() -> list[str]:
    """Every group of figures."""
    return sorted(module.name for module in pkgutil.iter_modules(figures.__path__))


def module_of(name: str) -> ModuleType:
    """A group by its name."""
    return importlib.import_module(f"{figures.__name__}.{name}")


def measured(name: str, room: Room) -> Iterator[Figure]:
    """The rows of a group; what can not be measured, or went wrong, is a row too."""
    try:
        module = module_of(name)
        if _is_long(module) and not room.long:
            yield table.skipped(name, "takes minutes to build: --long")
        else:
            yield from module.measure(room)
    except Skip as why:
        yield table.skipped(name, str(why))
    except ModuleNotFoundError as missing:
        yield table.skipped(name, f"{missing.name} is not installed: make bench installs it")
    except Exception as error:  # noqa: BLE001 - one group must not take the others with it
        room.console.print_exception()
        yield table.failed(name, error)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=names())
    parser.add_argument("--rounds", type=int, default=3, help="of which the median counts")
    parser.add_argument("--quick", action="store_true", help="see that it works: no figures")
    parser.add_argument("--long", action="store_true", help="also what takes minutes to build")
    parser.add_argument("--json", type=Path, metavar="FILE", help="default: tests/bench/results")
    parser.add_argument("--folder", type=Path, help="where files are written; default: /tmp")
    parser.add_argument("--list", action="store_true", help="name the groups and end")
    parser.add_argument("--profile", metavar="NAME", help="say where the time of a group goes")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """The exit code says whether all was measured, not whether targets were met."""
    asked = arguments(given)
    console = Console(width=None if sys.stdout.isatty() else 180)
    if asked.list:
        for name in names():
            module = module_of(name)
            first = (module.__doc__ or "").partition("\n")[0]
            console.print(f"{name:<12}{' (long)' if _is_long(module) else ''} {first}")
        return 0
    with tempfile.TemporaryDirectory(prefix="sw-bench-", dir=asked.folder) as place:
        wanted_long = asked.long or bool(asked.only)
        room = Room(Path(place), console, asked.rounds, asked.quick, wanted_long)
        if asked.profile:
            for line in module_of(asked.profile).profile(room):
                console.print(line, highlight=False)
            return 0
        return _measure_all(asked, room)


def _is_long(module: ModuleType) -> bool:
    return getattr(module, "LONG", False)


def _measure_all(asked: argparse.Namespace, room: Room) -> int:
    started, load = datetime.now(UTC), busy()
    rows: list[Figure] = []
    for name in asked.only or names():
        room.log(name)
        for figure in measured(name, room):
            room.log(f"{name}: {figure.figure} {table.number(figure.ours)} {figure.unit}")
            rows.append(figure)
    took = (datetime.now(UTC) - started).total_seconds()
    about = {
        "date": started.strftime("%Y-%m-%d %H:%M UTC"),
        "rounds": str(room.rounds),
        "seconds": f"{took:.0f}",
        "load before / after": f"{load} / {busy()}",
        **machine(room.place),
    }
    room.console.print(table.rich_table(rows))
    for row in rows:
        if row.note:
            room.console.print(f"{row.figure}: {row.note}", highlight=False)
    if asked.json or not room.quick:
        keep(asked.json or RESULTS / f"{started:%Y-%m-%d}.json", about, rows)
    return 1 if any(table.verdict(row) == "FAILED" for row in rows) else 0


def keep(path: Path, about: dict[str, str], rows: Sequence[Figure]) -> None:
    """Write the JSON file and, beside it, the same to be read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = {"about": about, "figures": [table.as_json(row) for row in rows]}
    path.write_text(json.dumps(kept, indent=1) + "\n")
    lines = "".join(f"- {name}: {value}\n" for name, value in about.items())
    title = f"# Benchmark of {about['date']}\n\n"
    path.with_suffix(".md").write_text(f"{title}{lines}\n{table.markdown(rows)}")


if __name__ == "__main__":
    # What the program does; so peers in this process have it, too.
    look_rarely()
    sys.exit(main())
