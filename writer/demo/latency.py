"""How long a command takes from Redis to a reader, measured from outside."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread

from writer.clock import now_ms
from writer.store.reader import StateReader

POLL_S = 0.005


class Sampler(Thread):
    """Follows the change feed as a dashboard would, and takes the time of every event.

    A sample (ms) runs from the message's id, which Redis made when it accepted the command, to the
    poll that saw its event committed: an upper bound, by up to 5 ms and the feed's own work.
    Duplicates, rejections and lease renewals make no event, so they are not in it.
    """

    def __init__(self, data: Path) -> None:
        super().__init__(name="sampler", daemon=True)
        self._data = data
        self._ended = Event()
        self._samples: list[int] = []

    def run(self) -> None:
        """Poll until stopped, and once more."""
        token = None
        with StateReader(self._data) as reader:
            while True:
                last = self._ended.wait(POLL_S)
                changes = reader.changes(since=token)
                token = changes.token
                now = now_ms()
                self._samples += [
                    now - int(event["message_id"].partition("-")[0]) for event in changes.events
                ]
                if last and not changes.events:
                    return

    def stop(self) -> None:
        """See what is left, and end."""
        self._ended.set()
        self.join()

    def percentile(self, percent: int) -> int | None:
        """A percentile in ms; None without samples."""
        if not self._samples:
            return None
        ordered = sorted(self._samples)
        return ordered[min(len(ordered) * percent // 100, len(ordered) - 1)]
