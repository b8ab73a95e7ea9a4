"""Producers of tests spool into folders of their own; two of them, and a writer, for who needs
these.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from producers import Producer, Receipt
from tests.producers.reading import PARTITIONS
from tests.producers.writing import writing
from tests.support.servers import RealServer
from writer.store.reader import StateReader


@pytest.fixture(autouse=True)
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the producers of this test, and of the processes that it starts, spool.

    They are patient, too: on a busy machine nothing is sent twice for want of an answer.
    """
    for name in ("REPLY", "CONNECT", "RECEIPT", "CONFIRM"):
        monkeypatch.setenv(f"STATEWRITER_{name}_TIMEOUT_MS", "60000")
    folder = tmp_path / "spool"
    monkeypatch.setenv("STATEWRITER_SPOOL", str(folder))
    return folder


@pytest.fixture
def reader(redis_server: RealServer, tmp_path: Path) -> Iterator[StateReader]:
    """What a daemon has written that keeps what it settled in Redis, too."""
    with writing(tmp_path / "data", redis_server.url, replay_window_ms=600_000) as made:
        yield made


@pytest.fixture
def heard() -> list[Receipt]:
    """The refusals that the producer's callback heard of."""
    return []


@pytest.fixture
def producer(redis_server: RealServer, heard: list[Receipt]) -> Iterator[Producer]:
    """One whose callback hears."""
    with Producer(redis_server.url, partitions=PARTITIONS, on_rejected=heard.append) as made:
        yield made


@pytest.fixture
def other(redis_server: RealServer) -> Iterator[Producer]:
    """Somebody else."""
    with Producer(redis_server.url, partitions=PARTITIONS) as made:
        yield made
