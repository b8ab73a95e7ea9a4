"""The command line as users have it: processes of its own, and what they print."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.lines import whole_lines
from tests.support.wait import PATIENCE_S, poll
from writer.health import read_health

TOP = Path(__file__).parent.parent.parent
# Without a command of its own on PATH, so that a checkout that nobody installed is tested, too.
PROGRAM = [sys.executable, "-c", "from writer.cli import main; main()"]
TIMEOUT_S = 180
_NUMBERS = count(1)


class Ran(NamedTuple):
    """How a command ended: its exit code, stdout and stderr."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Stdout as one JSON value."""
        return json.loads(self.out)

    def lines(self) -> list[Any]:
        """Stdout as a JSON value a line."""
        return [json.loads(line) for line in self.out.splitlines()]

    def ok(self) -> Ran:
        """Itself; fails with what it printed unless it ended with 0."""
        assert self.code == 0, f"exit code {self.code}\n{self.out}\n{self.err}"
        return self


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Ours, with a wide terminal that has no colours, and the packages of this checkout."""
    told = {"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1", "PYTHONPATH": str(TOP)}
    return {**os.environ, **told, **(extra or {})}


def statewriter(
    *arguments: str | Path,
    data: Path | None = None,
    stdin: str | bytes = "",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Ran:
    """Run one command to its end."""
    where = [] if data is None else ["--data", str(data)]
    done = subprocess.run(
        [*PROGRAM, *map(str, arguments), *where],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        env=environment(env),
        cwd=cwd or TOP,
        timeout=TIMEOUT_S,
        check=False,
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


class RunningDaemon:
    """A `statewriter daemon` that runs. Its log is a JSON object a line."""

    def __init__(self, data: Path, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        self.data = data
        self._log = data.with_name(f"{data.name}-{next(_NUMBERS)}.log")
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*PROGRAM, "daemon", "--data", str(data), "--log-format", "json", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(env),
                cwd=TOP,
                start_new_session=True,
            )

    def await_running(self) -> None:
        """Until it writes all its partitions."""
        poll(self._runs, message="the daemon to run")

    def _runs(self) -> bool:
        assert self.process.poll() is None, self.log()
        health = read_health(self.data)
        if health is None or self.process.pid not in health["pids"]:
            return False
        return {told["state"] for told in health["partitions"].values()} == {"running"}

    def log(self) -> list[dict[str, Any]]:
        """What it logged so far, but for a line that is being written."""
        return [json.loads(line) for line in whole_lines(self._log.read_bytes())]

    def logged(self, action: str) -> list[dict[str, Any]]:
        """Its log lines of an action."""
        return [line for line in self.log() if line.get("action") == action]

    def stop(self, how: signal.Signals = signal.SIGTERM, *, timeout_s: float = PATIENCE_S) -> int:
        """Ask it to end; returns its exit code. Fails after the time."""
        self.process.send_signal(how)
        return self.wait(timeout_s)

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Its exit code, once it has ended. Fails after the time."""
        poll(lambda: self.process.poll() is not None, timeout_s, "the daemon to end")
        return self.process.wait()


@contextmanager
def running_daemon(
    data: Path, *arguments: str, env: Mapping[str, str] | None = None
) -> Iterator[RunningDaemon]:
    """A daemon that is up; ended at the end, if it still runs then."""
    daemon = RunningDaemon(data, *arguments, env=env)
    try:
        daemon.await_running()
        yield daemon
    finally:
        if daemon.process.poll() is None:
            daemon.stop()
