"""Commands on disk while Redis can not take them: segments of records, only ever appended to.

    <folder>/<destination>/<producer id>/
        lock             held by the process whose commands these are
        00000001.spool   records: length, CRC-32, then the run and the fields

A record says which run it is of and not which partition, so the number of partitions need not be
known. A segment is removed when Redis has accepted all of it; until then a record may be sent
again, which its sequence makes harmless. What a killed process left torn at the end is passed over.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from threading import RLock
from typing import BinaryIO, NamedTuple
from zlib import crc32

from producers.handle import Sent

SEGMENT_BYTES = 16 * 1024 * 1024
_HEADER = struct.Struct("<II")
_LENGTH = struct.Struct("<I")
_SUFFIX = ".spool"
_LOCK = "lock"
_LOCK_TRIES = 10

Fields = dict[bytes, bytes]


class SpoolFull(OSError):
    """The spool holds as much as it may."""


class Segment:
    """One file. `left` counts its records that Redis has not accepted yet."""

    __slots__ = ("_file", "folder", "left", "path", "sealed", "size_bytes")

    def __init__(self, folder: Folder, path: Path) -> None:
        self.folder = folder
        self.path = path
        self.left = 0
        self.size_bytes = 0
        self.sealed = False
        self._file: BinaryIO | None = None

    def read(self, offset: int, length: int) -> bytes:
        """Bytes of it. Raises OSError, also if the file has become shorter."""
        if self._file is None:
            self._file = self.path.open("rb")
        found = os.pread(self._file.fileno(), length, offset)
        if len(found) < length:
            raise OSError(f"{self.path} is shorter than it was")
        return found

    def remove(self) -> None:
        """Close and unlink it."""
        self.close()
        # One that can not be removed is sent again some day: its sequences make that harmless.
        with suppress(OSError):
            self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close it; another read opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None


class Place(NamedTuple):
    """Where a record lies."""

    segment: Segment
    offset: int
    length: int

    def read(self) -> Fields:
        """The fields of the command. Raises OSError."""
        return decode_record(self.segment.read(self.offset, self.length))[1]


class Folder:
    """The spool of one producer, locked by whoever sends it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.segments: list[Segment] = []
        self._lock: int | None = None

    @property
    def locked(self) -> bool:
        """Whether we hold its lock."""
        return self._lock is not None

    def acquire(self) -> bool:
        """Lock it; False if a living process has it, or if it has gone."""
        path = self.path / _LOCK
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except (FileNotFoundError, PermissionError):
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever emptied the folder may have removed the file that we have just locked.
            ours = os.fstat(lock).st_ino == path.stat().st_ino
        except (BlockingIOError, FileNotFoundError):
            ours = False
        if ours:
            self._lock = lock
        else:
            os.close(lock)
        return ours

    def forget(self) -> None:
        """In a forked child: it is the parent's. Closing our copy of its lock does not free it."""
        for segment in self.segments:
            segment.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def release(self) -> None:
        """Unlock it, for the next process. An empty one goes."""
        if self._lock is None:
            return
        if not self.segments:
            shutil.rmtree(self.path, ignore_errors=True)
            with suppress(OSError):
                self.path.parent.rmdir()
        self.forget()


class Spool:
    """Where one producer's commands go, and where it finds those of the processes before it.

    Thread-safe. `append` and `adopt` raise OSError; nothing of a refused append stays.
    """

    def __init__(
        self,
        folder: Path,
        producer_id: str,
        *,
        bytes_max: int,
        fsync: bool,
        adopts: Path | None = None,
    ) -> None:
        """`folder` is a destination's; adopted is what lies there, or anywhere below `adopts`."""
        self._top = folder if adopts is None else adopts
        self._own = Folder(folder / producer_id)
        self._bytes_max = bytes_max
        self._fsync = fsync
        self._lock = RLock()
        self._adopted: list[Folder] = []
        self._file: FileIO | None = None
        self._count = 0
        self._own_bytes = 0
        self._closed = False

    def append(self, commands: Sequence[tuple[str, Fields]]) -> list[Place]:
        """Write commands and return their places. Raises SpoolFull, or OSError."""
        records = [encode_record(run, fields) for run, fields in commands]
        size = sum(map(len, records))
        with self._lock:
            if self._own_bytes + size > self._bytes_max:
                raise SpoolFull(f"{self._own.path} has reached spool_bytes_max ({self._bytes_max})")
            file = self._open()
            segment = self._own.segments[-1]
            start = segment.size_bytes
            try:
                rest = memoryview(b"".join(records))
                while rest:
                    rest = rest[file.write(rest) or 0 :]
                if self._fsync:
                    os.fsync(file.fileno())
            except OSError:
                # What was written of it would stand in the way of what follows.
                with suppress(OSError):
                    file.truncate(start)
                self._seal(segment)
                raise
            places = []
            for record in records:
                places.append(Place(segment, start + _HEADER.size, len(record) - _HEADER.size))
                start += len(record)
            segment.left += len(records)
            segment.size_bytes = start
            self._own_bytes += size
            if start >= SEGMENT_BYTES:
                self._seal(segment)
        return places

    def settle(self, places: Sequence[Place]) -> None:
        """Redis has these: a segment of which it has all goes."""
        with self._lock:
            if self._closed:
                # The next process may be sending it already.
                return
            for segment, _, _ in places:
                segment.left -= 1
                if segment.left == 0:
                    self._remove(segment)

    def adopt(self) -> list[tuple[Sent, Place]]:
        """What processes left that live no more, in the order in which they said it.

        A process that began to spool before another did comes first.
        """
        found: list[tuple[Sent, Place]] = []
        with self._lock:
            for folder in dead_folders(self._top):
                for path in segment_paths(folder.path):
                    segment = Segment(folder, path)
                    segment.sealed = True
                    whole = list(records_of(segment))
                    segment.left = len(whole)
                    if whole:
                        folder.segments.append(segment)
                        found += whole
                    else:
                        path.unlink(missing_ok=True)
                if folder.segments:
                    self._adopted.append(folder)
                else:
                    folder.release()
        return found

    def has_leftovers(self) -> bool:
        """Whether there is anything to adopt, unless its process still lives."""
        return bool(_folder_paths(self._top))

    def forget(self) -> None:
        """In a forked child: all of it is the parent's."""
        if self._file is not None:
            self._file.close()
        for folder in (self._own, *self._adopted):
            folder.forget()

    def close(self) -> None:
        """Leave what is on disk to the next process."""
        with self._lock:
            self._closed = True
            if self._file is not None:
                self._file.close()
                self._file = None
            for folder in (self._own, *self._adopted):
                folder.release()

    def _open(self) -> FileIO:
        if self._file is not None:
            return self._file
        for _ in range(_LOCK_TRIES):
            if self._own.locked:
                break
            self._own.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._own.acquire()
        else:
            raise OSError(f"{self._own.path} is locked by another process")
        self._count += 1
        path = self._own.path / f"{self._count:08d}{_SUFFIX}"
        # Tokens travel in it: for this user alone.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        # Unbuffered: a forked child has nothing of ours to write.
        self._file = FileIO(descriptor, "ab")
        self._own.segments.append(Segment(self._own, path))
        if self._fsync:
            _fsync_folder(self._own.path)
        return self._file

    def _seal(self, segment: Segment) -> None:
        segment.sealed = True
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None
        if segment.left == 0:
            self._remove(segment)

    def _remove(self, segment: Segment) -> None:
        if not segment.sealed:
            self._seal(segment)
            return
        folder = segment.folder
        if segment not in folder.segments:
            return
        folder.segments.remove(segment)
        segment.remove()
        if folder is self._own:
            self._own_bytes -= segment.size_bytes
        elif not folder.segments:
            folder.release()
            self._adopted.remove(folder)


