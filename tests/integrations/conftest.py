"""A writer, a producer and a reader for each test of an integration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from producers import Producer
from tests.producers.writing import writing
from tests.support.servers import RealServer
from writer.store.reader import StateReader


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder of this test's producers and writer."""
    monkeypatch.setenv("STATEWRITER_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def reader(redis_server: RealServer, data: Path) -> Iterator[StateReader]:
    with writing(data, redis_server.url) as made:
        yield made


@pytest.fixture
def producer(redis_server: RealServer) -> Iterator[Producer]:
    with Producer(redis_server.url) as made:
        yield made
