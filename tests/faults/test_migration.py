"""The first start dies at each write, until the schema is there: it is made whole or not at all."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.support import apply_main, checks, migrate_main
from tests.support.processes import memory_folder, processes
from tests.support.tracing import Scripted
from writer.store.database import migrate, migrations, open_writer
from writer.store.partition import partition_path, stored_partitions
from writer.store.queries import script


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose syncs cost nothing."""
    with memory_folder() as made:
        yield made


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.soak)])
def test_a_half_made_file_is_made_anew(folder: Path, step: int) -> None:
    deaths = 0
    with processes(folder) as started:
        scripted = Scripted(started, folder)
        while True:
            data = folder / f"{deaths}"
            data.mkdir()
            fault = f"signal=SIGKILL:when={deaths * step + 1}"
            code, told = scripted.run(data, "pwrite64", fault)
            if told:
                break
            assert code == -signal.SIGKILL
            deaths += 1
            # What a daemon asks first: it must neither fail nor believe a half-made file.
            assert stored_partitions(data) in (None, 1)
            apply_main.apply_all(data, lambda text: None)
            checks.check_data(data)
            assert checks.settled(data) == apply_main.MESSAGES
    assert deaths > 20 // step


def schema_of(connection: apsw.Connection) -> list[tuple[Any, ...]]:
    """All that the schema has."""
    query = "SELECT type, name, sql FROM sqlite_schema ORDER BY type, name"
    return connection.execute(query).fetchall()


def whole_schema() -> list[tuple[Any, ...]]:
    """The schema as it must be once every migration is done."""
    with closing(apsw.Connection(":memory:")) as connection:
        for name in ("schema.sql", "views.sql"):
            connection.execute(script(name)).fetchall()
        return schema_of(connection)


@pytest.mark.slow
@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.soak)])
def test_killed_at_a_statement_a_migration_is_whole_or_absent(folder: Path, step: int) -> None:
    newest, whole = migrations()[-1].version, whole_schema()
    deaths = 0
    with processes(folder) as started:
        while True:
            path = partition_path(folder / f"{deaths}", 0)
            path.parent.mkdir()
            given = {"path": str(path), "statement": deaths * step + 1}
            code = started.fork(migrate_main.run, given, f"{deaths}.log").wait()
            with closing(apsw.Connection(str(path))) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
                version = connection.pragma("user_version")
                found = schema_of(connection)
                assert (version, found) in ((0, []), (newest, whole))
                recorded = connection.execute("SELECT version FROM migrations") if found else ()
                assert list(recorded) == [(each + 1,) for each in range(version)]
            with closing(open_writer(path)) as connection:
                migrate(path, connection, 0)
                assert schema_of(connection) == whole
            if code == 0:
                break
            assert code == -signal.SIGKILL
            deaths += 1
    print(f"died at {deaths} statements")
    assert deaths > 60 // step
