"""Checkpoints from a thread of their own, so that no commit ever waits for one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread

import apsw

WAL_BYTES_MIN = 1024 * 1024
"""Below this a checkpoint is not worth its sync; a clean close does the rest."""


class Checkpointer(Thread):
    """Moves what the WALs hold into the files: PASSIVE, so it waits for nobody and nobody for
    it.
    """

    def __init__(self, paths: Sequence[Path], every_ms: int) -> None:
        super().__init__(name="checkpoint", daemon=True)
        self._paths = paths
        self._every_s = every_ms / 1000
        self._ended = Event()
        self._looked_at: dict[Path, int] = {}

    def run(self) -> None:
        """Look at each WAL, until stopped."""
        connections: dict[Path, apsw.Connection] = {}
        while not self._ended.wait(self._every_s):
            for path in self._paths:
                if self._has_grown(path):
                    self._checkpoint(connections, path)
        for connection in connections.values():
            connection.close()

    def stop(self) -> None:
        """End the thread; returns once its connections are closed."""
        self._ended.set()
        self.join()

    def _has_grown(self, path: Path) -> bool:
        wal = path.with_name(path.name + "-wal")
        try:
            status = wal.stat()
        except FileNotFoundError:
            return False
        grown = status.st_size >= WAL_BYTES_MIN and status.st_mtime_ns != self._looked_at.get(path)
        self._looked_at[path] = status.st_mtime_ns
        return grown

    def _checkpoint(self, connections: dict[Path, apsw.Connection], path: Path) -> None:
        try:
            if path not in connections:
                # It must never make the file: an empty one ends the WAL that lies beside it.
                connections[path] = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
                # A connection that has read nothing does not know of the WAL, and moves nothing.
                connections[path].pragma("schema_version")
            frames, moved = connections[path].wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            if moved < frames:
                # A reader still needs the file as it is. Nobody may write again: look again.
                self._looked_at.pop(path, None)
        except apsw.Error:
            # The writer meets the same fault at its next commit, and says so; here it only waits.
            broken = connections.pop(path, None)
            if broken is not None:
                broken.close()
