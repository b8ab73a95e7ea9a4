"""The archive: every settled message, kept on disk before Redis may forget it.

A partition's archive is a folder of segments, read in the order of their names. A segment is a
sequence of zstd frames; the first holds what the segment is, each later one a batch: one JSON
object a line, and behind a message's line the values of its fields, byte for byte. A batch's frame
is synced before its COMMIT, so what is settled is archived. The reverse does not hold: a batch
whose commit failed stands here too, and again when it was applied after all. Readers take each
(run, incarnation, id) once.

Each epoch writes segments of its own, so a writer that lost its partition can not spoil its
successor's. A segment's first frame says up to where its epoch has read the earlier ones: what
stands there behind that was never committed, and is not read. For that to hold for whoever reads
later, an epoch writes, and takes back what failed, only while it has the file: a batch's frame is
written inside the batch's transaction, once the epoch is known to be the file's.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import zstandard

from writer.errors import FileCorrupt, StoreUnavailable

SEGMENT_BYTES_MAX = 64 * 1024 * 1024
HEAD_BYTES_MAX = 64 * 1024
"""More than the first frame of a segment has."""
LEVEL = 1
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
    """One operator act that was carried out, and who asked for it. See `writer.core.acts`."""

    id: str
    act: str
    run: str
    incarnation: int
    message_id: str
    operator: str = "unknown"


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


Fence = Callable[[Callable[[], None]], None]
"""Does something that no later epoch may have read past. Raises Fenced if there is one."""


class Archive:
    """The writing end of one partition's archive, for one epoch."""

    def __init__(
        self,
        folder: Path,
        epoch: int,
        about: Mapping[str, Any],
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
        after: Position = START,
        fence: Fence = lambda act: act(),
    ) -> None:
        self._folder = folder
        self._epoch = epoch
        self._about = orjson.dumps({**about, "epoch": epoch, "after": after.text()})
        self._bytes_max = segment_bytes_max
        self._fence = fence
        self._compress = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress
        self._number = 0
        self._handle: int | None = None
        self._path = folder
        self._size = 0
        self.position = after
        """Where the last batch ends, of this epoch or before it."""
        self._before = (after, 0)

    def append(self, records: Iterable[Record], acts: Iterable[Act] = ()) -> Position:
        """Write a batch and sync it; returns where it ends. Raises StoreUnavailable, and then
        nothing of it will be read. To be called while nobody else can take the partition.
        """
        lines = [orjson.dumps({"act": act._asdict()}) for act in acts]
        for record in records:
            lines += (orjson.dumps(_head(record)), b"".join(record.fields.values()))
        with self._guarded():
            if self._handle is not None and self._size >= self._bytes_max:
                self._seal()
            if self._handle is None:
                self._open()
            self._before = (self.position, self._size)
            self._write(b"\n".join(lines))
        self.position = Position(self._epoch, self._number, self._size)
        return self.position

    def take_back(self) -> None:
        """Forget the last batch: it could not be committed, and will not be as it stands here.

        Raises StoreUnavailable; Fenced if a later epoch may have applied it from here.
        """
        self._fence(self._take_back)

    def _take_back(self) -> None:
        assert self._handle is not None
        position, size = self._before
        with self._guarded():
            os.ftruncate(self._handle, size)
            os.lseek(self._handle, size, os.SEEK_SET)
            os.fdatasync(self._handle)
        self.position, self._size = position, size

    def close(self) -> None:
        """Seal the segment that is open. Where that fails it stays open, and is read as well."""
        if self._handle is not None:
            with suppress(StoreUnavailable), self._guarded():
                self._seal()

    def _open(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._number += 1
        self._path = self._folder / f"e{self._epoch:08d}-{self._number:06d}.zst.open"
        self._handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._size = 0
        self._write(self._about)
        sync_folder(self._folder)

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
        with suppress(FileNotFoundError):
            # Retention may have removed what a writer that lost its partition left open.
            self._path.rename(self._path.with_suffix(""))
        sync_folder(self._folder)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """After an error the next batch begins a new segment: this one's end is not trusted."""
        try:
            yield
        except OSError as error:
            if self._handle is not None:
                os.close(self._handle)
                self._handle = None
            raise StoreUnavailable(
                f"archive {self._folder.name}: {error.strerror or error}",
                hint="make room or give the right to write; the writer goes on by itself",
            ) from error


def read_archive(
    folder: Path, since: Position = START
) -> Iterator[tuple[list[Record], list[Act], Position]]:
    """The batches past a position, in order, each with where it ends.

    A torn end of a segment that was never sealed is where that segment ends. Raises ArchiveDamaged
    for a sealed one that can not be read.
    """
    found = [segment for segment in segments(folder) if segment[:2] >= since[:2]]
    ends = _ends(found)
    for segment in found:
        begin = since.offset if segment[:2] == since[:2] else 0
        last = ends[segment.epoch]
        for payload, end in _frames(segment, begin):
            if last is not None and (*segment[:2], end) > last:
                break
            records: list[Record] = []
            acts: list[Act] = []
            for value, fields in _values(payload):
                if "act" in value:
                    acts.append(Act(**value["act"]))
                elif "run" in value:
                    records.append(Record(value["run"], value["inc"], value["id"], fields))
            if records or acts:
                yield records, acts, Position(segment.epoch, segment.number, end)


def _head(record: Record) -> dict[str, Any]:
    """What stands in front of a message's fields: names, read as Latin-1, and sizes in bytes."""
    sizes = [(name.decode("latin-1"), len(value)) for name, value in record.fields.items()]
    return {"run": record.run, "inc": record.incarnation, "id": record.id, "fields": sizes}


def _values(payload: bytes) -> Iterator[tuple[dict[str, Any], dict[bytes, bytes]]]:
    """The lines of a frame, each with the fields that follow it, if it says so."""
    place = 0
    while place < len(payload):
        end = payload.find(b"\n", place)
        end = end if end >= 0 else len(payload)
        value = orjson.loads(payload[place:end])
        place = end + 1
        fields = {}
        for name, size in value.get("fields", ()):
            fields[name.encode("latin-1")] = payload[place : place + size]
            place += size
        yield value, fields
        place += "fields" in value


def _ends(found: Sequence[Segment]) -> dict[int, Position | None]:
    """Of each epoch, where its batches end: up to there the next one that counts has read them."""
    ends: dict[int, Position | None] = {}
    last: Position | None = None
    firsts = {segment.epoch: segment for segment in reversed(found)}
    for epoch, first in firsts.items():
        ends[epoch] = last
        if last is None or first[:2] <= last[:2]:
            told = _told(first)
            if told is not None and "after" in told:
                after = Position.parse(told["after"])
                last = after if last is None else min(last, after)
    return ends


def _told(segment: Segment) -> dict[str, Any] | None:
    """What a segment says of itself; None if it was torn before that."""
    frame = _frame(memoryview(_read(segment, HEAD_BYTES_MAX)), 0)
    told: dict[str, Any] | None = None if frame is None else orjson.loads(frame[0])
    return told


class ArchiveDamaged(FileCorrupt):
    """A sealed segment can not be read to its end."""


def _frames(segment: Segment, begin: int) -> Iterator[tuple[bytes, int]]:
    data = memoryview(_read(segment))
    place = begin
    while place < len(data):
        frame = _frame(data, place)
        if frame is None:
            if segment.sealed:
                raise ArchiveDamaged(
                    f"archive {segment.path.parent.name}/{segment.path.name} is damaged at byte "
                    f"{place}",
                    hint="put an intact copy of the segment back; see docs/recovery.md",
                )
            return
        yield frame
        place = frame[1]


def _read(segment: Segment, size: int = -1) -> bytes:
    try:
        file = segment.path.open("rb")
    except FileNotFoundError:
        if segment.sealed:
            raise StoreUnavailable(
                f"archive {segment.path.parent.name}/{segment.path.name} went while it was read",
                hint="it has expired: try again",
            ) from None
        # Its writer has sealed it since it was listed.
        file = segment.path.with_suffix("").open("rb")
    with file:
        return file.read(size)


def _frame(data: memoryview, place: int) -> tuple[bytes, int] | None:
    """The frame at a place and where it ends; None if it is not whole."""
    try:
        magic, _, length = _HEADER.unpack_from(data, place)
        end = place + _HEADER.size + length
        if magic != _MAGIC or end > len(data):
            return None
        return zstandard.ZstdDecompressor().decompress(data[place + _HEADER.size : end]), end
    except (struct.error, zstandard.ZstdError):
        return None


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
    found = (_told(segment) for segment in segments(folder))
    return next((told for told in found if told is not None), None)


def sync_folder(folder: Path) -> None:
    """Make what was created, renamed or removed in a folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
