"""Times in documents: ISO 8601 texts to integer milliseconds and back. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_ms(value: Any) -> int | None:
    """Milliseconds since 1970 of an ISO 8601 text with an offset; None for anything else."""
    if not isinstance(value, str) or len(value) > 64:
        return None
    try:
        instant = datetime.fromisoformat(value)
        if instant.tzinfo is None:
            return None
        return (instant - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        return None


def iso(ms: int) -> str:
    """UTC, three decimals, `Z`: the form that hosts use. Years past 9999 stay at their last ms."""
    limited = min(max(ms, 0), 253_402_300_799_999)
    instant = _EPOCH + timedelta(milliseconds=limited)
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")
