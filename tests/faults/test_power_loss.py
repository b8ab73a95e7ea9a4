"""Power fails: what was written since the last sync is there in part, or as rubbish.

Images are made of a file, its WAL and its archive as they were on a disk: whole up to the last
sync, and past it cut at a random byte, half of them torn as well.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import apply_main, checks
from tests.support.processes import memory_folder
from writer.apply import Aggregates, Applier
from writer.core.decide import RULES_VERSION
from writer.store.partition import PartitionFile, partition_path
from writer.streams.archive import Archive, archive_folder

PER_BATCH = apply_main.MESSAGES // apply_main.BATCHES


class Synced(NamedTuple):
    """How long WAL and archive were after a commit."""

    wal_bytes: int
    archive_bytes: int


class Recording(NamedTuple):
    """A data folder at the end of all batches, none of them checkpointed, and the way there."""

    data: Path
    synced: list[Synced]
    digests: dict[str, str]


@pytest.fixture(scope="module")
def recording() -> Iterator[Recording]:
    with memory_folder() as folder:
        yield record(folder / "data", folder / "copy")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose syncs cost nothing."""
    with memory_folder() as made:
        yield made


def record(data: Path, copy: Path) -> Recording:
    data.mkdir()
    path = partition_path(data, 0)
    # Closed once, so that the WAL begins anew and only grows.
    PartitionFile.open(path, partition=0, partitions=1, lineage="fixed", now=0).close()
    file = PartitionFile.open(path, partition=0, partitions=1, lineage="fixed", now=0)
    file.take("apply", rules_version=RULES_VERSION, now=0)
    applier = Applier(file, 0, 1, Aggregates(file))
    applier.archive = Archive(archive_folder(data, 0), file.epoch, {"partition": 0})
    wal = path.with_name("p00.sqlite-wal")
    synced = [Synced(wal.stat().st_size, 0)]
    for messages in apply_main.batches():
        applier.apply(messages, now=0)
        assert wal.stat().st_size > synced[-1].wal_bytes
        synced.append(Synced(wal.stat().st_size, _archive(data).stat().st_size))
    # As a crash leaves it: closing would checkpoint and seal.
    shutil.copytree(data, copy)
    applier.archive.close()
    file.close()
    return Recording(copy, synced, checks.digests_of(path))


def _archive(data: Path) -> Path:
    (segment,) = archive_folder(data, 0).iterdir()
    return segment


def make_image(recording: Recording, into: Path, chance: random.Random, done: int) -> None:
    """The disk as it may be when power fails after `done` commits, before the next one's sync."""
    shutil.copytree(recording.data, into)
    (into / "p00.sqlite-shm").unlink()
    now = recording.synced[done]
    then = recording.synced[min(done + 1, len(recording.synced) - 1)]
    archived = chance.randint(now.archive_bytes, then.archive_bytes)
    _damage(_archive(into), chance, now.archive_bytes, archived)
    # A batch is in the archive before anything of it is in the WAL.
    whole = archived == then.archive_bytes
    end = chance.randint(now.wal_bytes, then.wal_bytes) if whole else now.wal_bytes
    _damage(into / "p00.sqlite-wal", chance, now.wal_bytes, end)


def _damage(path: Path, chance: random.Random, synced: int, end: int) -> None:
    """Cut a file, and in half of the cases write rubbish over a part of what was not synced."""
    with path.open("r+b") as file:
        file.truncate(end)
        if end > synced and chance.random() < 0.5:
            place = chance.randint(synced, end - 1)
            file.seek(place)
            file.write(chance.randbytes(chance.randint(1, end - place)))


@pytest.mark.parametrize("images", [200, pytest.param(10_000, marks=pytest.mark.soak)])
def test_full_loses_nothing_that_was_committed(
    folder: Path, recording: Recording, images: int
) -> None:
    chance = random.Random(images)
    for number in range(images):
        done = chance.randrange(apply_main.BATCHES + 1)
        image = folder / f"{number}"
        make_image(recording, image, chance, done)
        recovered = stored_batches(image)
        assert recovered in (done, done + 1)
        if number % 4 == 0:
            finish_and_check(image, recording, everything=number % 20 == 0)
        shutil.rmtree(image)


@pytest.mark.parametrize("images", [50, pytest.param(5_000, marks=pytest.mark.soak)])
def test_normal_leaves_a_clean_prefix_and_the_archive_brings_the_rest(
    folder: Path, recording: Recording, images: int
) -> None:
    """With synchronous=NORMAL the WAL is not synced, but the archive is, before each commit."""
    chance = random.Random(images)
    for number in range(images):
        done = chance.randrange(apply_main.BATCHES + 1)
        image = folder / f"{number}"
        shutil.copytree(recording.data, image)
        (image / "p00.sqlite-shm").unlink()
        first, last = recording.synced[0].wal_bytes, recording.synced[done].wal_bytes
        _damage(image / "p00.sqlite-wal", chance, first, chance.randint(first, last))
        with _archive(image).open("r+b") as archive:
            archive.truncate(recording.synced[done].archive_bytes)
        assert stored_batches(image) <= done
        told: list[str] = []
        apply_main.apply_all(image, told.append)
        assert told == [f"{batch}\n" for batch in range(done, apply_main.BATCHES)]
        finish_and_check(image, recording, everything=number % 20 == 0)
        shutil.rmtree(image)


def stored_batches(image: Path) -> int:
    """How many batches the file holds once SQLite has recovered it; they are whole."""
    found = checks.settled(image)
    assert found % PER_BATCH == 0
    checks.check_file(image / "p00.sqlite")
    return found // PER_BATCH


def finish_and_check(image: Path, recording: Recording, *, everything: bool) -> None:
    """Applying all again leads to the same state."""
    apply_main.apply_all(image, lambda text: None)
    assert checks.digests_of(image / "p00.sqlite") == recording.digests
    if everything:
        checks.check_all(image)
