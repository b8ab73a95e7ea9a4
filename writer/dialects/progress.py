"""What `progress` data may say in the pi dialect."""

from __future__ import annotations

from datetime import datetime
from math import isfinite
from typing import Any

from producers.contract.reasons import Reason
from writer.core.outcome import Refusal

PROGRESS_SCHEMA = "pi-workflows.progress.v1"
STATUSES = frozenset(
    ("pending", "running", "waiting", "blocked", "completed", "failed", "cancelled", "unknown")
)
TEXT_CHARS_MAX = {"label": 200, "phase": 128, "unit": 32}
NUMBERS = ("completed", "total")
TIMES = ("sourceUpdatedAt", "sourceEstimatedFinishAt")
FIELDS = frozenset(("schema", "status", *TEXT_CHARS_MAX, *NUMBERS, *TIMES))


def check_progress(data: dict[str, Any]) -> None:
    """Refuse progress data outside its schema; says which field, never its value.

    `completed` is at least 0, `total` above 0 and at least `completed`, and either needs a `unit`.
    """
    if not data.keys() <= FIELDS:
        _refuse("a field that progress does not have")
    if data.get("schema") != PROGRESS_SCHEMA:
        _refuse("schema")
    status = data.get("status", "unknown")
    if not isinstance(status, str) or status not in STATUSES:
        _refuse("status")
    for name, chars_max in TEXT_CHARS_MAX.items():
        if name in data and not _printable(data[name], chars_max):
            _refuse(name)
    for name in NUMBERS:
        if name in data and not _number(data[name]):
            _refuse(name)
    if "total" in data and (data["total"] <= 0 or data["total"] < data.get("completed", 0)):
        _refuse("total must be above 0 and at least completed")
    if ("completed" in data or "total" in data) and "unit" not in data:
        _refuse("unit is required with completed or total")
    for name in TIMES:
        if name in data and not _instant(data[name]):
            _refuse(name)


def _refuse(what: str) -> None:
    raise Refusal(Reason.UPDATE_INVALID, what)


def _printable(value: Any, chars_max: int) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= chars_max and value.isprintable()


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and _good(value)


def _good(value: int | float) -> bool:
    return isfinite(value) and value >= 0


def _instant(value: Any) -> bool:
    if not isinstance(value, str) or len(value) > 64:
        return False
    try:
        return datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False
