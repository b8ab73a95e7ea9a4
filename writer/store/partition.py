"""A partition file as the writer sees it: take it, load aggregates, commit batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from writer.core.facts import Facts, Wanted
from writer.core.run import Run
from writer.errors import FileMoved, Misconfigured
from writer.store import commit as commits
from writer.store.database import (
    BUSY_MS,
    migrate,
    open_reader,
    open_writer,
    transaction,
    translated,
)
from writer.store.load import QUERIES as LOAD
from writer.store.load import is_kept, load_acts, load_facts, load_run

FREE_PAGES_KEPT = 64


class Identity(NamedTuple):
    """What a file says of itself."""

    partition: int
    partitions: int
    lineage: str
    epoch: int
    commit_seq: int
    archived: str
    control_cursor: str


class Place(NamedTuple):
    """The last settled message of a stream, and whether its run has finished or is deleted."""

    message_id: str
    ended: bool


class Quarantine(NamedTuple):
    """Where a run waits. `version` is the contract version that it waits for, if it does."""

    incarnation: int
    message_id: str
    cause: str
    version: int | None


def partition_path(data: Path, partition: int) -> Path:
    """Where a partition's file lies in the data folder: `p00.sqlite`, `p01.sqlite`, ..."""
    return data / f"p{partition:02d}.sqlite"


