"""Cursors for who must not disturb the writer: the sweep asks for many at a time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import apsw
import orjson

from writer.store.database import open_reader, translated

# A run that exists has no tombstone.
_UNLIKE = """
SELECT s.key FROM json_each(?) s
LEFT JOIN cursors c ON c.run_id = s.key
LEFT JOIN runs r ON r.run_key = c.run_key
WHERE coalesce(c.message_id, '0-0') <> s.value OR CASE
  WHEN r.run_key IS NULL THEN EXISTS (SELECT 1 FROM tombstones t WHERE t.run_key = c.run_key)
  ELSE r.terminal
END
"""


class CursorReader:
    """Compares streams with one partition file, on a connection of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: apsw.Connection | None = None

    def __call__(self, streams: Mapping[str, str]) -> list[str]:
        """Of runs with message ids, those that are not settled up to just there, or have ended."""
        if self._connection is None:
            self._connection = open_reader(self._path)
        with translated(self._path):
            rows: list[tuple[Any, ...]] = self._connection.execute(
                _UNLIKE, (orjson.dumps(streams).decode(),)
            ).fetchall()
        return [run for (run,) in rows]

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
