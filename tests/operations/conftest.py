"""A data folder with a real server, a daemon that comes and goes, and the program's commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.operations.site import Site
from tests.support.servers import RealServer


@pytest.fixture
def site(
    tmp_path: Path, redis_server: RealServer, capfd: pytest.CaptureFixture[str]
) -> Iterator[Site]:
    """One partition, nothing in it, no daemon yet."""
    made = Site(tmp_path / "data", redis_server, capfd)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def running(site: Site) -> Site:
    """The same with a daemon that runs."""
    site.start()
    return site
