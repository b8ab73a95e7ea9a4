"""Rows of the named queries in `read.sql`, as dicts by column name, in pages of bounded size."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import closing
from typing import Any

import apsw
import orjson

from writer.errors import Usage
from writer.store.commit import QUERIES as COMMIT
from writer.store.partition import Identity
from writer.store.queries import named

QUERIES = named("read.sql")
ROWS_MAX = 10_000
"""The highest `limit` of any list."""
PAGE_BYTES = 16 * 1024 * 1024
"""A page of documents ends after the row that passes this, so its memory has a bound."""

Record = dict[str, Any]


def one(connection: apsw.Connection, query: str, **bindings: Any) -> tuple[Any, ...] | None:
    """The only row, or None."""
    rows = connection.execute(QUERIES[query], bindings).fetchall()
    return rows[0] if rows else None


def identity_of(connection: apsw.Connection) -> Identity | None:
    """What a file says of itself; None while its writer is still about to make it."""
    rows: list[tuple[Any, ...]] = connection.execute(COMMIT["identity"]).fetchall()
    return Identity(*rows[0]) if rows else None


def records(connection: apsw.Connection, query: str, **bindings: Any) -> list[Record]:
    """All rows of a query that is bounded by itself."""
    with closing(each(connection, QUERIES[query], bindings)) as rows:
        return list(rows)


def page(connection: apsw.Connection, query: str, **bindings: Any) -> list[Record]:
    """Rows up to the query's limit, or fewer: it ends early after PAGE_BYTES of texts."""
    found: list[Record] = []
    left = PAGE_BYTES
    with closing(each(connection, QUERIES[query], bindings)) as rows:
        for row in rows:
            found.append(row)
            left -= sum(len(value) for value in row.values() if isinstance(value, str))
            if left < 0:
                break
    return found


def each(
    connection: apsw.Connection, sql: str, bindings: Mapping[str, Any]
) -> Generator[Record, None, None]:
    """Row by row; close it if it is left before its end, or the transaction stays open."""
    names: list[str] = []
    cursor = connection.cursor()
    try:
        for row in cursor.execute(sql, bindings):
            names = names or [column[0] for column in cursor.get_description()]
            yield dict(zip(names, row, strict=True))
    finally:
        cursor.close(True)


def decode(row: Record, *columns: str) -> Record:
    """The row with its JSON columns decoded; SQL NULL is None."""
    for column in columns:
        if row[column] is not None:
            row[column] = orjson.loads(row[column])
    return row


def check_limit(limit: int) -> int:
    """Return a limit from 1 to ROWS_MAX, else raise Usage."""
    if not 1 <= limit <= ROWS_MAX:
        raise Usage(f"limit must be 1 to {ROWS_MAX}, not {limit}", hint="read page by page")
    return limit
