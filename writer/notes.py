"""What a writer says: one line an action, and of what happens often at most a line a second."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Protocol

from writer.clock import Clock


class Log(Protocol):
    """Where lines go."""

    def info(self, event: str, **fields: Any) -> Any:
        """A thing that happened."""

    def warning(self, event: str, **fields: Any) -> Any:
        """A thing that someone should know."""


@dataclass(slots=True)
class Notes:
    """What happened to runs since the last report."""

    log: Log
    clock: Clock
    refused: Counter[str] = field(default_factory=Counter)
    """Messages by reason."""
    _noted: dict[str, dict[str, Any]] = field(default_factory=dict)
    _reported_at: float = 0.0

    def note(self, event: str, run: str, **fields: Any) -> None:
        """Say soon what happened to a run; of many runs the first is named."""
        noted = self._noted.setdefault(event, {"runs": 0, "run": run, **fields})
        noted["runs"] += 1

    def report(self) -> None:
        """At most a line a second of each event, whatever is sent."""
        if not (self.refused or self._noted) or self.clock.monotonic() - self._reported_at < 1:
            return
        if self.refused:
            self.log.info("refused", **self.refused)
        for event, fields in self._noted.items():
            self.log.warning(event, **fields)
        self.refused.clear()
        self._noted.clear()
        self._reported_at = self.clock.monotonic()
