"""How a producer stands, and how it ended."""

from __future__ import annotations

from typing import NamedTuple


class Flushed(NamedTuple):
    """Commands accepted by Redis since the producer was made; of those before the flush, the rest.

    `error` says why some wait, if that is known.
    """

    accepted: int
    waiting: int
    error: str | None = None


class Closed(NamedTuple):
    """Where every command of the producer is now: the four add up to all that it took.

    `accepted` are in Redis, `spooled` on disk for the next process, `dropped` found no room.
    `undelivered` are lost, though one may have arrived if only Redis' answer was lost.
    """

    accepted: int
    undelivered: int
    spooled: int = 0
    dropped: int = 0
    error: str | None = None


class Status(NamedTuple):
    """How a producer stands. `error` is why nothing goes through now, None if all is well.

    `spooled` of the waiting ones are on disk; `waiting_bytes` are of memory.
    """

    producer_id: str
    redis: str | None
    connected: bool
    partitions: int | None
    accepted: int
    waiting: int
    waiting_bytes: int
    spooled: int
    dropped: int
    closed: bool
    error: str | None
