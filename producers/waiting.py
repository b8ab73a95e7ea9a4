"""A command in the buffer, in memory or on disk, and how full the buffer is."""

from __future__ import annotations

from typing import NamedTuple

from producers.handle import Sent
from producers.spool import Place

COMMAND_OVERHEAD_BYTES = 1_024
"""What a waiting command costs in memory beside the bytes of its fields."""
SPOOLED_BYTES = 512
"""What a command on disk costs in memory."""


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
    def memory_bytes(self) -> int:
        """What it costs in memory."""
        return self.size_bytes if self.place is None else SPOOLED_BYTES


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
