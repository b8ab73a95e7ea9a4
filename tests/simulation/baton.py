"""Running something beside the caller, so that it can stand still in its middle.

Only one thread ever runs, the one with the baton, so that all is the same each time. Threads are
kept: starting one takes longer than what most of them do.
"""

from __future__ import annotations

from _thread import allocate_lock, start_new_thread
from collections.abc import Callable

_idle: list[Baton] = []


class Baton:
    """A thread, and who of it and its caller may run."""

    def __init__(self) -> None:
        self._theirs, self._ours = allocate_lock(), allocate_lock()
        self._theirs.acquire()
        self._ours.acquire()
        self.work: Callable[[], None] | None = None
        start_new_thread(self._run, ())

    def pass_on(self) -> None:
        """By the caller: let it run until it passes the baton back, or has done its work."""
        self._theirs.release()
        self._ours.acquire()
        if self.work is None:
            _idle.append(self)

    def pass_back(self) -> None:
        """In the thread: stand still until the caller passes the baton on again."""
        self._ours.release()
        self._theirs.acquire()

    def _run(self) -> None:
        self._theirs.acquire()
        while self.work is not None:
            self.work()
            self.work = None
            self.pass_back()


def baton_for(work: Callable[[], None]) -> Baton:
    """A thread for work that may not raise: it begins when the baton is passed on."""
    baton = _idle.pop() if _idle else Baton()
    baton.work = work
    return baton
