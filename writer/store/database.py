"""Opening a partition file: settings, migrations, identity, fencing number.

`apsw` brings a current SQLite of its own and opens no hidden transactions. This package is the only
one that imports it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import apsw

from writer import errors
from writer.errors import FileCorrupt, FileTooNew
from writer.store.queries import script

APPLICATION_ID = 0x73776430
"""`swd0`: what makes a SQLite file one of ours."""

PAGE_BYTES = 8192
BUSY_MS = 2_000
"""Longest wait for another process' lock: well under the time that a stop may take."""
CACHE_KB = 16_384
"""Pages in memory; the operating system keeps those that do not fit."""
FILE_MODE = 0o640
WAL_LIMIT_BYTES = 64 * 1024 * 1024
_MIGRATION = re.compile(r"^(\d{4})_([a-z0-9_]+)\.sql$")


class Migration(NamedTuple):
    """One step of the schema: its version, name and SQL script."""

    version: int
    name: str
    sql: str


def migrations() -> list[Migration]:
    """All migrations in the order of their versions."""
    return list(_migrations())


@cache
def _migrations() -> tuple[Migration, ...]:
    found = []
    for file in files("writer.store").joinpath("sql", "migrations").iterdir():
        match = _MIGRATION.match(file.name)
        if match:
            found.append(Migration(int(match[1]), match[2], script(f"migrations/{file.name}")))
    return tuple(sorted(found))


def translated(path: Path) -> AbstractContextManager[None]:
    """SQLite's errors as ours, naming the file."""
    return errors.translated(path.name)


def open_writer(
    path: Path, *, synchronous: str = "FULL", busy_ms: int = BUSY_MS
) -> apsw.Connection:
    """A connection that may write, its schema brought up to date.

    Raises FileTooNew before anything is written, FileCorrupt, StoreUnavailable.
    """
    with translated(path):
        if path.exists() and path.stat().st_size:
            _check_readable(path)
        _make_private(path)
        connection = apsw.Connection(str(path))
        connection.set_busy_timeout(busy_ms)
        for pragma in (
            f"page_size = {PAGE_BYTES}",
            # Before the first page is written, which WAL mode does: later it changes nothing.
            "auto_vacuum = INCREMENTAL",
            "journal_mode = WAL",
            f"synchronous = {synchronous}",
            "foreign_keys = ON",
            f"journal_size_limit = {WAL_LIMIT_BYTES}",
            f"cache_size = -{CACHE_KB}",
            "temp_store = MEMORY",
        ):
            connection.execute(f"PRAGMA {pragma}").fetchall()
        return connection


def _make_private(path: Path) -> None:
    """Create the file before SQLite does, and not for everyone: transcripts are inside.

    Its WAL gets the same mode. A group may read, for dashboards, where the umask lets it. Where it
    can not be created, SQLite says why.
    """
    with suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE))


def open_reader(path: Path) -> apsw.Connection:
    """A connection that can not write. Raises FileTooNew, FileCorrupt, StoreUnavailable."""
    with translated(path):
        _check_readable(path)
        return _open_read_only(path)


def open_resting(path: Path) -> apsw.Connection:
    """A connection to a file of which no WAL is left, in a folder where none can be made.

    It takes no locks and does not notice a writer that comes later: whoever uses it must see for
    himself that `rests` held from before to after each read. Raises as `open_reader`.
    """
    with translated(path):
        _check_readable(path)
        return _open_immutable(path)


def rests(path: Path) -> bool:
    """Whether all of a file's data is in the file itself: nobody writes it, or nothing yet."""
    try:
        return path.with_name(f"{path.name}-wal").stat().st_size == 0
    except FileNotFoundError:
        return True


def _open_read_only(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        connection.set_busy_timeout(BUSY_MS)
        connection.execute("PRAGMA query_only = ON").fetchall()
        # The first read is where a folder in which no WAL can be made shows.
        connection.pragma("schema_version")
    except apsw.Error:
        connection.close()
        raise
    return connection


def _open_immutable(path: Path) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    return apsw.Connection(f"{path.absolute().as_uri()}?immutable=1", flags=flags)


def _check_readable(path: Path) -> None:
    """Look at an existing file without touching it, not even to create a WAL."""
    probe = _open_immutable(path) if rests(path) else _open_read_only(path)
    try:
        _check_identity(path, probe)
    finally:
        probe.close()


def _check_identity(path: Path, connection: apsw.Connection) -> None:
    newest = migrations()[-1].version
    if connection.pragma("application_id") != APPLICATION_ID:
        # Its id again, last: a file whose first migration is just being committed gets all at once.
        tables, version = _tables(connection), connection.pragma("user_version")
        application = connection.pragma("application_id")
        if application == 0 and version == 0 and not tables:
            return
        if application != APPLICATION_ID:
            raise FileCorrupt(
                f"{path.name} is a SQLite file, but not one of statewriter's",
                hint="point --data at another folder",
            )
    version = connection.pragma("user_version")
    if version > newest:
        raise FileTooNew(
            f"{path.name} has schema version {version}; this statewriter knows up to {newest}",
            hint="upgrade statewriter; nothing was written",
        )


def _tables(connection: apsw.Connection) -> bool:
    return bool(connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall())


def migrate(path: Path, connection: apsw.Connection, now: int) -> list[Migration]:
    """Apply what is missing, each migration and its record in one transaction; returns those."""
    with translated(path):
        current = connection.pragma("user_version")
        missing = [migration for migration in migrations() if migration.version > current]
        for migration in missing:
            with transaction(connection):
                connection.execute(migration.sql).fetchall()
                connection.execute(
                    "INSERT INTO migrations VALUES (?, ?, ?)",
                    (migration.version, migration.name, now),
                )
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}").fetchall()
                connection.execute(f"PRAGMA user_version = {migration.version}").fetchall()
        return missing


@contextmanager
def transaction(connection: apsw.Connection) -> Iterator[None]:
    """BEGIN IMMEDIATE ... COMMIT; any exception, also of a kill switch, rolls back."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
