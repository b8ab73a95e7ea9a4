"""Log lines as events of a transcript: a `logging.Handler`, and a processor for structlog."""

from __future__ import annotations

import logging
from collections.abc import Callable, MutableMapping
from typing import Any

import orjson

from producers.errors import ProducerError
from producers.session import Session

OWN_LOGGER = "statewriter"
"""What the producer says of itself would come back to it."""
TEXT_CHARS_MAX = 100_000


class RunHandler(logging.Handler):
    """Each record is an event of type `log`. It never waits and never raises."""

    def __init__(self, session: Session, level: int | str = logging.NOTSET) -> None:
        super().__init__(level)
        self._session = session

    def emit(self, record: logging.LogRecord) -> None:
        """Append the record; what can not be said is handled as logging does."""
        if record.name.partition(".")[0] == OWN_LOGGER:
            return
        try:
            told = {
                "level": record.levelname,
                "logger": record.name,
                "message": _exact(record.getMessage()),
                "file": f"{record.filename}:{record.lineno}",
            }
            if record.exc_info:
                formatter = self.formatter or logging.Formatter()
                told["exception"] = _exact(formatter.formatException(record.exc_info))
            self._session.event("log", told)
        except (ProducerError, ValueError, TypeError):
            self.handleError(record)


def structlog_processor(
    session: Session,
) -> Callable[[Any, str, MutableMapping[str, Any]], MutableMapping[str, Any]]:
    """A processor that appends each event dictionary and passes it on unchanged."""

    def process(
        _: Any, method: str, event_dict: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        told = {"level": method.upper(), **event_dict}
        try:
            plain = orjson.loads(orjson.dumps(told, default=repr, option=orjson.OPT_NON_STR_KEYS))
            session.event("log", plain)
        except (ProducerError, ValueError, TypeError):
            logging.getLogger(f"{OWN_LOGGER}.producer").warning("action=log_unsent")
        return event_dict

    return process


def _exact(text: str) -> str:
    return text[:TEXT_CHARS_MAX].encode(errors="replace").decode()
