"""Follows transcripts as they grow: newline-delimited JSON files that coding agents write.

A file is a run, a line an entry of its transcript. A line's identity is its place and its content,
so a line that is sent again, after a crash or by a second follower, is stored once. Positions are
kept in a file only to save work: without it everything is read again and nothing is stored twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, NamedTuple

import orjson

from producers.client import Producer
from producers.contract.jsontext import JsonRefused, parse_json
from producers.errors import InvalidCommand
from producers.integrations.journal import run_id_of
from producers.run import Run
from producers.session import Session

KIND = "transcript"
LINE_BYTES_MAX = 4_000_000
READ_BYTES = 1 << 20
SHOWN_CHARS = 10_000


class Followed(NamedTuple):
    """What one look did: lines sent, and those that were no JSON (sent as text)."""

    lines: int
    unreadable: int


class _File:
    """One file, held open, so that what was appended before it was rotated away is still read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO = path.open("rb")
        self.inode = os.fstat(self._file.fileno()).st_ino
        self.position = 0
        self.first: str | None = None
        self.session: Session | None = None

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Whole lines past the position, each with where it begins; a torn one waits."""
        rest = b""
        start = self.position
        self._file.seek(start)
        while chunk := self._file.read(READ_BYTES):
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                yield start, line
                start += len(line) + 1
                self.position = start

    def was_truncated(self) -> bool:
        """Whether the file is shorter than what was read, or begins otherwise."""
        if os.fstat(self._file.fileno()).st_size < self.position:
            return True
        return self.first is not None and self.first != self.first_line()

    def first_line(self) -> str | None:
        """SHA-256 of the first line; None while it is torn or longer than a line may be."""
        self._file.seek(0)
        line = self._file.readline(LINE_BYTES_MAX)
        return sha256(line).hexdigest() if line.endswith(b"\n") else None

    def close(self) -> None:
        """Let go of it."""
        self._file.close()


class Follower:
    """Follows the files below a folder. Call `look` again and again, then `close`."""

    def __init__(
        self,
        producer: Producer,
        folder: Path,
        *,
        pattern: str = "**/*.jsonl",
        positions: Path | None = None,
    ) -> None:
        """`positions` is a file by which a restart saves work; in the data folder by default."""
        self._producer = producer
        self._folder = folder.absolute()
        self._pattern = pattern
        name = sha256(f"{self._folder}/{pattern}".encode()).hexdigest()[:16]
        self._positions = positions or producer.settings.data / f"transcripts-{name}.json"
        self._files: dict[Path, _File] = {}
        self._known = self._load()
        self._unreadable = 0

    def look(self) -> Followed:
        """Send what was appended since the last look."""
        lines = unreadable = 0
        for path in sorted(self._folder.glob(self._pattern)):
            for file in self._changed(path):
                sent = self._send(file)
                lines, unreadable = lines + sent.lines, unreadable + sent.unreadable
        return Followed(lines, unreadable)

    def save(self, timeout_s: float = 5) -> bool:
        """Remember the positions, if Redis has all that lies before them; whether it has."""
        told = {
            str(path.relative_to(self._folder)): (file.first, file.position)
            for path, file in self._files.items()
            if file.first is not None
        }
        if self._producer.flush(timeout_s).waiting:
            return False
        self._known |= told
        self._positions.parent.mkdir(parents=True, exist_ok=True)
        new = self._positions.with_suffix(".new")
        new.write_bytes(orjson.dumps(self._known))
        new.replace(self._positions)
        return True

    def close(self) -> None:
        """Let go of the files. Positions are kept by `save`."""
        for file in self._files.values():
            file.close()
        self._files = {}

    def _changed(self, path: Path) -> Iterator[_File]:
        """The file at a path; before it what was there before, if it was rotated away."""
        known = self._files.get(path)
        try:
            if known is not None and known.inode != path.stat().st_ino:
                yield known
                known.close()
                known = None
            if known is not None and known.was_truncated():
                known.close()
                known = None
            if known is None:
                known = self._files[path] = _File(path)
        except FileNotFoundError:
            return
        yield known

    def _send(self, file: _File) -> Followed:
        if file.session is None:
            file.first = file.first_line()
            if file.first is None:
                return Followed(0, 0)
            file.session = self._open(file)
        lines = unreadable = 0
        for start, line in file.lines():
            if line.strip():
                lines += 1
                unreadable += not self._append(file.session, start, line)
        return Followed(lines, unreadable)

    def _open(self, file: _File) -> Session:
        name = str(file.path.relative_to(self._folder))
        first, position = self._known.get(name, ("", 0))
        size = file.path.stat().st_size
        file.position = position if first == file.first and position <= size else 0
        # The same from any process: a repeated create or bind changes nothing.
        run: Run = self._producer.create_run(
            KIND, run_id=run_id_of(KIND, f"{name} {file.first}", 1), title=name[-1000:]
        )
        session = run.session(KIND)
        session.bind()
        return session

    def _append(self, session: Session, start: int, line: bytes) -> bool:
        identity = f"{start}-{sha256(line).hexdigest()[:16]}"
        try:
            entry = parse_json(line)
            if not isinstance(entry, dict):
                entry = {"value": entry}
            session.entry(entry, entry_id=identity)
        except (JsonRefused, InvalidCommand):
            text = line.decode(errors="replace")[:SHOWN_CHARS]
            session.entry({"unreadable": text, "bytes": len(line)}, entry_id=identity)
            return False
        return True

    def _load(self) -> dict[str, tuple[str, int]]:
        try:
            found = orjson.loads(self._positions.read_bytes())
            return {name: (first, int(at)) for name, (first, at) in found.items()}
        except (OSError, ValueError, AttributeError, TypeError):
            return {}
