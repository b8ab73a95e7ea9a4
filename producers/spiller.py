"""The thread that moves to disk what has waited for long: Redis is away, full or slow."""

from __future__ import annotations

import logging
from threading import RLock, Thread

from producers.buffer import Buffer
from producers.spool import Spool
from producers.waiting import Waiting

logger = logging.getLogger("statewriter.producer")

RETRY_S = 1.0


class Spiller:
    """Moves the oldest commands until the buffer is stopped. Order within a run is kept."""

    def __init__(self, buffer: Buffer, spool: Spool, after_ms: int) -> None:
        self._buffer = buffer
        self._spool = spool
        self._after_s = after_ms / 1_000
        # A close does not wait long for the thread, and must not move again what that is moving.
        self._lock = RLock()
        self._thread = Thread(target=self._work, name="statewriter-spiller", daemon=True)
        self.fault: str | None = None

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread to end."""
        self._thread.join(timeout_s)

    def spill_rest(self) -> int:
        """Move all that is in memory, for a producer that closes; returns how many could not be."""
        while commands := self._buffer.oldest():
            if not self._spill(commands):
                break
        levels = self._buffer.levels
        return levels.waiting - levels.spooled

    def _work(self) -> None:
        while commands := self._buffer.overdue(self._after_s):
            if not self._spill(commands):
                self._buffer.spill_failed(self.fault or "it fails", RETRY_S)

    def _spill(self, commands: list[Waiting]) -> bool:
        with self._lock:
            return self._move(commands)

    def _move(self, commands: list[Waiting]) -> bool:
        named = [(each, each.sent.fields) for each in commands]
        # What was accepted or moved meanwhile may have lost its bytes: it needs them no more.
        commands = [each for each, fields in named if fields is not None]
        if not commands:
            return True
        try:
            places = self._spool.append(
                [(each.sent.run, fields) for each, fields in named if fields is not None]
            )
        except OSError as error:
            known, self.fault = self.fault, str(error)
            if known is None:
                logger.warning(
                    "action=spool_refuses producer=%s: %s; commands stay in memory, as far as it "
                    "goes",
                    self._buffer.producer_id,
                    error,
                )
            return False
        self.fault = None
        self._buffer.spilled(commands, places)
        return True
