"""What can go wrong in the writer, in the three families that the loop treats differently.

    WriterError
    ├── Retry           keep everything, back off, go on by itself
    │   ├── StoreUnavailable   SQLite is busy, full, read-only or can not do I/O
    │   └── RedisUnavailable   Redis is away, full, loading or a replica
    ├── Stop            end with an exit code of its own and say what to do
    │   ├── Fenced             another writer has taken the partition
    │   ├── PartitionTaken     another writer owns it already
    │   ├── FileCorrupt        the file is damaged, or is no file of ours
    │   ├── FileTooNew         the file was written by a newer statewriter
    │   ├── FileBehind         the file is an older copy than Redis has seen settled
    │   ├── FileMoved          the file was moved, deleted or replaced while it was written
    │   ├── Misconfigured      settings and data contradict each other
    │   └── Defect             an error of our own
    └── Usage           what was asked for can not be done

The third family, Reject, is not an error of ours: see `producers.contract.reasons`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple


class WriterError(Exception):
    """Something went wrong; `hint` says what to do about it."""

    exit_code = 1

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        super().__init__(message or (type(self).__doc__ or "").partition("\n")[0])
        self.hint = hint


class Retry(WriterError):
    """The partition waits and tries again; nothing is lost."""

    exit_code = 10


class StoreUnavailable(Retry):
    """SQLite can not write right now."""


class RedisUnavailable(Retry):
    """Redis can not be used right now."""

    exit_code = 11


class Stop(WriterError):
    """The partition can not go on."""

    exit_code = 20


class Fenced(Stop):
    """Another writer has taken the partition: nothing was written."""

    exit_code = 21


class PartitionTaken(Stop):
    """Another writer owns the partition."""

    exit_code = 22


class FileCorrupt(Stop):
    """The file is damaged, or is not a partition file."""

    exit_code = 23


class FileTooNew(Stop):
    """The file was written by a newer statewriter."""

    exit_code = 24


class FileBehind(Stop):
    """The file is an older copy: Redis has seen later commits settled."""

    exit_code = 25


class Misconfigured(Stop):
    """Settings and data contradict each other."""

    exit_code = 26


class FileMoved(Stop):
    """The file was moved, deleted or replaced while it was written."""

    exit_code = 28


class Defect(Stop):
    """An error of statewriter's own."""

    exit_code = 27

    def __init__(self, message: str = "") -> None:
        super().__init__(
            message,
            hint="nothing was lost; start it again, and report this with the log's last lines",
        )


class Usage(WriterError):
    """What was asked for can not be done."""

    exit_code = 2


class Fault(NamedTuple):
    """How a library's exception is taken: the family, the cause in words, and the next step."""

    error: str
    becomes: type[WriterError]
    cause: str
    hint: str


_WAITS = "the writer goes on by itself"
FAULTS = (
    Fault(
        "apsw.BusyError",
        StoreUnavailable,
        "another process holds the file's write lock",
        f"end that process; {_WAITS}",
    ),
    Fault("apsw.LockedError", StoreUnavailable, "the file is locked", f"wait: {_WAITS}"),
    Fault("apsw.FullError", StoreUnavailable, "the disk is full", f"make room; {_WAITS}"),
    Fault(
        "apsw.IOError",
        StoreUnavailable,
        "the disk can not be read or written",
        f"look at the system's log and at size limits; {_WAITS}",
    ),
    Fault(
        "apsw.ReadOnlyError",
        StoreUnavailable,
        "the file may not be written",
        f"give the writer's user the right to write; {_WAITS}",
    ),
    Fault(
        "apsw.CantOpenError",
        StoreUnavailable,
        "the file can not be opened",
        f"look at the folder and its rights; {_WAITS}",
    ),
    Fault("apsw.NoMemError", StoreUnavailable, "there is no memory left", f"free some; {_WAITS}"),
    Fault(
        "apsw.ProtocolError", StoreUnavailable, "the file's locks are contended", f"wait: {_WAITS}"
    ),
    Fault(
        "apsw.CorruptError",
        FileCorrupt,
        "the file is damaged",
        "keep a copy, then restore a backup or rebuild the file by replay",
    ),
    Fault(
        "apsw.NotADBError",
        FileCorrupt,
        "the file is no SQLite file",
        "keep a copy, then restore a backup or rebuild the file by replay",
    ),
    Fault(
        "redis.exceptions.AuthenticationError",
        RedisUnavailable,
        "Redis refuses the password",
        "check the URL's user and password",
    ),
    Fault(
        "redis.exceptions.AuthorizationError",
        RedisUnavailable,
        "Redis refuses the user",
        "check the URL's user and password",
    ),
    Fault(
        "redis.exceptions.NoPermissionError",
        RedisUnavailable,
        "the Redis user lacks a right",
        "give it the rights that deploy/redis.conf names",
    ),
    Fault(
        "redis.exceptions.OutOfMemoryError",
        RedisUnavailable,
        "Redis is at maxmemory",
        f"raise maxmemory; {_WAITS}",
    ),
    Fault(
        "redis.exceptions.ReadOnlyError",
        RedisUnavailable,
        "Redis is a replica",
        f"point --redis at the primary; {_WAITS} when it is one again",
    ),
    Fault(
        "redis.exceptions.BusyLoadingError",
        RedisUnavailable,
        "Redis is loading its data",
        f"wait: {_WAITS}",
    ),
    Fault(
        "redis.exceptions.TimeoutError",
        RedisUnavailable,
        "Redis does not answer in time",
        f"look at the server's load; {_WAITS}",
    ),
    Fault(
        "redis.exceptions.ConnectionError",
        RedisUnavailable,
        "Redis can not be reached",
        f"start it; {_WAITS}",
    ),
    Fault(
        "redis.exceptions.RedisError",
        RedisUnavailable,
        "Redis answers with an error",
        "look at the server's log",
    ),
)
"""The one table. Exceptions stand by name, so that it can be read without the libraries; of a class
and its bases the nearest counts. What is not in it is unexpected: the batch is halved down to the
one command at fault, whose run is quarantined.
"""
_BY_NAME = {fault.error: fault for fault in FAULTS}


def translate(error: BaseException, where: str) -> WriterError | None:
    """A library's exception as ours, naming `where`; None for one that the table does not have."""
    for kind in type(error).__mro__:
        fault = _BY_NAME.get(f"{kind.__module__}.{kind.__qualname__}")
        if fault is not None:
            return fault.becomes(f"{where}: {fault.cause} ({str(error)[:200]})", hint=fault.hint)
    return None


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Within it, exceptions of the table come out as ours."""
    try:
        yield
    except WriterError:
        raise
    except Exception as error:
        ours = translate(error, where)
        if ours is None:
            raise
        raise ours from error
