"""Waiting for a state, instead of sleeping and hoping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL_S = 0.01
PATIENCE_S = 60.0
"""What a busy machine may take for anything that needs no more than a moment on an idle one."""
ROUND_S_MAX = 0.5
"""As much of one look counts at most: while the machine stands still, nobody loses patience."""


def poll(predicate: Callable[[], T], timeout_s: float = PATIENCE_S, message: str = "") -> T:
    """The predicate's first truthy answer; AssertionError with its last answer after the time.

    What the predicate raises goes through: wrap what may fail for a while.
    """
    spent, since = 0.0, time.monotonic()
    while True:
        late = spent > timeout_s
        answer = predicate()
        if answer:
            return answer
        if late:
            what = message or getattr(predicate, "__name__", "the state")
            raise AssertionError(f"waited {timeout_s:g} s for {what}; last answer: {answer!r}")
        time.sleep(POLL_S)
        now = time.monotonic()
        spent, since = spent + min(now - since, ROUND_S_MAX), now
