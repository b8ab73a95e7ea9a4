"""The thread that moves commands from the buffer into Redis, and outlives whatever Redis does."""

from __future__ import annotations

import logging
from threading import Thread
from typing import NamedTuple

from redis.exceptions import AuthenticationError, AuthorizationError, NoPermissionError, RedisError

from producers.buffer import Buffer
from producers.errors import MetaMismatch
from producers.link import Link, NotReady, describe
from producers.settings import ProducerSettings
from producers.spool import Spool
from producers.waiting import Batch

logger = logging.getLogger("statewriter.producer")

BACKOFF_MS_MIN = 50
BACKOFF_MS_MAX = 2_000
CAUTIOUS_BYTES_MIN = 64 * 1024


class Trouble(NamedTuple):
    """Why nothing goes through at present: a word for the kind, and a sentence."""

    action: str
    text: str


class Sender:
    """Sends until the buffer is closed and empty, or stopped.

    Nothing leaves the buffer before Redis has answered for it. A failure of any kind only means to
    wait and to send the same again, under the same sequences: the writer drops what it knows.
    """

    def __init__(
        self, buffer: Buffer, settings: ProducerSettings, spool: Spool | None = None
    ) -> None:
        self._buffer = buffer
        self._spool = spool
        self._settings = settings
        self._link = Link(settings)
        self._bytes_max = settings.pipeline_bytes_max
        self._thread = Thread(target=self._work, name="statewriter-sender", daemon=True)
        self.trouble: Trouble | None = None

    @property
    def link(self) -> Link:
        """Its connection, to look at."""
        return self._link

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread to end."""
        self._thread.join(timeout_s)

    def _work(self) -> None:
        self._adopt()
        backoff_ms = 0
        while batch := self._buffer.take(self._settings.pipeline_commands_max, self._bytes_max):
            if not self._load(batch):
                continue
            sent = self._send(batch)
            for _, commands in batch:
                for waiting in commands:
                    waiting.loaded = None
            if sent:
                backoff_ms = 0
            else:
                backoff_ms = min(max(2 * backoff_ms, BACKOFF_MS_MIN), BACKOFF_MS_MAX)
                self._buffer.pause(backoff_ms)
        self._link.drop()

    def _adopt(self) -> None:
        """What earlier processes left on disk goes first."""
        if self._spool is None:
            return
        try:
            found = self._spool.adopt()
        except OSError as error:
            logger.warning("action=spool_unreadable: %s; it stays where it is", error)
            return
        if found:
            self._buffer.adopt(found)
            logger.info(
                "action=spool_adopted commands=%d runs=%d producers=%d",
                len(found),
                len({sent.run for sent, _ in found}),
                len({sent.producer for sent, _ in found}),
            )

    def _load(self, batch: Batch) -> bool:
        """Read from disk what lies there. False if something could not be: take another batch."""
        for run, commands in batch:
            for waiting in commands:
                try:
                    waiting.load()
                except OSError as error:
                    # Those before it in the batch are taken again.
                    if waiting is not commands[0]:
                        del commands[commands.index(waiting) :]
                        break
                    logger.log(
                        logging.ERROR,
                        "action=spool_lost run=%s producer=%s seq=%d: %s",
                        run,
                        waiting.sent.producer,
                        waiting.sent.seq,
                        error,
                    )
                    self._buffer.lose(run)
                    return False
        return True

    def _send(self, batch: Batch) -> bool:
        """Whether Redis accepted any of it."""
        try:
            outcomes = self._link.append(batch)
        except Exception as error:  # noqa: BLE001  # this thread must outlive anything; it is noted
            self._fail(error)
            return False
        accepted = 0
        refusal = None
        for run, message_ids, text in outcomes:
            if message_ids:
                accepted += len(message_ids)
                self._buffer.accept(run, message_ids)
            if text is not None:
                self._buffer.refuse(run)
                refusal = f"run {run}: {text}"
        self._bytes_max = min(2 * self._bytes_max, self._settings.pipeline_bytes_max)
        if refusal is not None:
            self._note(logging.WARNING, Trouble("redis_refuses", refusal))
        elif not self._buffer.failing:
            self._note_recovery()
        if not accepted:
            # A replica that was promoted, or a server that moved, is found by connecting anew.
            self._link.drop()
        return accepted > 0

    def _fail(self, error: Exception) -> None:
        self._link.drop()
        # A link too slow for a whole batch within the timeout must not get the same one for ever.
        self._bytes_max = max(self._bytes_max // 4, CAUTIOUS_BYTES_MIN)
        if isinstance(error, NotReady):
            self._note(logging.INFO, Trouble("not_ready", str(error)))
        elif isinstance(error, MetaMismatch):
            self._buffer.block(str(error))
            self._note(logging.ERROR, Trouble("meta_mismatch", str(error)))
            return
        elif isinstance(error, AuthenticationError | AuthorizationError | NoPermissionError):
            text = f"{describe(error)} (look at user and password of {self._link.server})"
            self._note(logging.WARNING, Trouble("redis_denies", text))
        elif isinstance(error, RedisError | OSError):
            self._note(logging.WARNING, Trouble("redis_lost", describe(error)))
        else:
            self._note(logging.ERROR, Trouble("unexpected", describe(error)), error)
        self._buffer.block(None)

    def _note(self, level: int, trouble: Trouble, error: Exception | None = None) -> None:
        """One line when the trouble begins or changes its kind, none while it lasts."""
        known, self.trouble = self.trouble, trouble
        self._buffer.trouble(True)
        if known is None or known.action != trouble.action:
            logger.log(
                level,
                "action=%s redis=%s waiting=%d: %s; nothing is lost, sending goes on by itself",
                trouble.action,
                self._link.server,
                self._buffer.levels.waiting,
                trouble.text,
                exc_info=error,
            )

    def _note_recovery(self) -> None:
        if self.trouble is None:
            return
        self.trouble = None
        self._buffer.trouble(False)
        self._buffer.block(None)
        levels = self._buffer.levels
        logger.info(
            "action=redis_regained redis=%s accepted=%d waiting=%d",
            self._link.server,
            levels.accepted,
            levels.waiting,
        )