class PartitionFile:
    """The writing end of one file. Not thread-safe: it belongs to its partition's thread."""

    def __init__(self, path: Path, connection: apsw.Connection) -> None:
        self.path = path
        self.epoch = 0
        self.commit_seq = 0
        self._connection = connection
        self._next_key = 0
        self._place = _place(path)

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        partition: int,
        partitions: int,
        lineage: str,
        now: int,
        synchronous: str = "FULL",
        busy_ms: int = BUSY_MS,
    ) -> PartitionFile:
        """Open or create a file; `lineage` (a new random id) names it if it is new. `now` in ms.

        Raises Misconfigured if it is another partition's, FileTooNew, FileCorrupt,
        StoreUnavailable.
        """
        connection = open_writer(path, synchronous=synchronous, busy_ms=busy_ms)
        migrate(path, connection, now)
        file = cls(path, connection)
        with translated(path):
            connection.execute(commits.QUERIES["identify"], (partition, partitions, lineage, now))
        identity = file.identity()
        file.commit_seq = identity.commit_seq
        if (identity.partition, identity.partitions) != (partition, partitions):
            connection.close()
            raise Misconfigured(
                f"{path.name} is partition {identity.partition} of {identity.partitions}, "
                f"not {partition} of {partitions}",
                hint="the number of partitions is fixed when a data folder is made: keep it",
            )
        return file

    def check_place(self) -> None:
        """Raise FileMoved if what is at the path is not what was opened: nobody would find what is
        committed there.
        """
        try:
            moved = _place(self.path) != self._place
        except OSError:
            # Whoever can not look meets the fault itself at its next commit.
            moved = False
        if moved:
            raise FileMoved(
                f"{self.path.name} was moved, deleted or replaced while it was being written",
                hint="put it back beside its -wal, which still belongs to it, and start again; to "
                "go on with another file or none, move the -wal away first",
            )

    def identity(self) -> Identity:
        """The file's own row."""
        with translated(self.path):
            return Identity(*_only(self._connection, commits.QUERIES["identity"]))

    def take(self, writer: str, *, rules_version: int, now: int, at_least: int = 0) -> int:
        """Raise the epoch past `at_least` and the file's own, so that no earlier writer can
        commit.
        """
        with translated(self.path), transaction(self._connection):
            self.epoch = _only(self._connection, commits.QUERIES["raise_epoch"], at_least)[0]
            self._connection.execute(
                commits.QUERIES["insert_epoch"], (self.epoch, writer, rules_version, now)
            )
            # Whoever had the file until now may have gone on since it was opened.
            self._next_key = _only(self._connection, LOAD["next_run_key"])[0]
        self.commit_seq = self.identity().commit_seq
        return self.epoch

    def has_settled(self) -> bool:
        """Whether anything was done in it that an archive holds, not only a quarantine recorded."""
        with translated(self.path):
            return bool(_only(self._connection, commits.QUERIES["settled_messages"])[0])

    def replace_lineage(
        self, lineage: str, commit_seq: int, loss: commits.ActRow | None = None
    ) -> None:
        """Take a new identity: readers' tokens start over, and Redis' mark is met again.

        `commit_seq` is the least that it goes on with; it never falls.

        `loss` is the record of what was given up for it, if anything was.
        """
        with translated(self.path), transaction(self._connection):
            raised = _only(self._connection, commits.QUERIES["set_lineage"], lineage, commit_seq)
            if loss is not None:
                self._connection.execute(commits.QUERIES["insert_act"], loss)
        (self.commit_seq,) = raised

    def load(self, run_id: str) -> Run:
        """A run's aggregate; a new one if nothing of its stream was ever settled."""
        with translated(self.path):
            run = load_run(self._connection, run_id)
            if run is None:
                run = Run(self._next_key, run_id)
                self._next_key += 1
                load_acts(self._connection, run)
        return run

    def place(self, run_id: str) -> Place:
        """Where a stream stands; its beginning if nothing of it was ever settled."""
        with translated(self.path):
            row = self._connection.execute(LOAD["place"], (run_id,)).fetchone()
        return Place("0-0", ended=False) if row is None else Place(row[0], bool(row[1]))

    def open_gaps(self, run_id: str) -> list[tuple[str, int, int]]:
        """The open gaps of a stream's producers: (producer, first, last)."""
        with translated(self.path):
            rows: list[tuple[Any, ...]] = self._connection.execute(
                LOAD["open_gaps"], (run_id,)
            ).fetchall()
        return [(producer, first, last) for producer, first, last in rows]

    def facts(self, run: Run, wanted: Wanted) -> Facts:
        """What the decisions about a run's messages want to know of the past."""
        with translated(self.path):
            return load_facts(self._connection, run, wanted)

    def is_kept(self, run: Run, place: tuple[int, str]) -> bool | None:
        """Whether the bytes of a message refused at (incarnation, id) are kept; None if it was
        not refused.
        """
        with translated(self.path):
            return is_kept(self._connection, run, place)

    def quarantined(self) -> dict[str, Quarantine]:
        """Runs that wait, by id."""
        with translated(self.path):
            rows: list[tuple[Any, ...]] = self._connection.execute(LOAD["quarantines"]).fetchall()
        return {run_id: Quarantine(*rest) for run_id, *rest in rows}

    def is_recorded(self, control_id: str, act: str, run_id: str, message_id: str) -> bool:
        """Whether an act was carried out, or refused, before."""
        named = (control_id, act, run_id, message_id)
        with translated(self.path):
            return self._connection.execute(LOAD["act_recorded"], named).fetchone() is not None

    def skips(self) -> list[tuple[Any, ...]]:
        """Skips in the present incarnations: the fields of an act, then the run's cursor."""
        with translated(self.path):
            rows: list[tuple[Any, ...]] = self._connection.execute(LOAD["skips"]).fetchall()
        return rows

    def cursors(self) -> dict[str, tuple[int, str]]:
        """Incarnation and last settled message of every stream."""
        with translated(self.path):
            rows: list[tuple[Any, ...]] = self._connection.execute(LOAD["cursors"]).fetchall()
        return {run_id: (incarnation, message_id) for run_id, incarnation, message_id in rows}

    def commit(self, batch: commits.Batch, hook: commits.Hook = commits.no_hook) -> int:
        """Write a batch; returns its commit_seq. Raises Fenced, StoreUnavailable, FileCorrupt."""
        with translated(self.path):
            self.commit_seq = commits.commit(self._connection, batch, self.epoch, hook)
        return self.commit_seq

    def while_owner(self, act: Callable[[], None]) -> None:
        """Do something that no later writer of the file may ever have done to it.

        Until it is done, none can take the file. Raises Fenced if one has, StoreUnavailable.
        """
        with translated(self.path), transaction(self._connection):
            commits.check_epoch(self._connection, self.epoch)
            act()

    def original(self, run_id: str, producer: str, seq: int) -> dict[str, str | int]:
        """What a sequence came to when it was settled first; empty where no row tells."""
        with translated(self.path):
            row = self._connection.execute(
                LOAD["original_event"], (run_id, producer, seq)
            ).fetchone()
            if row is not None:
                return {"original": "applied", "revision": row[0], "segment": row[1]}
            row = self._connection.execute(
                LOAD["original_rejection"], (run_id, producer, seq)
            ).fetchone()
        return {} if row is None else {"original": "rejected", "reason": row[0]}

    def give_back(self) -> bool:
        """Give some of the pages that deletions freed back to the file system; whether it did.

        Some stay for what is written next. Raises Fenced, StoreUnavailable, FileCorrupt.
        """
        with translated(self.path):
            if _only(self._connection, commits.QUERIES["free_pages"])[0] <= FREE_PAGES_KEPT:
                return False
            with transaction(self._connection):
                commits.check_epoch(self._connection, self.epoch)
                self._connection.execute(commits.QUERIES["give_back"]).fetchall()
        return True

    def sync(self) -> bool:
        """Make all commits so far survive a power cut; whether that was possible just now."""
        with translated(self.path):
            left, done = self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        return left == done

    def close(self) -> None:
        """Close the file; what was not committed is gone."""
        self._connection.close()


def _place(path: Path) -> tuple[int, int] | None:
    """Which file is at a path, whatever it is called; None if there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _only(connection: apsw.Connection, query: str, *bindings: Any) -> tuple[Any, ...]:
    (row,) = connection.execute(query, bindings).fetchall()
    return row


def stored_partitions(data: Path) -> int | None:
    """How many partitions a data folder was made for; None if it has no partition file yet."""
    for path in sorted(data.glob("p*.sqlite")):
        if path.with_name(f"{path.name}-journal").exists():
            # Whoever made it died before it was a file in WAL mode; its writer makes it anew.
            continue
        with translated(path):
            connection = open_reader(path)
            try:
                # A file whose writer died before the first migration has no tables yet.
                made = connection.pragma("user_version") > 0
                row = connection.execute("SELECT partitions FROM file").fetchone() if made else None
            finally:
                connection.close()
            if row is not None:
                assert isinstance(row[0], int)
                return row[0]
    return None
