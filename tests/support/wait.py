"""Waiting for a state, instead of sleeping and hoping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL_S = 0.01


def poll(predicate: Callable[[], T], timeout_s: float = 10.0, message: str = "") -> T:
    """The predicate's first truthy answer; AssertionError with its last answer after the time.

    What the predicate raises goes through: wrap what may fail for a while.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        answer = predicate()
        if answer:
            return answer
        if time.monotonic() > deadline:
            what = message or getattr(predicate, "__name__", "the state")
            raise AssertionError(f"waited {timeout_s:g} s for {what}; last answer: {answer!r}")
        time.sleep(POLL_S)