def dead_folders(top: Path) -> Iterator[Folder]:
    """Folders whose process lives no more, locked now, the oldest first."""
    for path in _folder_paths(top):
        folder = Folder(path)
        if folder.acquire():
            yield folder


class Listed(NamedTuple):
    """A producer's spool: where to, whether its process lives, and how much is in it."""

    destination: str
    producer: str
    alive: bool
    runs: int
    commands: int
    bytes: int
    torn_bytes: int


def list_spool(top: Path) -> list[Listed]:
    """What is in a spool folder, the oldest first. Changes nothing."""
    listed = []
    for path in _folder_paths(top):
        folder = Folder(path)
        alive = not folder.acquire()
        folder.forget()
        runs: set[str] = set()
        commands = size = whole = 0
        for segment_path in segment_paths(path):
            with suppress(FileNotFoundError):
                size += segment_path.stat().st_size
                for sent, place in records_of(Segment(folder, segment_path)):
                    runs.add(sent.run)
                    commands += 1
                    whole += place.length + _HEADER.size
        listed.append(
            Listed(path.parent.name, path.name, alive, len(runs), commands, size, size - whole)
        )
    return listed


def segment_paths(folder: Path) -> list[Path]:
    """A folder's segments in order."""
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == _SUFFIX)
    except FileNotFoundError:
        return []


def records_of(segment: Segment) -> Iterator[tuple[Sent, Place]]:
    """The whole records of a segment, up to the first that is torn."""
    with segment.path.open("rb") as file:
        offset = 0
        while len(header := file.read(_HEADER.size)) == _HEADER.size:
            length, checksum = _HEADER.unpack(header)
            record = file.read(length)
            if len(record) < length or crc32(record) != checksum:
                return
            try:
                sent = _sent_of(record)
            except (ValueError, KeyError, IndexError, struct.error):
                return
            yield sent, Place(segment, offset + _HEADER.size, length)
            offset += _HEADER.size + length
            segment.size_bytes = offset


def encode_record(run: str, fields: Fields) -> bytes:
    """A command as it lies in a segment."""
    parts = [run.encode()]
    for field in fields.items():
        parts += field
    payload = b"".join(_LENGTH.pack(len(part)) + part for part in parts)
    return _HEADER.pack(len(payload), crc32(payload)) + payload


def decode_record(payload: bytes) -> tuple[str, Fields]:
    """The run and the fields of a record without its header."""
    parts = []
    at = 0
    while at < len(payload):
        (length,) = _LENGTH.unpack_from(payload, at)
        at += _LENGTH.size
        parts.append(payload[at : at + length])
        at += length
    return parts[0].decode(), dict(zip(parts[1::2], parts[2::2], strict=True))


def _sent_of(record: bytes) -> Sent:
    run, fields = decode_record(record)
    producer, seq, kind = fields[b"producer"], fields[b"seq"], fields[b"kind"]
    return Sent(run, producer.decode(), int(seq), kind.decode(), spooled=True)


def _folder_paths(top: Path) -> list[Path]:
    """A lock is made with its folder and never written, so its age is the folder's."""
    found = []
    # Not `rglob`: it raises when a folder goes while it looks, as those of producers that close do.
    for folder, _, names in os.walk(top):
        if _LOCK in names:
            path = Path(folder, _LOCK)
            with suppress(FileNotFoundError):
                found.append((path.stat().st_mtime_ns, path.parent))
    return [path for _, path in sorted(found)]


def _fsync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
