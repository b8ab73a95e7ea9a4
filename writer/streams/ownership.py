"""Who writes a partition. Redis says it with a TTL; the file's epoch is what really fences.

The file lock only makes an accidental second start fail early. Local time may only make an owner
step down sooner: it trusts its lease from before it asked for it, less a margin.
"""

from __future__ import annotations

import fcntl
import os
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from producers.contract.keys import Keys
from writer.clock import SYSTEM, Clock
from writer.errors import Fenced, PartitionTaken
from writer.streams.link import lua, text, translated

MARGIN = 0.25
"""Part of the TTL that is never trusted."""
RENEW = 0.3
"""Part of the TTL after which the lease is renewed."""


def writer_id(nonce: str) -> str:
    """How a writer signs: host, process, and a nonce against reused pids."""
    return f"{socket.gethostname()}:{os.getpid()}:{nonce}"


class FileLock:
    """An exclusive lock beside a partition file, for as long as the process lives."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None

    def acquire(self) -> None:
        """Raise PartitionTaken, naming the holder, if another process has it."""
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(handle, 200).decode(errors="replace").strip()
            os.close(handle)
            raise PartitionTaken(
                f"{self._path.stem} is already written by process {holder or 'unknown'}",
                hint="stop that daemon first, or use another --data folder",
            ) from None
        self._handle = handle
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        except OSError:
            self.release()
            raise

    def holder(self) -> str:
        """The process that had the lock last, as it wrote it; empty if none did."""
        try:
            return self._path.read_text(errors="replace").strip()[:20]
        except OSError:
            return ""

    def release(self) -> None:
        """Give the lock back; the file stays, so that nobody locks a removed one."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


@dataclass(slots=True)
class Ownership:
    """The Redis lease on one partition."""

    client: redis.Redis
    keys: Keys
    partition: int
    writer: str
    ttl_ms: int
    clock: Clock = SYSTEM
    _trusted_until: float = 0.0
    _renew_at: float = 0.0
    _own: Any = field(init=False)
    _disown: Any = field(init=False)

    def __post_init__(self) -> None:
        self._own = self.client.register_script(lua("own.lua"))
        self._disown = self.client.register_script(lua("disown.lua"))

    def acquire(self) -> None:
        """Take the partition. Raises PartitionTaken while a live writer has it."""
        owner = self._ask("")
        if owner != self.writer and _is_dead(owner):
            owner = self._ask(owner)
        if owner != self.writer:
            raise PartitionTaken(
                f"partition {self.partition} is written by {owner}",
                hint="stop that daemon first; after a crash of its host wait for its lease to end",
            )

    def keep(self) -> None:
        """Renew when it is time to. Raises Fenced if the partition is another's by now."""
        if self.clock.monotonic() < self._renew_at:
            return
        owner = self._ask("")
        if owner != self.writer:
            raise Fenced(
                f"partition {self.partition} was taken by {owner}",
                hint="this writer stepped down; nothing of it was lost",
            )

    @property
    def trusted(self) -> bool:
        """Whether the lease surely still holds."""
        return self.clock.monotonic() < self._trusted_until

    def distrust(self) -> None:
        """Ask Redis again before anything else."""
        self._renew_at = 0.0

    def release(self) -> None:
        """Give the partition back, if it is ours."""
        with translated():
            self._disown(keys=[self.keys.owner(self.partition)], args=[self.writer])

    def _ask(self, replaced: str) -> str:
        asked = self.clock.monotonic()
        with translated():
            owner = text(
                self._own(
                    keys=[self.keys.owner(self.partition)],
                    args=[self.writer, self.ttl_ms, replaced],
                )
            )
        if owner == self.writer:
            self._trusted_until = asked + self.ttl_ms / 1000 * (1 - MARGIN)
            self._renew_at = asked + self.ttl_ms / 1000 * RENEW
        return owner


def _is_dead(owner: str) -> bool:
    """Whether the owner was a process of this host that is gone; of other hosts we can not know."""
    host, _, rest = owner.partition(":")
    pid = rest.partition(":")[0]
    if host != socket.gethostname() or not pid.isdigit():
        return False
    if int(pid) == os.getpid() == 1:
        # A former process of this pid, in a container whose every process is the first.
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
