"""Streams of one partition on both servers, filled by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from producers.contract.keys import Keys
from tests.support.servers import KINDS, RealServer
from writer.streams.link import connect

KEYS = Keys("t")


class Streams:
    """A client as the writer has one, and the streams of partition 0."""

    def __init__(self, server: RealServer) -> None:
        self.server = server
        self.url = server.url
        self.client: Any = connect(server.url)

    def add(self, run: str, *places: str, size: int = 1, **fields: str) -> None:
        """Put messages at these ids into a run's stream."""
        for place in places:
            named: dict[Any, Any] = {"body": "x" * size, **fields}
            self.client.xadd(KEYS.run(0, run), named, id=place)

    def ids(self, run: str) -> list[str]:
        """What a run's stream holds."""
        return [place.decode() for place, _ in self.client.xrange(KEYS.run(0, run))]

    def exists(self, run: str) -> bool:
        """Whether a run has a stream."""
        return bool(self.client.exists(KEYS.run(0, run)))

    def ready(self) -> dict[str, float]:
        """The marks, by run."""
        return {
            run.decode(): score
            for run, score in self.client.zrange(KEYS.ready(0), 0, -1, withscores=True)
        }


@pytest.fixture(params=KINDS)
def streams(request: pytest.FixtureRequest) -> Iterator[Streams]:
    """Empty streams on a server of each kind."""
    server: RealServer = request.getfixturevalue("server_pool")(request.param)
    made = Streams(server)
    made.client.flushall()
    try:
        yield made
    finally:
        made.client.close()


@pytest.fixture
def full_streams(streams: Streams) -> Iterator[Streams]:
    """Streams on a server that takes no more data."""
    streams.client.config_set("maxmemory-policy", "noeviction")
    streams.add("filler", "1-1", size=1_000_000)
    streams.client.config_set("maxmemory", "1mb")
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        streams.client.set("k", "v")
    try:
        yield streams
    finally:
        streams.client.config_set("maxmemory", "0")
