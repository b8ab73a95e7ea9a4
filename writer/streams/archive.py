"""The archive: every settled message, kept on disk before Redis may forget it.

A partition's archive is a folder of segments, read in the order of their names. A segment is a
sequence of zstd frames; the first holds what the segment is, each later one a batch: one JSON
object a line. A batch's frame is synced before its COMMIT, so what is settled is archived. The
reverse does not hold: a batch whose commit failed stands here too, and again when it was applied
after all. Readers take each (run, incarnation, id) once.

Each epoch writes segments of its own, so a writer that lost its partition can not spoil its
successor's.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import zstandard

from producers.contract.envelope import fields_of, fields_text
from writer.errors import FileCorrupt, StoreUnavailable

SEGMENT_BYTES_MAX = 64 * 1024 * 1024
LEVEL = 3
_HEADER = struct.Struct("<IIQ")
_MAGIC = 0x184D2A50
"""A skippable zstd frame before each frame tells its length: segments stay readable by `zstd
-dc`.
"""
_NAME = re.compile(r"^e(\d{8})-(\d{6})\.zst(\.open)?$")


class Record(NamedTuple):
    """One settled message; `fields` are sealed: no token is in the archive."""

    run: str
    incarnation: int
    id: str
    fields: Mapping[bytes, bytes]


class Act(NamedTuple):
    """One operator act that was carried out. See `writer.core.acts`."""

    id: str
    act: str
    run: str
    incarnation: int
    message_id: str


class Position(NamedTuple):
    """Where a frame ends: segment number and byte offset. A file remembers its last one."""

    epoch: int
    number: int
    offset: int

    def text(self) -> str:
        """As it is stored."""
        return f"{self.epoch}:{self.number}:{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """From what is stored."""
        epoch, number, offset = text.split(":")
        return cls(int(epoch), int(number), int(offset))


START = Position(0, 0, 0)


class Segment(NamedTuple):
    """One file of an archive."""

    epoch: int
    number: int
    path: Path
    sealed: bool


def archive_folder(data: Path, partition: int) -> Path:
    """Where a partition's archive lies in the data folder."""
    return data / "archive" / f"p{partition:02d}"


def segments(folder: Path) -> list[Segment]:
    """The segments of an archive, oldest first."""
    found = []
    for path in folder.iterdir() if folder.is_dir() else ():
        match = _NAME.match(path.name)
        if match:
            found.append(Segment(int(match[1]), int(match[2]), path, match[3] is None))
    return sorted(found)


