"""What a daemon says of itself in its data folder, for `statewriter status`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

import orjson

from writer.clock import now_ms

ROOM_BYTES = 2_048
"""The file is kept this much larger than what it says, at least."""
ENDED = "daemon-ended.json"
"""Where the last daemon's end is told, until another begins."""
BEAT_S = 1.0
"""How often a daemon says that it is there."""
SILENT_MS_MAX = 6_000
"""A daemon that has not said so for this long stands still."""


class Health:
    """`daemon-<pid>.json`: the process, and the state of each of its partitions.

    Written when something changes, and touched by `beat` while all is alive; a folder may have
    several daemons, each for some partitions.
    """

    def __init__(self, data: Path, redis: str) -> None:
        """`redis` is the server's URL; its password is not written down."""
        self._path = data / f"daemon-{os.getpid()}.json"
        self._lock = Lock()
        self._told: dict[str, Any] = {
            "pid": os.getpid(),
            "born": _born(os.getpid()),
            "started_at": now_ms(),
            "redis": _without_password(redis),
            "waits": "",
            "partitions": {},
        }
        for path in data.glob("daemon-*.json"):
            if _read(path) is None:
                with suppress(OSError):
                    path.unlink()

    def tell(self, partition: int, state: str, cause: str = "", hint: str = "") -> None:
        """Say how a partition is: starting, running, standby, waiting (with the cause), stopped."""
        with self._lock:
            said = {"state": state, "cause": cause, "hint": hint, "since": now_ms()}
            self._told["partitions"][str(partition)] = said
            self._write()

    def waits_for(self, cause: str) -> None:
        """Say what the daemon waits for before it has any partition; "" once it has begun, which
        is written with the first of them.
        """
        with self._lock:
            self._told["waits"] = cause
            if cause:
                self._write()

    def beat(self) -> None:
        """Say that all that was told still holds."""
        with suppress(OSError):
            os.utime(self._path)

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

    def end(self, cause: str = "", hint: str = "") -> None:
        """A stopped daemon says nothing; one that could not go on leaves word why."""
        with suppress(OSError):
            self._path.unlink()
        with suppress(OSError):
            ended = self._path.with_name(ENDED)
            ended.unlink(missing_ok=True)
            if cause:
                word = {"cause": cause, "hint": hint, "at": now_ms()}
                ended.write_bytes(orjson.dumps(word, option=orjson.OPT_INDENT_2))


def last_end(data: Path) -> str:
    """Why the folder's last daemon could not go on; "" if it was stopped or one began since."""
    try:
        return str(orjson.loads((data / ENDED).read_bytes())["cause"])
    except (OSError, ValueError, KeyError):
        return ""


def read_health(data: Path) -> dict[str, Any] | None:
    """What the data folder's living daemons said last, as one; None if none runs.

    Of a partition that several know of, one that runs it counts before one that stands by. One
    whose daemon has been silent for too long is `silent`, whatever it said.
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
    return {
        **living[0],
        "pids": [told["pid"] for told in living],
        "waits": next((told["waits"] for told in living if told["waits"]), ""),
        "partitions": partitions,
    }


def _read(path: Path) -> dict[str, Any] | None:
    """One daemon's word; None if it is dead, for then it does not count."""
    try:
        told: dict[str, Any] = orjson.loads(path.read_bytes())
        silent_ms = now_ms() - path.stat().st_mtime_ns // 1_000_000
        if not _lives(told["pid"], told["born"]):
            return None
    except (OSError, ValueError, KeyError):
        return None
    if silent_ms > SILENT_MS_MAX:
        told["partitions"] = dict(_silenced(told, silent_ms))
    return told


def _silenced(told: dict[str, Any], silent_ms: int) -> Iterator[tuple[str, dict[str, Any]]]:
    for partition, said in told["partitions"].items():
        cause = (
            f"process {told['pid']} was last heard of {silent_ms // 1000} s ago: it is stopped, "
        )
        cause += "or hangs"
        hint = "let it go on, or kill it and start it again: nothing is lost by that"
        yield partition, {**said, "state": "silent", "cause": cause, "hint": hint}


def _without_password(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    return scheme + separator + rest.rpartition("@")[2]


def _lives(pid: int, born: str | None) -> bool:
    """Whether the process is there, and no other that got its number since."""
    # Of another user's we are not told more than that.
    with suppress(PermissionError):
        os.kill(pid, 0)
    return born == _born(pid)


def _born(pid: int) -> str | None:
    """When a process began, in ticks since the machine did; None where that is not told."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[19]
