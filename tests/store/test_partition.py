"""What a data folder says of itself before any of its files is opened for writing."""

from __future__ import annotations

from pathlib import Path

import apsw

from writer.store.partition import PartitionFile, partition_path, stored_partitions


def make(data: Path, partition: int, partitions: int) -> None:
    file = PartitionFile.open(
        partition_path(data, partition),
        partition=partition,
        partitions=partitions,
        lineage="l",
        now=1,
    )
    file.close()


def test_an_empty_folder_has_no_number_of_partitions(tmp_path: Path) -> None:
    assert stored_partitions(tmp_path) is None


def test_any_file_tells_the_number(tmp_path: Path) -> None:
    make(tmp_path, 1, 3)
    assert stored_partitions(tmp_path) == 3


def test_a_file_whose_writer_died_before_its_first_migration_is_passed_over(
    tmp_path: Path,
) -> None:
    partition_path(tmp_path, 0).touch()
    assert stored_partitions(tmp_path) is None
    connection = apsw.Connection(str(partition_path(tmp_path, 0)))
    connection.pragma("journal_mode", "wal")
    connection.close()
    assert stored_partitions(tmp_path) is None
    make(tmp_path, 1, 2)
    assert stored_partitions(tmp_path) == 2
    make(tmp_path, 0, 2)
