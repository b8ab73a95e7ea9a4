"""A data folder judged: by its own rules, and by what its archive says that it must be."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from writer.clock import now_ms
from writer.core.decide import RULES_VERSION
from writer.errors import FileCorrupt
from writer.replay import Bounds, Replay, archive_bytes, archived_partitions, rebuilding
from writer.store.comparison import (
    Account,
    Archiving,
    Difference,
    accounts,
    archiving,
    first_difference,
)
from writer.store.digest import digests
from writer.store.invariants import Violation, standing, violations
from writer.store.partition import partition_path
from writer.streams.archive import START, ArchiveDamaged, Position, archive_folder, segments
from writer.streams.reach import missing, reaches_back_to

NAMED_MAX = 20
"""Runs of which the first difference is told; all are counted."""

Begun = Callable[[str, int], Callable[[int, int], None]]
"""Is told which partition's archive of how many bytes is replayed; what it returns is told how many
messages were applied and how many bytes read."""


@dataclass(slots=True)
class Verdict:
    """What is to be said of one partition. `differing` runs are not what their archive says;
    `differences` tell the first of them. `incomparable`: why nothing was compared, if it was not.
    """

    file: str
    streams: int = 0
    messages: int = 0
    violations: list[Violation] = field(default_factory=list)
    compared: bool = False
    incomparable: str = ""
    differing: int = 0
    differences: list[Difference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.violations and not self.differing


def _quiet(file: str, size: int) -> Callable[[int, int], None]:
    return lambda messages, read: None


def verify(data: Path, *, rebuild: bool = True, begun: Begun = _quiet) -> Iterator[Verdict]:
    """Judge each partition of a folder, at work or at rest, as of one moment.

    Needs room in the temporary folder for one rebuilt file at a time. While it looks at a file, its
    WAL can not shrink. Raises FileTooNew, StoreUnavailable.
    """
    yield from _lost(data)
    for path in sorted(data.glob("p*.sqlite")):
        verdict = Verdict(path.name)
        try:
            with standing(path) as connection:
                verdict.violations += violations(connection)
                # A damaged file's rows say nothing.
                if not any(each.rule == "integrity" for each in verdict.violations):
                    _judge(verdict, data, connection, rebuild, begun)
        except FileCorrupt as error:
            verdict.violations.append(Violation("integrity", None, str(error)))
        yield verdict


def _lost(data: Path) -> Iterator[Verdict]:
    for partition in range(archived_partitions(data) or 0):
        path = partition_path(data, partition)
        if not path.exists() and segments(archive_folder(data, partition)):
            gone = Violation("file", None, "its archive is there")
            yield Verdict(path.name, violations=[gone], incomparable="it is gone")


def _judge(verdict: Verdict, data: Path, connection: Any, rebuild: bool, begun: Begun) -> None:
    told = archiving(connection)
    if told is None:
        verdict.incomparable = "it is new"
        return
    if partition_path(data, told.partition).name != verdict.file:
        named = f"it says that it is partition {told.partition}"
        verdict.violations.append(Violation("file", None, named))
        return
    known = accounts(connection)
    verdict.streams = len(known)
    verdict.messages = sum(sum(account[2:]) for account in known.values())
    if not rebuild:
        verdict.incomparable = "it was not asked for"
        return
    folder = archive_folder(data, told.partition)
    lacking = missing(folder, Position.parse(told.archived))
    verdict.incomparable = _incomparable(folder, told)
    if verdict.incomparable:
        return
    if lacking is not None:
        verdict.violations.append(Violation("archive", None, f"segment {lacking} is missing"))
        return
    older = [version for version in told.rules_versions if version != RULES_VERSION]
    if older:
        verdict.notes.append(
            f"some was decided under rules version {older[0]}, this is {RULES_VERSION}: runs may "
            "differ for that alone"
        )
    try:
        _compare(verdict, data, connection, told, known, begun)
    except ArchiveDamaged as error:
        verdict.violations.append(Violation("archive", None, str(error)))


def _incomparable(folder: Path, told: Archiving) -> str:
    """Why a rebuilt file would be another; empty if it must be the same."""
    if told.losses:
        return "a loss was accepted once: the file holds what its archive never had"
    if not told.messages:
        return ""
    if not segments(folder):
        return "there is no archive"
    if told.unarchived:
        return f"{told.unarchived:,} messages were settled while archiving was off"
    if not reaches_back_to(folder, START):
        return "the archive does not reach back to the beginning: it has expired, or was off"
    return ""


def _compare(
    verdict: Verdict,
    data: Path,
    connection: Any,
    told: Archiving,
    known: dict[str, Account],
    begun: Begun,
) -> None:
    bounds = Bounds(end=Position.parse(told.archived))
    place = (told.partition, told.partitions)
    with tempfile.TemporaryDirectory(prefix="statewriter-verify-") as name:
        into = Path(name)
        with rebuilding(
            data, into, place, now=now_ms(), bounds=bounds, synchronous="OFF"
        ) as replay:
            replay.told = begun(verdict.file, archive_bytes(replay.folder))
            replay.archive()
        with standing(partition_path(into, told.partition)) as rebuilt:
            found = _differences(connection, rebuilt, known)
            for difference in found:
                verdict.differing += 1
                if len(verdict.differences) < NAMED_MAX:
                    verdict.differences.append(difference)
        verdict.compared = True
        verdict.notes += _held(replay)


def _differences(live: Any, rebuilt: Any, known: dict[str, Account]) -> Iterator[Difference]:
    there, counted = dict(digests(rebuilt)), accounts(rebuilt)
    here = dict(digests(live))
    for run in sorted(known.keys() | counted.keys()):
        if here.get(run) != there.get(run):
            difference = first_difference(live, rebuilt, run)
            assert difference is not None, "equal rows have equal digests"
            yield difference
            continue
        ours, theirs = known.get(run), counted.get(run)
        if _ends(ours) != _ends(theirs):
            yield Difference(run, "cursors", 1, _counts(ours), _counts(theirs))


def _ends(account: Account | None) -> tuple[int, ...]:
    """How many messages ended in which way. A stream whose first message waits has an account
    though none did, and is in no archive.
    """
    return (0, 0, 0) if account is None else account[2:]


def _counts(account: Account | None) -> str | None:
    if account is None:
        return None
    return (
        f"applied {account.applied}, duplicates {account.duplicates}, rejected {account.rejected}"
    )


def _held(replay: Replay) -> list[str]:
    return [f"run {run} could not be rebuilt: {cause}" for run, cause in replay.held.items()]
