"""Cursors for who must not disturb the writer: the sweep asks for many at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import apsw

from writer.store.database import open_reader, translated

_ONE = """
SELECT c.message_id,
  t.run_key IS NOT NULL OR coalesce(r.terminal, 0)
FROM cursors c LEFT JOIN runs r USING (run_key) LEFT JOIN tombstones t USING (run_key)
WHERE c.run_id = ?
"""


class CursorReader:
    """Looks up cursors in one partition file, on a connection of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: apsw.Connection | None = None

    def __call__(self, runs: Sequence[str]) -> dict[str, tuple[str, bool]]:
        """Last settled message id of each run, and whether it has ended; unknown ones are left
        out.
        """
        if self._connection is None:
            self._connection = open_reader(self._path)
        found = {}
        with translated(self._path):
            for run in runs:
                row = self._connection.execute(_ONE, (run,)).fetchone()
                if row is not None:
                    found[run] = (row[0], bool(row[1]))
        return found

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
