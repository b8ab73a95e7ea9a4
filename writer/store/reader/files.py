"""The partition files of a data folder: found when they appear, opened when first asked for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import apsw

from producers.contract.keys import partition_of
from writer.errors import FileCorrupt, StoreUnavailable
from writer.store.database import open_reader, open_resting, rests, translated
from writer.store.partition import Identity, partition_path
from writer.store.reader.query import identity_of

_NAME = re.compile(r"p\d{2,4}\.sqlite")


class Stamp(NamedTuple):
    """Tells one file from another that has taken its name, and a changed one from itself."""

    device: int
    inode: int
    modified_ns: int
    size: int


class OpenFile:
    """One partition file, open for reading; `identity` is what it said of itself then."""

    def __init__(self, path: Path, stamp: Stamp) -> None:
        self.path = path
        self._stamp = stamp
        self._resting = False
        try:
            self._connection = open_reader(path)
        except StoreUnavailable:
            if not rests(path) or os.access(path.parent, os.W_OK):
                raise
            self._connection = open_resting(path)
            self._resting = True
        try:
            self.identity = self._identify()
        except BaseException:
            self.close()
            raise

    def _identify(self) -> Identity | None:
        with translated(self.path):
            made = self._connection.pragma("user_version")
            return identity_of(self._connection) if made else None

    @contextmanager
    def read(self) -> Iterator[apsw.Connection]:
        """One read transaction: all that is read inside is of one moment."""
        try:
            with translated(self.path):
                self._connection.execute("BEGIN")
                try:
                    yield self._connection
                finally:
                    if self._connection.in_transaction:
                        self._connection.execute("COMMIT")
        except FileCorrupt as error:
            # Without locks, half of what a writer moves into the file looks like damage.
            self._check_rested(error)
            raise
        self._check_rested()

    def _check_rested(self, cause: FileCorrupt | None = None) -> None:
        if self._resting and not self.is_current():
            raise StoreUnavailable(
                f"{self.path.name} was changed while it was read", hint="read again"
            ) from cause

    def is_current(self) -> bool:
        """Whether its path still leads to it, and nothing has happened that it can not see."""
        now = _stamp(self.path)
        if now is None or not self._resting:
            return now is not None and now[:2] == self._stamp[:2]
        return now == self._stamp and rests(self.path)

    def close(self) -> None:
        """Close it."""
        self._connection.close()


class Files:
    """All partition files of a folder. What is not there yet is looked for again at each call."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._open: dict[Path, OpenFile] = {}

    def all(self) -> list[tuple[Identity, OpenFile]]:
        """Every file that is ready, by partition.

        Raises FileTooNew, FileCorrupt, StoreUnavailable.
        """
        try:
            paths = {path for path in self._data.iterdir() if _NAME.fullmatch(path.name)}
        except (FileNotFoundError, NotADirectoryError):
            paths = set()
        except OSError as error:
            raise StoreUnavailable(
                f"{self._data} can not be listed: {error}", hint="check its permissions"
            ) from error
        for path in self._open.keys() - paths:
            self._open.pop(path).close()
        ready = []
        for path in paths:
            file = self._get(path)
            if file is not None and file.identity is not None:
                ready.append((file.identity, file))
        return sorted(ready, key=lambda each: (each[0].partition, each[1].path))

    def of(self, run_id: str) -> OpenFile | None:
        """The file of a run's partition; None if it is not there."""
        found = self._of(run_id, list(self._open.values()))
        return found or self._of(run_id, [file for _, file in self.all()])

    def _of(self, run_id: str, known: list[OpenFile]) -> OpenFile | None:
        partitions = next(
            (file.identity.partitions for file in known if file.identity and file.is_current()),
            None,
        )
        if partitions is None or not _is_text(run_id):
            return None
        file = self._get(partition_path(self._data, partition_of(run_id, partitions)))
        if file is None or file.identity is None or file.identity.partitions != partitions:
            return None
        return file

    def _get(self, path: Path) -> OpenFile | None:
        known = self._open.get(path)
        if known is not None and known.identity is not None and known.is_current():
            return known
        if known is not None:
            self._open.pop(path).close()
        stamp = _stamp(path)
        if stamp is None or stamp.size == 0:
            return None
        file = self._open[path] = OpenFile(path, stamp)
        return file

    def close(self) -> None:
        """Close what is open."""
        for file in self._open.values():
            file.close()
        self._open.clear()


def _is_text(run_id: str) -> bool:
    """Lone surrogates, which a command line may hand on, are in no id."""
    return not any("\ud800" <= char <= "\udfff" for char in run_id)


def _stamp(path: Path) -> Stamp | None:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return Stamp(stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size)
