"""D: the database itself."""

# ruff: noqa: N802 - a case is named after its mark
from __future__ import annotations

import stat
from itertools import islice
from pathlib import Path

import apsw
import pytest

from tests.support.workload import command, typical_ops
from tests.support.world import START_MS, StoredWorld
from writer.errors import FileCorrupt
from writer.store.database import APPLICATION_ID, migrations, open_reader, open_writer
from writer.store.partition import PartitionFile, partition_path
from writer.store.reader import StateReader

RUN = "run-1"


def test_D1_a_fresh_file_says_what_it_is_and_is_not_for_everyone(tmp_path: Path) -> None:
    path = partition_path(tmp_path, 0)
    file = PartitionFile.open(path, partition=0, partitions=1, lineage="x", now=START_MS)
    connection = open_writer(path)
    assert connection.pragma("application_id") == APPLICATION_ID
    assert connection.pragma("user_version") == migrations()[-1].version
    assert connection.pragma("foreign_keys") == 1
    assert connection.pragma("journal_mode") == "wal"
    assert connection.pragma("integrity_check") == "ok"
    tables = "SELECT name, strict FROM pragma_table_list WHERE schema = 'main' AND type = 'table'"
    lax = {name for name, strict in connection.execute(tables) if not strict}
    assert {name for name in lax if not name.startswith("sqlite_")} == set()
    connection.close()
    file.close()
    assert stat.S_IMODE(path.stat().st_mode) & stat.S_IRWXO == 0


def test_D5_a_reader_can_not_write(stored: StoredWorld) -> None:
    stored.create(RUN)
    connection = open_reader(partition_path(stored.data, 0))
    try:
        assert connection.pragma("query_only") == 1
        with pytest.raises(apsw.ReadOnlyError):
            connection.execute("DELETE FROM runs")
    finally:
        connection.close()


def test_D5_reading_creates_nothing(tmp_path: Path) -> None:
    with StateReader(tmp_path / "missing") as reader:
        assert reader.list_runs().runs == []
    assert list(tmp_path.iterdir()) == []


def test_D5_a_file_of_something_else_is_refused_unchanged(tmp_path: Path) -> None:
    path = partition_path(tmp_path, 0)
    path.write_bytes(b"no database, but longer than nothing" * 100)
    before = path.read_bytes()
    with pytest.raises(FileCorrupt), StateReader(tmp_path) as reader:
        reader.list_runs()
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_D6_a_copy_that_sqlite_makes_is_whole(stored: StoredWorld, tmp_path: Path) -> None:
    for op in islice(typical_ops(RUN), 60):
        stored.send(RUN, *command(op))
    assert {outcome.kind for outcome in stored.settle()} == {"applied"}
    folder = tmp_path / "copy"
    folder.mkdir()
    source = open_reader(partition_path(stored.data, 0))
    copy = apsw.Connection(str(partition_path(folder, 0)))
    with copy.backup("main", source, "main") as backup:
        while not backup.done:
            backup.step(100)
    source.close()
    assert copy.pragma("integrity_check") == "ok"
    copy.close()
    with StateReader(folder) as reader:
        assert reader.digest() == stored.reader.digest()
        assert reader.read_run(RUN) == stored.reader.read_run(RUN)
