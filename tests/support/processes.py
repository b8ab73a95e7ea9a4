"""Processes that tests start, watch and kill: writers, producers, and one that keeps a disk busy."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers import under_ci
from tests.support.wait import poll

TOP = Path(__file__).parents[2]
PREFIX = "sw"
TICKS = os.sysconf("SC_CLK_TCK")


class Process:
    """A child with its log in a file. Ends with the test: see `processes`."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.log = log
        self._skip = log.stat().st_size if log.exists() else 0
        with log.open("ab") as stderr:
            self._child = subprocess.Popen(
                command,
                cwd=TOP,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The child's process id; of one under strace it is strace's."""
        return self._child.pid

    @property
    def stdin(self) -> Any:
        """What the child reads."""
        return self._child.stdin

    @property
    def stdout(self) -> Any:
        """What the child prints."""
        return self._child.stdout

    def running(self) -> bool:
        """Whether it lives (a stopped one does)."""
        return self._child.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it lives."""
        self._child.send_signal(number)

    def kill(self) -> None:
        """SIGKILL to it and its children, and wait for its end."""
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait(10)
        self._close()

    def wait(self, timeout_s: float = 10.0) -> int:
        """Its exit code, once it has ended; negative for a signal. Fails after the time."""
        try:
            code = self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"pid {self.pid} did not end in {timeout_s} s:\n{self.tail()}")
        self._close()
        return code

    def lines(self) -> list[dict[str, Any]]:
        """What this process logged, oldest first. Other than JSON lines are `{"text": ...}`."""
        with self.log.open("rb") as file:
            file.seek(self._skip)
            return [_parsed(line) for line in file.read().splitlines()]

    def said(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        """Its log lines of one event, those with these fields."""
        return [
            line
            for line in self.lines()
            if line.get("event") == event
            and all(line.get(name) == value for name, value in fields.items())
        ]

    def tail(self) -> str:
        """The end of its log, for a failure's message."""
        return "\n".join(json.dumps(line) for line in self.lines()[-30:])

    def rss_bytes(self) -> tuple[int, int]:
        """Resident memory now, and the most that it ever was."""
        found = {}
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in ("VmRSS", "VmHWM"):
                found[name] = int(value.split()[0]) * 1024
        return found["VmRSS"], found["VmHWM"]

    def cpu_s(self) -> float:
        """Processor time that it used so far."""
        parts = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(parts[11]) + int(parts[12])) / TICKS

    def _close(self) -> None:
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"text": line.decode(errors="replace")}


class Processes:
    """Starts processes of one test; all of them are killed at its end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[Process] = []

    def writer(
        self,
        data: Path,
        url: str,
        *,
        wrapper: Sequence[str] = (),
        log: str = "writer.log",
        wait: bool = True,
        **settings: Any,
    ) -> Process:
        """A daemon, of one partition by default; `wrapper` is put before its command.

        With `wait` it has taken its partitions when this returns.
        """
        given = {"data": str(data), "redis": url, "partitions": 1, **settings}
        process = self.python("tests.support.daemon_main", json.dumps(given), log=log, at=wrapper)
        if wait:
            wait_taken(process, given["partitions"])
        return process

    def python(
        self, module: str, *arguments: str, log: str = "python.log", at: Sequence[str] = ()
    ) -> Process:
        """A Python module, run with these arguments."""
        command = [*at, sys.executable, "-m", module, *arguments]
        process = Process(command, self.folder / log)
        self._started.append(process)
        return process

    def end(self) -> None:
        """Kill what still runs."""
        for process in self._started:
            process.kill()


@contextmanager
def processes(folder: Path) -> Iterator[Processes]:
    """A starter whose processes do not outlive it."""
    started = Processes(folder)
    try:
        yield started
    finally:
        started.end()


def wait_taken(process: Process, partitions: int = 1, timeout_s: float = 15.0) -> None:
    """Wait until a daemon writes all its partitions; fails at once if it ended instead."""

    def taken() -> bool:
        if len(process.said("taken")) >= partitions:
            return True
        if not process.running():
            pytest.fail(f"the daemon ended:\n{process.tail()}")
        return False

    poll(taken, timeout_s, "the daemon to take its partitions")


def lines_per_s(process: Process, since: float, until: float) -> float:
    """How many lines it logged a second between two times (`time.time()`)."""
    found = [line for line in process.lines() if since <= line.get("at", 0.0) <= until]
    return len(found) / max(until - since, 1.0)


HOG = """
import os, sys
handle = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
block = os.urandom(1 << 20)
print(flush=True)
while True:
    for place in range(32):
        os.pwrite(handle, block, place << 20)
    os.fsync(handle)
"""


@contextmanager
def busy_disk(folder: Path) -> Iterator[None]:
    """A process that syncs 32 MB again and again, so that every other sync waits."""
    command = [sys.executable, "-c", HOG, str(folder / "hog")]
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        child.stdout.readline()
        yield
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    """A tmpfs of this size; needs root and the right to mount. Grow it with `resize_disk`."""
    place = folder / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "none", str(place)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        reason = f"no tmpfs can be mounted: {made.stderr.decode(errors='replace')[:200]}"
        if under_ci() and os.geteuid() == 0:
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def resize_disk(place: Path, size_bytes: int) -> None:
    """Give a `small_disk` another size."""
    subprocess.run(["mount", "-o", f"remount,size={size_bytes}", str(place)], check=True)
