"""What a daemon says of itself in its data folder, for `statewriter status`."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Lock
from typing import Any

import orjson

from writer.clock import now_ms


class Health:
    """`daemon.json`: the process, and the state of each partition. Written when something
    changes.
    """

    def __init__(self, data: Path, redis: str) -> None:
        self._path = data / "daemon.json"
        self._lock = Lock()
        self._told: dict[str, Any] = {
            "pid": os.getpid(),
            "started_at": now_ms(),
            "redis": redis,
            "partitions": {},
        }

    def tell(self, partition: int, state: str, cause: str = "", hint: str = "") -> None:
        """Say how a partition is: starting, running, waiting (with the cause), stopped."""
        with self._lock:
            said = {"state": state, "cause": cause, "hint": hint, "since": now_ms()}
            self._told["partitions"][str(partition)] = said
            self._write()

    def _write(self) -> None:
        draft = self._path.with_suffix(".json.new")
        try:
            draft.write_bytes(orjson.dumps(self._told, option=orjson.OPT_INDENT_2))
            draft.replace(self._path)
        except OSError:
            # A full disk is what may have to be told. The lag and the log tell it, too.
            return

    def remove(self) -> None:
        """A stopped daemon says nothing."""
        self._path.unlink(missing_ok=True)


def read_health(data: Path) -> dict[str, Any] | None:
    """What the data folder's daemon said last; None if none runs. A dead one's word is not
    counted.
    """
    try:
        told: dict[str, Any] = orjson.loads((data / "daemon.json").read_bytes())
        os.kill(told["pid"], 0)
    except (OSError, ValueError, KeyError):
        return None
    return told
