"""The producer for asyncio: the same calls, which never wait, and awaits for those that do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from producers.clock import monotonic_s
from producers.errors import BufferFull
from producers.face import Face
from producers.handle import Receipt, Sent
from producers.outbox import judged
from producers.report import Closed, Flushed

LOOK_S = 0.25
"""How often a wait looks by itself, whatever it is told."""


class AsyncProducer(Face):
    """As Producer, for one event loop. What says something is no coroutine and never waits.

    So a call can not be cancelled half-way: it was said, or it raised. A full buffer raises
    BufferFull at once; `await producer.room()` first where much is said. `confirm=True` asks for a
    receipt without waiting for it: `await producer.wait_applied(sent)`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As Producer's. It needs no running loop yet."""
        super().__init__(*args, **kwargs)
        self._outbox.buffer.may_block = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._moved = asyncio.Event()

    async def room(self, timeout_s: float = 10) -> None:
        """Wait until the buffer is at most half full. Raises BufferFull after the time."""
        if not await self._until(self._outbox.buffer.has_room, timeout_s):
            raise BufferFull

    async def flush(self, timeout_s: float = 10) -> Flushed:
        """Wait until Redis has accepted all that was said before this call."""
        buffer = self._outbox.buffer
        mark = buffer.mark()
        await self._until(lambda: buffer.waiting_before(mark) == 0, timeout_s)
        return self._outbox.flushed(buffer.waiting_before(mark))

    async def wait_applied(self, sent: Sent, timeout_s: float = 10) -> Receipt:
        """Wait until the writer has settled a command, asking again if an answer got lost.

        Raises CommandRejected if it was refused (LeaseLost if for the lease's sake), and
        NotConfirmed if no answer came in time.
        """
        inquiry = self._outbox.inquire(sent, timeout_s)
        while wait_s := inquiry.look():
            await self._until(inquiry.ready, wait_s)
        return judged(sent)

    async def close(self, timeout_s: float = 5) -> Closed:
        """Take no more, send what waits for at most `timeout_s`, and say what became of it.

        A cancelled close has closed all the same: what waits goes to disk, or is counted as lost.
        """
        return await asyncio.to_thread(self._outbox.close, timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.shield(self.close())

    async def _until(self, ready: Callable[[], bool], timeout_s: float) -> bool:
        self._listen()
        deadline = monotonic_s() + timeout_s
        while not ready():
            remaining_s = deadline - monotonic_s()
            if remaining_s <= 0:
                return False
            # Cleared by whoever waits next: a movement between the look and the wait is not missed.
            self._moved.clear()
            if ready():
                break
            # Not `wait_for`: a cancellation beside a movement would get lost in it.
            with suppress(TimeoutError):
                async with asyncio.timeout(min(remaining_s, LOOK_S)):
                    await self._moved.wait()
        return True

    def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        self._outbox.buffer.listen(self._wake)
        self._loop = loop
        self._moved = asyncio.Event()

    def _wake(self) -> None:
        loop, moved = self._loop, self._moved
        # The loop may have been closed since.
        with suppress(RuntimeError):
            if loop is not None:
                loop.call_soon_threadsafe(moved.set)
