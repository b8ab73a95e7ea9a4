"""The daemon's thread that looks at all streams now and then, whatever their marks say."""

from __future__ import annotations

from collections.abc import Callable, Container
from contextlib import closing
from threading import Event

from producers.contract.keys import Keys
from writer.clock import monotonic, now_ms, processor_s
from writer.errors import Retry
from writer.notes import Log
from writer.settings import WriterSettings
from writer.store.cursors import CursorReader
from writer.store.partition import partition_path
from writer.streams.archive import archive_folder
from writer.streams.link import Client
from writer.streams.reach import expire
from writer.streams.sweep import sweep

TELL_S = 2.0
"""How often hosts are told again what a flushed Redis forgot."""
RETRY_S = 1.0
REST = 400
"""A thorough sweep is followed by a rest of so many times the processor time that it took."""


class Sweeping:
    """Sweeps when a partition is taken, after each reconnect, and every `sweep_ms`.

    What waits unmarked is found each time. Streams that hold nothing are compared with the file
    too, but not so often that an idle daemon with many runs would be busy with it.
    """

    def __init__(
        self,
        settings: WriterSettings,
        log: Log,
        connect: Callable[[], Client],
        tell_hosts: Callable[[Client], object],
        waiting: Container[int],
    ) -> None:
        self._settings = settings
        self._log = log
        self._connect = connect
        self._tell_hosts = tell_hosts
        self._waiting = waiting
        self._partitions: set[int] = set()
        self._wanted = Event()
        self._ended = Event()
        self._sweep_at = 0.0
        self._thorough_at = 0.0

    def soon(self, partition: int) -> None:
        """A partition was taken: look at its streams."""
        self._partitions.add(partition)
        self._wanted.set()

    def stop(self) -> None:
        """End `run`, even in the middle of a sweep. Takes a lock."""
        self._ended.set()
        self._wanted.set()

    def run(self) -> None:
        """Sweep until stopped."""
        client = self._connect()
        try:
            while not self._ended.is_set():
                self._wanted.wait(min(TELL_S, self._settings.sweep_ms / 1000))
                if self._wanted.is_set():
                    self._sweep_at = self._thorough_at = 0.0
                    self._wanted.clear()
                try:
                    self._tell_hosts(client)
                    if monotonic() >= self._sweep_at:
                        self._sweep(client)
                except Retry:
                    # The loops meet the same fault and say so.
                    self._sweep_at = self._thorough_at = 0.0
                    self._ended.wait(RETRY_S)
        finally:
            client.close()

    def _sweep(self, client: Client) -> None:
        begun, used = monotonic(), processor_s()
        thorough = begun >= self._thorough_at
        for partition in sorted(self._partitions):
            path = partition_path(self._settings.data, partition)
            if partition not in self._waiting:
                # Whoever has to take it again may need all of its archive.
                self._expire(partition)
            with closing(CursorReader(path)) as unlike:
                marked = sweep(
                    client,
                    Keys(self._settings.prefix),
                    partition,
                    unlike,
                    self._ended,
                    thorough=thorough,
                )
            if marked and partition not in self._waiting:
                self._log.info("swept", partition=partition, marked=marked)
        self._sweep_at = begun + self._settings.sweep_ms / 1000
        if thorough:
            self._thorough_at = begun + REST * (processor_s() - used)

    def _expire(self, partition: int) -> None:
        hours = self._settings.archive_keep_hours
        if hours is None:
            return
        before = now_ms() - hours * 3_600_000
        removed = expire(archive_folder(self._settings.data, partition), before)
        if removed:
            self._log.info("archive_expired", partition=partition, segments=removed)
