"""A command in the buffer, in memory or on disk, and how full the buffer is."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from producers.handle import Sent
from producers.spool import Place

COMMAND_OVERHEAD_BYTES = 1_024
"""What a waiting command costs in memory beside the bytes of its fields."""
SPOOLED_BYTES = 512
"""What a command on disk costs in memory."""
SPILL_COMMANDS_MAX = 1_000
SPILL_BYTES_MAX = 4 * 1024 * 1024


class Waiting:
    """A command in the buffer: its handle, its size, its place in time and perhaps on disk."""

    __slots__ = ("born_s", "loaded", "place", "sent", "serial", "size_bytes")

    def __init__(self, sent: Sent, size_bytes: int, serial: int, born_s: float):
        self.sent = sent
        self.size_bytes = size_bytes
        self.serial = serial
        self.born_s = born_s
        self.place: Place | None = None
        self.loaded: dict[bytes, bytes] | None = None

    def load(self) -> dict[bytes, bytes]:
        """What travels, read from disk if it lies there; kept in `loaded`. Raises OSError."""
        fields = self.sent.fields
        if fields is None:
            assert self.place is not None
            fields = self.place.read()
        self.loaded = fields
        return fields

    @property
    def in_memory_only(self) -> bool:
        """Whether it would be lost with the process."""
        return self.place is None and self.sent.message_id is None

    @property
    def memory_bytes(self) -> int:
        """What it costs in memory."""
        return self.size_bytes if self.place is None else SPOOLED_BYTES


class Fresh:
    """Commands in the order of time, for who moves the oldest to disk.

    Some of them have left the memory already; they are forgotten when that costs little.
    """

    def __init__(self) -> None:
        self._commands: deque[Waiting] = deque()
        self.add = self._commands.append

    @property
    def born_s(self) -> float | None:
        """Since when the oldest waits; None without one. Only right after `tidy`."""
        return self._commands[0].born_s if self._commands else None

    def oldest(self) -> list[Waiting]:
        """The first ones that are in memory only, as many as go to disk in one go."""
        found: list[Waiting] = []
        size_bytes = 0
        for waiting in self._commands:
            if waiting.sent.message_id is not None:
                continue
            size_bytes += waiting.size_bytes
            if len(found) >= SPILL_COMMANDS_MAX or (found and size_bytes > SPILL_BYTES_MAX):
                break
            found.append(waiting)
        return found

    def tidy(self, waiting: int) -> None:
        """Forget the first ones if they are accepted or on disk, and all such if they are many
        beside those that wait.
        """
        commands = self._commands
        while commands and not commands[0].in_memory_only:
            commands.popleft()
        if len(commands) > 2 * waiting + 1_000:
            kept = [each for each in commands if each.in_memory_only]
            commands.clear()
            commands.extend(kept)


class Levels(NamedTuple):
    """How full the buffer is: commands ever accepted and dropped, those that wait, their bytes.

    Those on disk wait, too; `waiting_bytes` are of memory.
    """

    accepted: int = 0
    waiting: int = 0
    waiting_bytes: int = 0
    spooled: int = 0
    dropped: int = 0


Batch = list[tuple[str, list[Waiting]]]
