"""Fixtures for every test, and the settings of hypothesis.

`--server redis|valkey` runs the whole suite against that server; by default it is Debian's where
that is installed. A test that must hold on both says so:

    @pytest.mark.parametrize("redis_server", KINDS, indirect=True)
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import pytest
import redis
from hypothesis import HealthCheck, settings

from tests.support.servers import KINDS, Kind, RealServer, default_kind, real_server

# What the developer's shell configures must not reach the code under test.
for _name in [name for name in os.environ if name.startswith("STATEWRITER_")]:
    del os.environ[_name]

# A shell has it ignored in what it starts in the background, and what tests start inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline per example, no complaint about slow ones: two busy cores make both mean nothing.
settings.register_profile("exploring", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# The same examples each time. Whoever wants others says `--hypothesis-profile exploring`.
settings.register_profile(
    "repeating", settings.get_profile("exploring"), derandomize=True, database=None
)
settings.load_profile("repeating")

SERVER_FIXTURES = {"redis_server", "redis_client", "server_kind"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--server",
        choices=["auto", *KINDS],
        default="auto",
        help="which server tests run against (auto: redis-server if installed, else valkey)",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if SERVER_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.server)


@pytest.fixture(scope="session")
def server_kind(request: pytest.FixtureRequest) -> Kind:
    """Which server this run is about; for `real_server(server_kind)`."""
    chosen: str = request.config.getoption("--server")
    return default_kind() if chosen == "auto" else cast("Kind", chosen)


@pytest.fixture(scope="session")
def server_pool() -> Iterator[Callable[[Kind], RealServer]]:
    """One running server of each kind that was asked for, kept for the session."""
    with ExitStack() as stack:
        running: dict[Kind, RealServer] = {}

        def take(kind: Kind) -> RealServer:
            if kind not in running:
                running[kind] = stack.enter_context(real_server(kind))
            return running[kind]

        yield take


@pytest.fixture
def redis_server(
    request: pytest.FixtureRequest,
    server_kind: Kind,
    server_pool: Callable[[Kind], RealServer],
) -> RealServer:
    """An empty server, shared with other tests one after the other.

    A test that kills or configures its server makes its own, with `real_server`.
    """
    server = server_pool(getattr(request, "param", server_kind))
    with server.client() as client:
        client.flushall()
    return server


@pytest.fixture
def redis_client(redis_server: RealServer) -> Iterator[redis.Redis]:
    """A client of `redis_server` that answers in bytes."""
    with redis_server.client() as client:
        yield client


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A table of seconds per folder, so that nobody has to guess what makes the suite slow."""
    seconds: dict[str, float] = {}
    counts: dict[str, int] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                parts = Path(report.nodeid.partition("::")[0]).parts
                folder = "/".join(parts[: min(2, len(parts) - 1)]) or "tests"
                seconds[folder] = seconds.get(folder, 0.0) + report.duration
                counts[folder] = counts.get(folder, 0) + (report.when == "call")
    terminalreporter.section("seconds per folder")
    for folder in sorted(seconds, key=lambda name: -seconds[name]):
        terminalreporter.write_line(f"{seconds[folder]:8.1f} s {counts[folder]:6d} tests  {folder}")
