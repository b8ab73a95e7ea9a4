"""Two files of one partition, compared run by run: what differs first, and where."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, NamedTuple

import apsw
import orjson

from writer.store.digest import QUERIES as DIGEST
from writer.store.digest import TABLES
from writer.store.queries import named

QUERIES = named("comparison.sql")
SHOWN_CHARS = 300


class Account(NamedTuple):
    """How far a stream is settled, and how its messages ended."""

    incarnation: int
    message_id: str
    applied: int
    duplicates: int
    rejected: int


class Difference(NamedTuple):
    """Where two files first differ about a run: `row` counts from 1 in the table's order.

    `here` and `there` are the columns that differ, as JSON, cut; None where there is no such row.
    """

    run: str
    table: str
    row: int
    here: str | None
    there: str | None


class Archiving(NamedTuple):
    """What a file says of its archive: how far it is applied, and what no archive holds."""

    partition: int
    partitions: int
    archived: str
    unarchived: int
    losses: int
    messages: int
    rules_versions: list[int]


def accounts(connection: apsw.Connection) -> dict[str, Account]:
    """The account of every stream of a file."""
    rows: Iterator[tuple[Any, ...]] = connection.execute(QUERIES["accounts"])
    return {run_id: Account(*rest) for run_id, *rest in rows}


def archiving(connection: apsw.Connection) -> Archiving | None:
    """What a file says of its archive; None for one that nobody has taken yet."""
    rows: list[tuple[Any, ...]] = connection.execute(QUERIES["archiving"]).fetchall()
    if not rows:
        return None
    *told, rules = rows[0]
    return Archiving._make((*told, sorted(orjson.loads(rules))))


def first_difference(
    here: apsw.Connection, there: apsw.Connection, run_id: str
) -> Difference | None:
    """The first row of a run that two files do not share, table by table as its digest goes."""
    for table in TABLES:
        pairs = zip_longest(_rows(here, table, run_id), _rows(there, table, run_id))
        for count, (ours, theirs) in enumerate(pairs, 1):
            if ours != theirs:
                return Difference(run_id, table, count, *_shown(ours, theirs))
    return None


def _rows(connection: apsw.Connection, table: str, run_id: str) -> Iterator[dict[str, Any]]:
    found = connection.execute(QUERIES["run_key"], (run_id,)).fetchone()
    if found is None:
        return
    cursor = connection.cursor()
    for row in cursor.execute(DIGEST[table], found):
        names = [column[0] for column in cursor.get_description()]
        yield dict(zip(names, row, strict=True))


def _shown(
    ours: dict[str, Any] | None, theirs: dict[str, Any] | None
) -> tuple[str | None, str | None]:
    if ours is not None and theirs is not None:
        differ = [name for name, value in ours.items() if theirs[name] != value]
        ours = {name: ours[name] for name in differ}
        theirs = {name: theirs[name] for name in differ}
    return _cut(ours), _cut(theirs)


def _cut(row: dict[str, Any] | None) -> str | None:
    if row is None:
        return None
    text = orjson.dumps(row).decode()
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 1]}…"
