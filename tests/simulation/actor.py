"""A writer that runs only when it is told to: the real tenure and the real loop, which come back at
the end of each step, or wherever the world makes the writer stand still.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from tests.simulation.baton import Baton, baton_for
from tests.simulation.client import Client
from tests.simulation.server import Item
from writer.clock import Clock
from writer.errors import Retry, Stop
from writer.loop import PartitionLoop
from writer.settings import WriterSettings
from writer.streams.ownership import writer_id
from writer.tenure import Outside, Tenure

OVER = object()


class Died(BaseException):
    """A writer's process ends here; nothing that it does afterwards counts."""


class Violation(BaseException):
    """A promise was broken. No code under test may catch it."""


class Gate(Protocol):
    """The world, as a writer meets it."""

    @property
    def calm(self) -> bool:
        """Whether no writer has to stand still from now on."""

    def reached(self, actor: Actor, point: str) -> None:
        """A named point or a call to Redis; may raise, or make the actor stand still."""


class Actor:
    """One writer's life, from taking the partition to its end."""

    def __init__(
        self,
        name: str,
        gate: Gate,
        client: Callable[[Actor], Client],
        settings: WriterSettings,
        clock: Clock,
        log: Any,
        *,
        accept_loss: bool = False,
        signs_as: str = "",
        restored: bool = False,
    ) -> None:
        self.name = name
        self.restored = restored
        """Whether it found a file that had been put back."""
        self.signs_as = signs_as or name
        self.data: Path = settings.data
        self.loop: PartitionLoop | None = None
        self.tenure: Tenure | None = None
        self.paused_at = ""
        self.over = False
        self.error: BaseException | None = None
        self.views: dict[str, list[Item]] = {}
        self.archive_bytes = 0
        self._leaving = False
        self._doomed = False
        self._gate = gate
        self._baton: Baton | None = None
        outside = Outside(lambda: client(self), clock, self.hook, busy_ms=0)
        writer = writer_id(self.signs_as)
        self._make = lambda: Tenure(
            settings, outside, log, 0, 2, accept_loss=accept_loss, writer=writer
        )
        self._life = self._live()

    @property
    def epoch(self) -> int:
        """The epoch under which it writes; 0 before it took the file."""
        file = self.tenure.file if self.tenure is not None else None
        return file.epoch if file is not None else 0

    @property
    def segment_bytes(self) -> int:
        """The size of the segment that it has open; 0 without one."""
        archive = self.tenure.archive if self.tenure is not None else None
        handle = archive._handle if archive is not None else None
        return 0 if handle is None else os.fstat(handle).st_size

    # --- from the scheduler's side -----------------------------------------------------------

    def go(self) -> None:
        """Let it run until it stands still, has made a step, or is over."""
        assert not self.over
        self.paused_at = ""
        if self._baton is None and not (self._gate.calm or self._doomed):
            self._baton = baton_for(self._run)
        if self._baton is not None:
            self._baton.pass_on()
        else:
            self._run()
        if not self.paused_at:
            self._baton = None
        if isinstance(self.error, Violation):
            raise self.error

    def leave(self) -> None:
        """Ask it to step down instead of making its next step."""
        self._leaving = True

    def kill(self) -> None:
        """End its process wherever it stands."""
        self._doomed = True
        if not self.over:
            self.go()

    # --- from its own side -------------------------------------------------------------------

    def hook(self, point: str) -> None:
        """Named points come from the real code; calls to Redis come through here too."""
        self._gate.reached(self, point)

    def stand_still(self, point: str) -> None:
        """Give the baton back in the middle of something."""
        self.paused_at = point
        assert self._baton is not None
        self._baton.pass_back()
        if self._doomed:
            self.die()

    def die(self) -> None:
        """What a process leaves behind when it is killed: no sealed segment, no step-down."""
        archive = self.tenure.archive if self.tenure is not None else None
        if archive is not None and archive._handle is not None:
            os.close(archive._handle)
            archive._handle = None
        raise Died

    def _run(self) -> None:
        """Up to the end of a step, or of its life."""
        try:
            self.over = next(self._life, OVER) is OVER
        except (Died, Violation, Retry, Stop, Exception) as error:  # noqa: BLE001 - for the world
            self.error = error
            self.over = True

    def _live(self) -> Iterator[None]:
        if self._doomed:
            raise Died
        self.tenure = self._make()
        with self.tenure as loop:
            self.loop = loop
            while True:
                yield
                if self._doomed:
                    self.die()
                if self._leaving:
                    loop.step_down()
                    return
                loop.step()
