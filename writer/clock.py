"""The one place of the writer that asks what time it is.

The core never does: there, time is the milliseconds of a message's id.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def now_ms() -> int:
    """Wall clock, milliseconds since 1970 UTC. It may leap: for records, never for waiting."""
    return time.time_ns() // 1_000_000


def monotonic() -> float:
    """Seconds that only ever grow, from an arbitrary start: for deadlines and durations."""
    return time.monotonic()


def processor_s() -> float:
    """Seconds of processor time that this thread has used."""
    return time.thread_time()


class Clock(NamedTuple):
    """Where a writer's times come from; a simulation brings its own."""

    now_ms: Callable[[], int]
    monotonic: Callable[[], float]


SYSTEM = Clock(now_ms, monotonic)
"""The machine's."""


def sleep(seconds: float) -> None:
    """Wait; returns at once for zero or less."""
    if seconds > 0:
        time.sleep(seconds)


def iso(ms: int) -> str:
    """Milliseconds as ISO 8601 in UTC, `2026-01-02T03:04:05.678Z`.

    A message id may name a time that no calendar holds (past the year 9999); that is shown as
    its bare number, since a display must not fail on what a host sent.
    """
    try:
        moment = _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return f"{ms}ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
