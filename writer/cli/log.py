"""How the daemon logs: one line an action, with its fields, to a stream."""

from __future__ import annotations

from typing import Any, TextIO

import orjson
import structlog

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def make_log(stream: TextIO, level: str, form: str) -> Any:
    """A structlog logger. `form`: `console` (coloured on a terminal), or `json`, objects."""
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True, key="at")
    rendering: list[Any]
    if form == "json":
        rendering = [
            structlog.processors.EventRenamer("action"),
            structlog.processors.JSONRenderer(serializer=_json),
        ]
    else:
        stamp = structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=True, key="timestamp")
        rendering = [structlog.dev.ConsoleRenderer(colors=stream.isatty(), pad_event_to=10)]
    return structlog.wrap_logger(
        structlog.WriteLogger(stream),
        processors=[structlog.processors.add_log_level, stamp, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
    )


def _json(record: dict[str, Any], **_: Any) -> str:
    return orjson.dumps(record, default=str).decode()
