"""The producer for threads: what a host holds to say what its agents do."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from producers.face import Face
from producers.handle import Receipt, Sent
from producers.report import Closed, Flushed


class Producer(Face):
    """Takes commands at once and sends them from threads of its own.

    A call validates, numbers and buffers: it waits for nothing but, in a full buffer, room. What is
    accepted is in Redis; what Redis does not take goes to disk, for later or for the next process.
    Safe across threads. After a fork the child's producer is empty and has another id.

    Every call that says something may raise InvalidCommand, BufferFull, ProducerClosed or
    MetaMismatch, and has then said nothing.
    """

    def flush(self, timeout_s: float = 10) -> Flushed:
        """Wait until Redis has accepted all that was said before this call."""
        return self._outbox.flush(timeout_s)

    def wait_applied(self, sent: Sent, timeout_s: float = 10) -> Receipt:
        """Wait until the writer has settled a command, asking again if an answer got lost.

        Raises CommandRejected if it was refused (LeaseLost if for the lease's sake), and
        NotConfirmed if no answer came in time.
        """
        return self._outbox.confirm(sent, timeout_s)

    def close(self, timeout_s: float = 5) -> Closed:
        """Take no more, send what waits for at most `timeout_s`, and say what became of it.

        It is done sooner if Redis is in trouble and everything is on disk.
        """
        return self._outbox.close(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
