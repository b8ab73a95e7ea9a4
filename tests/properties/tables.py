"""A partition file as plain values, so that two of them can be compared.

What a file numbers for itself is left out: rowids, and `run_key`, for which the run's id stands.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw

Tables = dict[str, list[tuple[Any, ...]]]

OWN_NUMBERS = {
    "run_key",
    "event_seq",
    "part_seq",
    "update_seq",
    "entry_key",
    "event_key",
    "rejection_seq",
    "act_seq",
}
ABOUT_THE_FILE = {"file", "migrations", "commits", "sqlite_sequence"}


def dump(path: Path) -> Tables:
    """Every table's rows, sorted, by the run's id."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        names = [
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            if name not in ABOUT_THE_FILE
        ]
        return {name: _rows(connection, name) for name in names}
    finally:
        connection.close()


def without(tables: Tables, *names: str) -> Tables:
    """The tables but for some."""
    return {name: rows for name, rows in tables.items() if name not in names}


def _rows(connection: apsw.Connection, table: str) -> list[tuple[Any, ...]]:
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    kept = [column for column in columns if column not in OWN_NUMBERS | {"run_id"}]
    if table == "definitions":
        # Many runs share a definition; when it came depends on which of them is looked at first.
        kept.remove("created_at")
    named = ", ".join(f"t.{column}" for column in kept)
    if "run_key" in columns:
        query = f"SELECT c.run_id, {named} FROM {table} t JOIN cursors c USING (run_key)"
    else:
        query = f"SELECT {named} FROM {table} t"
    return sorted(connection.execute(query).fetchall(), key=repr)
