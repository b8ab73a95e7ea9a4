"""What a daemon says of itself in its data folder, for `statewriter status`."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

import orjson

from writer.clock import now_ms

ROOM_BYTES = 2_048
"""The file is kept this much larger than what it says, at least."""


class Health:
    """`daemon-<pid>.json`: the process, and the state of each of its partitions.

    Written when something changes; a folder may have several daemons, each for some partitions.
    """

    def __init__(self, data: Path, redis: str) -> None:
        self._path = data / f"daemon-{os.getpid()}.json"
        self._lock = Lock()
        self._told: dict[str, Any] = {
            "pid": os.getpid(),
            "started_at": now_ms(),
            "redis": redis,
            "partitions": {},
        }
        for path in data.glob("daemon-*.json"):
            if _read(path) is None:
                path.unlink(missing_ok=True)

    def tell(self, partition: int, state: str, cause: str = "", hint: str = "") -> None:
        """Say how a partition is: starting, running, standby, waiting (with the cause), stopped."""
        with self._lock:
            said = {"state": state, "cause": cause, "hint": hint, "since": now_ms()}
            self._told["partitions"][str(partition)] = said
            self._write()

    def _write(self) -> None:
        text = orjson.dumps(self._told, option=orjson.OPT_INDENT_2)
        draft = self._path.with_suffix(".json.new")
        try:
            draft.write_bytes(text.ljust((len(text) // ROOM_BYTES + 2) * ROOM_BYTES))
            draft.replace(self._path)
        except OSError:
            self._write_in_place(text)

    def _write_in_place(self, text: bytes) -> None:
        """Tell a full disk's fault in the room that was taken before. If it can not: so does the
        log.
        """
        with suppress(OSError):
            self._path.with_suffix(".json.new").unlink(missing_ok=True)
            with self._path.open("r+b") as file:
                room = os.fstat(file.fileno()).st_size
                if len(text) <= room:
                    file.write(text.ljust(room))

    def remove(self) -> None:
        """A stopped daemon says nothing."""
        self._path.unlink(missing_ok=True)


def read_health(data: Path) -> dict[str, Any] | None:
    """What the data folder's living daemons said last, as one; None if none runs.

    Of a partition that several know of, one that runs it counts before one that stands by.
    """
    living = [told for path in sorted(data.glob("daemon-*.json")) if (told := _read(path))]
    if not living:
        return None
    partitions: dict[str, Any] = {}
    for told in living:
        for partition, said in told["partitions"].items():
            known = partitions.get(partition)
            if known is None or known["state"] in ("standby", "stopped"):
                partitions[partition] = said
    return {**living[0], "pids": [told["pid"] for told in living], "partitions": partitions}


def _read(path: Path) -> dict[str, Any] | None:
    """One daemon's word; None if it is dead, for then it does not count."""
    try:
        told: dict[str, Any] = orjson.loads(path.read_bytes())
        os.kill(told["pid"], 0)
    except (OSError, ValueError, KeyError):
        return None
    return told
