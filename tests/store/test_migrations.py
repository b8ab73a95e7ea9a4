"""The migrations end where `schema.sql` and `views.sql` say, and strange files stay untouched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from writer.errors import FileCorrupt, FileTooNew
from writer.store.database import (
    APPLICATION_ID,
    migrate,
    migrations,
    open_reader,
    open_writer,
)
from writer.store.queries import script

NOW_MS = 1_700_000_000_000


def schema_of(connection: apsw.Connection) -> list[tuple[object, ...]]:
    return connection.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name"
    ).fetchall()


def made(path: Path) -> Path:
    connection = open_writer(path)
    migrate(path, connection, NOW_MS)
    connection.close()
    return path


def test_all_migrations_make_the_schema_and_the_views(tmp_path: Path) -> None:
    whole = apsw.Connection(":memory:")
    whole.execute(script("schema.sql")).fetchall()
    whole.execute(script("views.sql")).fetchall()

    connection = open_writer(tmp_path / "p00.sqlite")
    migrate(tmp_path / "p00.sqlite", connection, NOW_MS)

    assert schema_of(connection) == schema_of(whole)


def test_versions_count_from_one_without_a_hole() -> None:
    assert [each.version for each in migrations()] == list(range(1, len(migrations()) + 1))
    folder = Path(__file__).parents[2] / "writer/store/sql/migrations"
    assert sorted(path.name for path in folder.iterdir()) == [
        f"{each.version:04d}_{each.name}.sql" for each in migrations()
    ]


def test_each_migration_is_recorded_once(tmp_path: Path) -> None:
    path = tmp_path / "p00.sqlite"
    connection = open_writer(path)
    assert migrate(path, connection, NOW_MS) == migrations()
    assert migrate(path, connection, NOW_MS + 1) == []

    recorded = connection.execute("SELECT version, name, applied_at FROM migrations").fetchall()
    assert recorded == [(each.version, each.name, NOW_MS) for each in migrations()]
    assert connection.pragma("application_id") == APPLICATION_ID
    assert connection.pragma("user_version") == migrations()[-1].version


def test_a_migration_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """The SQL of a step and its record are one transaction."""
    path = tmp_path / "p00.sqlite"
    connection = open_writer(path)
    connection.execute("CREATE TABLE leases (in_the_way INTEGER)").fetchall()
    before = schema_of(connection)

    with pytest.raises(apsw.SQLError, match="leases"):
        migrate(path, connection, NOW_MS)

    assert schema_of(connection) == before
    assert connection.pragma("user_version") == 0


def test_every_table_is_strict(tmp_path: Path) -> None:
    connection = apsw.Connection(str(made(tmp_path / "p00.sqlite")))
    loose = connection.execute(
        "SELECT name FROM pragma_table_list "
        "WHERE type = 'table' AND schema = 'main' AND NOT strict AND name NOT LIKE 'sqlite_%'"
    ).fetchall()
    assert loose == []


@pytest.mark.parametrize("opened", [open_reader, open_writer])
def test_a_newer_file_is_refused_untouched(
    tmp_path: Path, opened: Callable[[Path], apsw.Connection]
) -> None:
    path = made(tmp_path / "p00.sqlite")
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", migrations()[-1].version + 1)
    connection.close()
    before = path.read_bytes()

    with pytest.raises(FileTooNew, match="schema version"):
        opened(path)

    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["p00.sqlite"]


@pytest.mark.parametrize("opened", [open_reader, open_writer])
def test_a_file_of_someone_else_is_refused_untouched(
    tmp_path: Path, opened: Callable[[Path], apsw.Connection]
) -> None:
    path = tmp_path / "p00.sqlite"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE theirs (x)").fetchall()
    connection.close()
    before = path.read_bytes()

    with pytest.raises(FileCorrupt, match="not one of statewriter's"):
        opened(path)

    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["p00.sqlite"]


def test_a_file_that_is_no_database_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "p00.sqlite"
    path.write_bytes(b"This is a letter, not a database. " * 100)

    for opened in (open_reader, open_writer):
        with pytest.raises(FileCorrupt):
            opened(path)

    assert path.read_bytes() == b"This is a letter, not a database. " * 100
    assert [each.name for each in tmp_path.iterdir()] == ["p00.sqlite"]


def test_a_newer_version_that_is_only_in_the_wal_is_seen(tmp_path: Path) -> None:
    path = made(tmp_path / "p00.sqlite")
    writer = open_writer(path)
    writer.execute(f"PRAGMA user_version = {migrations()[-1].version + 1}").fetchall()
    try:
        with pytest.raises(FileTooNew):
            open_reader(path)
    finally:
        writer.close()
