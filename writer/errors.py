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
    │   └── Misconfigured      settings and data contradict each other
    └── Usage           what was asked for can not be done

The third family, Reject, is not an error of ours: see `producers.contract.reasons`.
"""

from __future__ import annotations


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


class Usage(WriterError):
    """What was asked for can not be done."""

    exit_code = 2