class Archive:
    """The writing end of one partition's archive, for one epoch."""

    def __init__(
        self,
        folder: Path,
        epoch: int,
        about: Mapping[str, Any],
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
    ) -> None:
        self._folder = folder
        self._epoch = epoch
        self._about = orjson.dumps({**about, "epoch": epoch})
        self._bytes_max = segment_bytes_max
        self._compress = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress
        self._number = 0
        self._handle: int | None = None
        self._path = folder
        self._size = 0

    def append(self, records: Iterable[Record], acts: Iterable[Act] = ()) -> Position:
        """Write a batch and sync it; returns where it ends. Raises StoreUnavailable, and then
        nothing of it will be read.
        """
        lines = [orjson.dumps({"act": act._asdict()}) for act in acts]
        lines += [
            b'{"run":%b,"inc":%d,"id":"%b","fields":%b}'
            % (
                orjson.dumps(record.run),
                record.incarnation,
                record.id.encode(),
                fields_text(record.fields).encode(),
            )
            for record in records
        ]
        try:
            if self._handle is None:
                self._open()
            self._write(b"\n".join(lines))
            if self._size >= self._bytes_max:
                self._seal()
                return Position(self._epoch, self._number + 1, 0)
        except OSError as error:
            self._abandon()
            raise StoreUnavailable(
                f"archive {self._folder.name}: {error.strerror or error}",
                hint="make room or give the right to write; the writer goes on by itself",
            ) from error
        return Position(self._epoch, self._number, self._size)

    def close(self) -> None:
        """Seal the segment that is open."""
        if self._handle is not None:
            self._seal()

    def _open(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._number += 1
        self._path = self._folder / f"e{self._epoch:08d}-{self._number:06d}.zst.open"
        self._handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._size = 0
        self._write(self._about)
        _sync_folder(self._folder)

    def _write(self, payload: bytes) -> None:
        assert self._handle is not None
        frame = self._compress(payload)
        frame = _HEADER.pack(_MAGIC, 8, len(frame)) + frame
        rest = memoryview(frame)
        try:
            while rest:
                rest = rest[os.write(self._handle, rest) :]
            os.fdatasync(self._handle)
        except OSError:
            # A torn frame would hide those behind it.
            os.ftruncate(self._handle, self._size)
            raise
        self._size += len(frame)

    def _seal(self) -> None:
        assert self._handle is not None
        os.fsync(self._handle)
        os.close(self._handle)
        self._handle = None
        self._path.rename(self._path.with_suffix(""))
        _sync_folder(self._folder)

    def _abandon(self) -> None:
        """After an error the next batch begins a new segment: this one's end is not trusted."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def read_archive(
    folder: Path, since: Position = START
) -> Iterator[tuple[list[Record], list[Act], Position]]:
    """The batches past a position, in order, each with where it ends.

    A torn end of a segment that was never sealed is where that segment ends. Raises ArchiveDamaged
    for a sealed one that can not be read.
    """
    for segment in segments(folder):
        if (segment.epoch, segment.number) < since[:2]:
            continue
        begin = since.offset if (segment.epoch, segment.number) == since[:2] else 0
        for payload, end in _frames(segment, begin):
            records: list[Record] = []
            acts: list[Act] = []
            for line in payload.split(b"\n") if payload else ():
                value = orjson.loads(line)
                if "act" in value:
                    acts.append(Act(**value["act"]))
                elif "run" in value:
                    fields = fields_of(value["fields"])
                    records.append(Record(value["run"], value["inc"], value["id"], fields))
            if records or acts:
                yield records, acts, Position(segment.epoch, segment.number, end)


class ArchiveDamaged(FileCorrupt):
    """A sealed segment can not be read to its end."""


def _frames(segment: Segment, begin: int) -> Iterator[tuple[bytes, int]]:
    try:
        data = memoryview(segment.path.read_bytes())
    except FileNotFoundError:
        if segment.sealed:
            raise
        # Its writer has sealed it since it was listed.
        data = memoryview(segment.path.with_suffix("").read_bytes())
    place = begin
    decompress = zstandard.ZstdDecompressor().decompress
    while place < len(data):
        try:
            magic, _, length = _HEADER.unpack_from(data, place)
            end = place + _HEADER.size + length
            whole = magic == _MAGIC and end <= len(data)
            payload = decompress(data[place + _HEADER.size : end]) if whole else None
        except (struct.error, zstandard.ZstdError):
            payload = None
        if payload is None:
            if segment.sealed:
                raise ArchiveDamaged(
                    f"archive {segment.path.parent.name}/{segment.path.name} is damaged at byte "
                    f"{place}",
                    hint="put an intact copy of the segment back; see docs/recovery.md",
                )
            return
        place = end
        yield payload, place


def segment_size(segment: Segment) -> int:
    """Bytes of a segment so far; 0 for one that is gone."""
    for path in (segment.path, segment.path.with_suffix("")):
        try:
            return path.stat().st_size
        except FileNotFoundError:
            continue
    return 0


def about(folder: Path) -> dict[str, Any] | None:
    """What the first segment says of its partition: partition, partitions, rules, epoch; None
    without one.
    """
    for segment in segments(folder):
        for payload, _ in _frames(segment, 0):
            told: dict[str, Any] = orjson.loads(payload)
            return told
    return None


def missing(folder: Path, upto: Position) -> str | None:
    """The first segment that should be here and is not, of those that a file at a position has
    applied; None if all are. What expired is not missing: see `reaches_back_to`.
    """
    present = {segment[:2] for segment in segments(folder)}
    if upto.offset and upto[:2] not in present:
        return f"e{upto.epoch:08d}-{upto.number:06d}"
    for epoch, number in sorted(present):
        later = any(epoch == other and number < last for other, last in present)
        if later and (epoch, number + 1) not in present:
            return f"e{epoch:08d}-{number + 1:06d}"
    return None


def expire(folder: Path, before_ms: int) -> int:
    """Remove sealed segments last written before a time (ms), oldest first; returns how many.

    What is removed bounds how far a replay can go, so it is noted first. The newest segment stays.
    """
    removed = 0
    for segment in segments(folder)[:-1]:
        if not segment.sealed or segment.path.stat().st_mtime_ns // 1_000_000 >= before_ms:
            break
        note = folder / "expired.new"
        note.write_text(f"{segment.epoch}:{segment.number}:0\n")
        note.rename(folder / "expired")
        _sync_folder(folder)
        segment.path.unlink()
        removed += 1
    return removed


def last_epoch(folder: Path) -> int:
    """The newest epoch that wrote here; 0 if none did."""
    return max((segment.epoch for segment in segments(folder)), default=0)


def reaches_back_to(folder: Path, since: Position) -> bool:
    """Whether all that was archived past a position is still here."""
    if not segments(folder):
        return False
    try:
        expired = Position.parse((folder / "expired").read_text().strip())
    except FileNotFoundError:
        return True
    return since[:2] > expired[:2]


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
