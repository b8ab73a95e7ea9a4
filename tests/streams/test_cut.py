"""A stop that takes too long cuts the connections to Redis; that is no defect of the writer."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Any

import redis

from tests.support.servers import RealServer
from tests.support.wait import poll
from writer.daemon import Daemon
from writer.settings import WriterSettings


class Trips:
    """A log that holds a partition's thread up until its connection is cut, and then fails as
    redis-py may where another thread takes its socket away between two calls.
    """

    def __init__(self, client: redis.Redis) -> None:
        self.begun = Event()
        self._client = client
        self._others = self._connections()

    def info(self, event: str, **_: Any) -> None:
        """What a daemon says."""
        if event == "taken":
            self.begun.set()
            poll(lambda: self._connections() <= self._others, 60.0, "the connections to be cut")
            raise AttributeError("'NoneType' object has no attribute 'sendall'")

    warning = info

    def _connections(self) -> set[str]:
        found: Any = self._client.client_list()
        return {each["id"] for each in found}


def test_a_thread_may_trip_over_a_connection_that_is_cut_in_its_hand(
    redis_server: RealServer, redis_client: redis.Redis, tmp_path: Path
) -> None:
    log = Trips(redis_client)
    settings = WriterSettings(data=tmp_path, redis=redis_server.url, prefix="t", partitions=1)
    daemon = Daemon(settings, redis_server.url, log)
    daemon.start()
    assert log.begun.wait(60)

    daemon.stop()
    daemon.wait()

    assert daemon.error is None
