"""One daemon for the tests of a file that need one, since starting costs a second."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.console import RunningDaemon, running_daemon


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningDaemon]:
    """A daemon on its folder's own server, two partitions. Use run ids of your own."""
    with (
        tempfile.TemporaryDirectory(prefix="sw-cli-") as folder,
        running_daemon(Path(folder, "data")) as daemon,
    ):
        yield daemon


@pytest.fixture
def data() -> Iterator[Path]:
    """Where a data folder may be made; short enough for the socket in it."""
    with tempfile.TemporaryDirectory(prefix="sw-cli-") as folder:
        yield Path(folder, "data")
