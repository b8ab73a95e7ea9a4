"""What a writer does to a file and its archive only while it has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from writer.errors import Fenced
from writer.store.commit import Batch
from writer.store.partition import PartitionFile, partition_path
from writer.streams.archive import Archive, Record, read_archive

RECORD = Record("run-1", 1, "1-0", {b"v": b"1"})


def opened(data: Path) -> PartitionFile:
    file = PartitionFile.open(
        partition_path(data, 0), partition=0, partitions=1, lineage="first", now=0
    )
    file.take("writer", rules_version=1, now=0)
    return file


def archive_of(data: Path, file: PartitionFile) -> Archive:
    return Archive(data / "archive", file.epoch, {"partition": 0}, fence=file.while_owner)


def archiving(archive: Archive, record: Record) -> Batch:
    return Batch(to_archive=lambda: archive.append([record]).text())


@pytest.mark.parametrize("before", [[], [RECORD]], ids=["its first batch", "a later one"])
def test_a_fenced_writer_archives_nothing(tmp_path: Path, before: list[Record]) -> None:
    """Also behind what it archived while it had the file: its successor has read that."""
    file = opened(tmp_path)
    archive = archive_of(tmp_path, file)
    for record in before:
        file.commit(archiving(archive, record))
    successor = opened(tmp_path)

    with pytest.raises(Fenced):
        file.commit(archiving(archive, RECORD._replace(id="2-0")))

    assert [
        record for records, _, _ in read_archive(tmp_path / "archive") for record in records
    ] == before
    archive.close()
    for each in (file, successor):
        each.close()


def test_a_fenced_writer_takes_nothing_back(tmp_path: Path) -> None:
    file = opened(tmp_path)
    archive = archive_of(tmp_path, file)
    archive.append([RECORD])
    successor = opened(tmp_path)

    with pytest.raises(Fenced):
        archive.take_back()

    assert [records for records, _, _ in read_archive(tmp_path / "archive")] == [[RECORD]]
    archive.close()
    for each in (file, successor):
        each.close()


def test_an_owner_takes_back_what_failed(tmp_path: Path) -> None:
    file = opened(tmp_path)
    archive = archive_of(tmp_path, file)
    archive.append([RECORD])

    archive.take_back()

    assert list(read_archive(tmp_path / "archive")) == []
    archive.close()
    file.close()


@pytest.mark.parametrize("least, becomes", [(1, 6), (5, 6), (6, 6), (9, 9)])
def test_a_new_lineage_never_lowers_the_commits(tmp_path: Path, least: int, becomes: int) -> None:
    file = opened(tmp_path)
    file.replace_lineage("second", 5)

    file.replace_lineage("third", least)

    assert file.commit_seq == file.identity().commit_seq == becomes
    file.close()
