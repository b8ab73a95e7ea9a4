"""A log for who does not look at it."""

from __future__ import annotations

from typing import Any


class SilentLog:
    """Takes what a daemon, or a loop, says."""

    def info(self, event: str, **fields: Any) -> None:
        """Nothing."""

    warning = info
