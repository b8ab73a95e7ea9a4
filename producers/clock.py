"""Time, for the whole package: no other file of it imports time."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def now_ms() -> int:
    """Milliseconds since 1970 by this host's clock."""
    return time.time_ns() // 1_000_000


def monotonic_s() -> float:
    """Seconds on a clock that never goes back, for deadlines."""
    return time.monotonic()


def iso(ms: int) -> str:
    """UTC as `2026-01-31T12:00:00.123Z`."""
    return f"{_whole_second(ms):%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


def compact(ms: int) -> str:
    """UTC as `20260131T120000123Z`, which sorts as time does and is fit for an id."""
    return f"{_whole_second(ms):%Y%m%dT%H%M%S}{ms % 1000:03d}Z"


def _whole_second(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1000, UTC)
