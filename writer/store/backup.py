"""Copies of partition files: made while they are written, proved, and put back."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple

import apsw
import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from writer.errors import FileCorrupt, StoreUnavailable, Usage
from writer.store.commit import QUERIES as COMMIT
from writer.store.database import FILE_MODE, open_resting, translated
from writer.store.digest import partition_digest
from writer.store.invariants import Violation, standing, violations
from writer.store.partition import partition_path
from writer.store.queries import named

QUERIES = named("backup.sql")
MANIFEST = "manifest.json"
PAGES = 512
"""Copied in one step: 4 MiB."""
CHUNK_BYTES = 1024 * 1024

Told = Callable[[str, int, int], None]
"""Is told of a file how many of how many pages are copied."""


class CopiedFile(BaseModel):
    """What a manifest says of one file: its bytes, and how far it is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^p[0-9]{2,4}\.sqlite$")
    bytes: int
    sha256: str
    schema_version: int
    partition: int
    epoch: int
    commit_seq: int
    lineage: str
    archived: str
    streams: int
    messages: int
    digest: str


class Manifest(BaseModel):
    """What a backup holds. It is written last: a folder without one is no backup."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    statewriter: str
    created_at: int
    partitions: int
    files: list[CopiedFile]


class CopyUnsound(FileCorrupt):
    """A copy does not hold what it must."""

    def __init__(self, name: str, found: list[Violation]) -> None:
        first = found[0]
        run = f"run {first.run}: " if first.run else ""
        super().__init__(
            f"the copy of {name} breaks {len(found)} rules, first: {first.sentence} "
            f"({run}{first.place})",
            hint="look at the file itself with `statewriter verify`; the copy was not kept",
        )
        self.found = found


def copy_file(source: Path, target: Path, told: Told) -> CopiedFile:
    """Copy a partition file as of one moment, and prove the copy. Its writer goes on meanwhile.

    Raises CopyUnsound, StoreUnavailable, FileTooNew, FileCorrupt; then `target` is gone.
    """
    try:
        os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE))
        with standing(source) as connection:
            _copy(connection, source.name, target, told)
        _sync(target)
        return _proved(source.name, target)
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def _copy(source: apsw.Connection, name: str, target: Path, told: Told) -> None:
    # Inside its read transaction the source does not change: a step never has to begin again.
    source.execute(COMMIT["identity"]).fetchall()
    copy = apsw.Connection(str(target))
    try:
        with copy.backup("main", source, "main") as backup:
            while not backup.done:
                backup.step(PAGES)
                told(name, backup.page_count - backup.remaining, backup.page_count)
    finally:
        copy.close()


def _proved(name: str, target: Path) -> CopiedFile:
    """Judge the finished copy by the rules of `invariants`, the cursors' among them."""
    with translated(target):
        connection = open_resting(target)
        try:
            found = list(violations(connection))
            if found:
                raise CopyUnsound(name, found)
            rows: list[Any] = connection.execute(QUERIES["positions"]).fetchall()
            if not rows:
                raise StoreUnavailable(f"{name} is just being made", hint="make the backup again")
            partition, epoch, commit_seq, lineage, archived, streams, messages = rows[0]
            return CopiedFile(
                name=name,
                bytes=target.stat().st_size,
                sha256=_hash_of(target),
                schema_version=connection.pragma("user_version"),
                partition=partition,
                epoch=epoch,
                commit_seq=commit_seq,
                lineage=lineage,
                archived=archived,
                streams=streams,
                messages=messages,
                digest=partition_digest(connection).hex(),
            )
        finally:
            connection.close()


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Make a folder of copies a backup."""
    draft = folder / f"{MANIFEST}.new"
    draft.write_bytes(orjson.dumps(manifest.model_dump(), option=orjson.OPT_INDENT_2))
    _sync(draft)
    draft.replace(folder / MANIFEST)
    _sync(folder)


def read_manifest(folder: Path) -> Manifest:
    """What a backup says of itself. Raises Usage for a folder that is none."""
    path = folder / MANIFEST
    try:
        return Manifest.model_validate_json(path.read_bytes(), strict=True)
    except (FileNotFoundError, NotADirectoryError):
        raise Usage(f"{folder} is no backup", hint=f"a finished one has a {MANIFEST}") from None
    except ValidationError:
        raise Usage(f"{path} is no manifest of a backup") from None


def check_copies(folder: Path, files: list[CopiedFile]) -> None:
    """Compare copies with their hashes. Raises FileCorrupt for one that was changed or lost,
    FileTooNew for one that this statewriter can not read.
    """
    for file in files:
        path = folder / file.name
        try:
            intact = _hash_of(path) == file.sha256
        except FileNotFoundError:
            raise FileCorrupt(f"{path} is not there", hint="use another backup") from None
        if not intact:
            raise FileCorrupt(
                f"{path} is not what was backed up: its SHA-256 differs", hint="use another backup"
            )
        open_resting(path).close()


class Restored(NamedTuple):
    """What was put in place, and where the file that was there is now, if there was one."""

    name: str
    replaced: str | None


def restore_file(folder: Path, file: CopiedFile, data: Path, stamp: str) -> Restored:
    """Put a copy where its partition's file belongs; nobody else may use that file meanwhile.

    The copy takes a new lineage, so that readers start over. A file that is there is kept aside as
    `*.replaced-<stamp>`, its WAL with it. Dying in between leaves the old file or the new one, or
    none, and never a mix: do it again then.
    """
    path = partition_path(data, file.partition)
    draft = path.with_name(f"{path.name}.restoring")
    _copy_bytes(folder / file.name, draft)
    with translated(draft):
        connection = apsw.Connection(str(draft))
        try:
            lineage = secrets.token_hex(8)
            connection.execute(COMMIT["rename_lineage"], (lineage,))
        finally:
            connection.close()
    _sync(draft)
    aside = path.with_name(f"{path.name}.replaced-{stamp}")
    replaced = path.exists()
    for suffix in ("", "-wal"):
        old = path.with_name(f"{path.name}{suffix}")
        if old.exists():
            old.rename(path.with_name(f"{aside.name}{suffix}"))
    path.with_name(f"{path.name}-shm").unlink(missing_ok=True)
    draft.rename(path)
    _sync(data)
    return Restored(path.name, aside.name if replaced else None)


def _copy_bytes(source: Path, target: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        # An earlier try that died may have left them; a WAL would be taken for the new file's.
        target.with_name(f"{target.name}{suffix}").unlink(missing_ok=True)
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    with source.open("rb") as read, os.fdopen(handle, "wb") as written:
        while chunk := read.read(CHUNK_BYTES):
            written.write(chunk)


def _hash_of(path: Path) -> str:
    digest = sha256()
    with path.open("rb") as read:
        while chunk := read.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
