"""Which runs have outlived their retention, which may go, and which were abandoned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import orjson

from writer.dialects import DIALECTS
from writer.store.queries import named
from writer.store.reader.files import Files, OpenFile
from writer.store.reader.query import Record, check_limit, each

QUERIES = named("retention.sql")
PARKED = orjson.dumps(
    [
        f"{dialect.name} {status}"
        for dialect in DIALECTS.values()
        for status in sorted({"queued", *dialect.parked})
    ]
).decode()
PAGE = 500
"""Due runs that are looked at in one step: those that something keeps are passed over."""


def prune_candidates(
    files: Files, now: int, default_seconds: int | None, limit: int, kept: list[Record] | None
) -> list[Record]:
    """The keys are described at `StateReader.prune_candidates`."""
    check_limit(limit)
    found: list[Record] = []
    for _, file in files.all():
        found += _of_file(files, file, now, default_seconds, limit, kept)
    found.sort(key=lambda run: (run["finished_at"], run["run_id"]))
    return found[:limit]


def _of_file(
    files: Files,
    file: OpenFile,
    now: int,
    default_seconds: int | None,
    limit: int,
    kept: list[Record] | None,
) -> list[Record]:
    found: list[Record] = []
    for query, bindings in _queries(now, default_seconds):
        wanted = limit
        for due, causes in _pages(file, query, bindings, now):
            waiting = [run["run_id"] for run in due if run["run_id"] not in causes]
            live = with_live_descendants(waiting, lambda parents: _children(files, parents))
            for run in due:
                name = run["run_id"]
                cause = "child_live" if name in live else causes.get(name)
                if cause is None:
                    found.append(run)
                    wanted -= 1
                elif kept is not None:
                    kept.append({**run, "kept_by": cause})
            if wanted <= 0:
                break
    return found


def _queries(now: int, default_seconds: int | None) -> Iterator[tuple[str, Record]]:
    yield "due_by_own", {"now": now}
    if default_seconds is not None:
        yield "due_by_default", {"before": now - default_seconds * 1000}


def _pages(
    file: OpenFile, query: str, bindings: Record, now: int
) -> Iterator[tuple[list[Record], dict[str, str]]]:
    """Due runs, and why some of them have to stay, as of one moment each page."""
    offset = 0
    while True:
        place = {"limit": PAGE, "offset": offset}
        with file.read() as connection:
            due = list(each(connection, QUERIES[query], bindings | place))
            runs = orjson.dumps([run["run_id"] for run in due]).decode()
            rows = list(each(connection, QUERIES["kept_by"], {"runs": runs, "now": now}))
        yield due, {row["run_id"]: row["cause"] for row in rows if row["cause"] is not None}
        if len(due) < PAGE:
            return
        offset += PAGE


Children = Callable[[Iterable[str]], list[tuple[str, str, bool]]]
"""From parents to (child, parent, whether the child has finished)."""


def with_live_descendants(runs: Iterable[str], children: Children) -> set[str]:
    """Those of the runs below which, at any depth, a run has not finished."""
    roots: dict[str, set[str]] = {run: {run} for run in runs}
    live: set[str] = set()
    level = dict(roots)
    seen: set[tuple[str, str]] = set()
    while level:
        below: dict[str, set[str]] = {}
        for child, parent, finished in children(level):
            above = {root for root in level[parent] if (root, child) not in seen}
            seen.update((root, child) for root in above)
            if not finished:
                live |= above
            elif above:
                below.setdefault(child, set()).update(above)
        level = below
    return live


def _children(files: Files, parents: Iterable[str]) -> list[tuple[str, str, bool]]:
    found: list[tuple[str, str, bool]] = []
    bindings: dict[str, Any] = {"parents": orjson.dumps(list(parents)).decode()}
    for _, file in files.all():
        with file.read() as connection:
            found += [
                (row["run_id"], row["parent_run"], bool(row["terminal"]))
                for row in each(connection, QUERIES["children"], bindings)
            ]
    return found


def silent_runs(files: Files, now: int, silent_ms: int, limit: int) -> list[Record]:
    """The keys are described at `StateReader.silent_runs`."""
    check_limit(limit)
    found: list[Record] = []
    bindings = {"now": now, "before": now - silent_ms, "limit": limit, "parked": PARKED}
    for _, file in files.all():
        with file.read() as connection:
            found += each(connection, QUERIES["silent"], bindings)
    found.sort(key=lambda run: (run["heard_at"], run["run_id"]))
    return found[:limit]
