"""Processes that tests start, watch and kill, and disks that are small, busy or in memory."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn, Protocol

import pytest

from tests.support import daemon_main
from tests.support.lines import whole_lines
from tests.support.servers import under_ci
from tests.support.wait import PATIENCE_S, poll

TOP = Path(__file__).parents[2]
TICKS = os.sysconf("SC_CLK_TCK")


class Process:
    """A child with its log in a file. Ends with the test: see `processes`."""

    def __init__(self, log: Path, child: Child) -> None:
        self.log = log
        self._child = child
        self._skip = 0

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._child.pid

    @property
    def stdin(self) -> Any:
        """What a program reads."""
        return self._child.popen.stdin

    @property
    def stdout(self) -> Any:
        """What a program prints."""
        return self._child.popen.stdout

    def running(self) -> bool:
        """Whether it lives (a stopped one does)."""
        return self._child.code() is None

    def signal(self, number: int) -> None:
        """Send it a signal, if it lives."""
        # It may end, and be reaped, between the two.
        with suppress(ProcessLookupError):
            if self.running():
                os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        self.signal(signal.SIGKILL)
        self._child.wait(PATIENCE_S)

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Its exit code, once it has ended; negative for a signal. Fails after the time."""
        try:
            poll(lambda: not self.running(), timeout_s)
        except AssertionError:
            pytest.fail(f"pid {self.pid} did not end in {timeout_s} s:\n{self.tail()}")
        code = self._child.wait(PATIENCE_S)
        assert code is not None
        return code

    def begin_log(self, skip: int) -> None:
        """What the log held before is another's."""
        self._skip = skip

    def lines(self) -> list[dict[str, Any]]:
        """What this process logged, oldest first. Other than JSON lines are `{"text": ...}`.

        One that is being written, or was when the process died, is none yet.
        """
        with self.log.open("rb") as file:
            file.seek(self._skip)
            return [_parsed(line) for line in whole_lines(file.read())]

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


class Child(Protocol):
    """How a process was made, and how it is waited for."""

    @property
    def pid(self) -> int: ...

    @property
    def popen(self) -> Any: ...

    def code(self) -> int | None:
        """Its exit code; None while it lives."""

    def wait(self, timeout_s: float) -> int | None:
        """Its exit code; None if it still lives after the time."""


class Program:
    """A program with its standard input and output open."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        with log.open("ab") as stderr:
            self.popen = subprocess.Popen(
                command,
                cwd=TOP,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.popen.pid

    def code(self) -> int | None:
        return self.popen.poll()

    def wait(self, timeout_s: float) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.popen.wait(timeout_s)
            for pipe in (self.popen.stdin, self.popen.stdout):
                if pipe is not None:
                    pipe.close()
        return self.popen.returncode


class Fork:
    """A function in a process forked off one that has imported everything: it starts at once."""

    def __init__(self, function: Callable[..., int], given: dict[str, Any], log: Path) -> None:
        log.touch()
        self._process = FORKS.Process(target=_work, args=(function, given, str(log)))
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def popen(self) -> Any:
        raise AssertionError("a fork has no pipes")

    def code(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout_s: float) -> int | None:
        self._process.join(timeout_s)
        return self._process.exitcode


FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [f"tests.support.{name}_main" for name in ("daemon", "producer", "migrate")]
)


def _work(function: Callable[..., int], given: dict[str, Any], log: str) -> None:
    handle = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(handle, 2)
    os.close(handle)
    os.setsid()
    sys.exit(function(**given))


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
        self, data: Path, url: str, *, log: str = "writer.log", wait: bool = True, **settings: Any
    ) -> Process:
        """A daemon, of one partition by default. With `wait` it has taken its partitions when this
        returns.
        """
        given = {"data": data, "redis": url, "partitions": 1, **settings}
        process = self.fork(daemon_main.run, given, log)
        if wait:
            wait_taken(process, given["partitions"])
        return process

    def fork(self, function: Callable[..., int], given: dict[str, Any], log: str) -> Process:
        """A process that ends with what the function returns."""
        return self._start(log, lambda path: Fork(function, given, path))

    def python(self, module: str, *arguments: str, log: str = "python.log") -> Process:
        """A Python module, run with these arguments."""
        command = [sys.executable, "-m", module, *arguments]
        return self._start(log, lambda path: Program(command, path))

    def _start(self, log: str, make: Callable[[Path], Child]) -> Process:
        path = self.folder / log
        skip = path.stat().st_size if path.exists() else 0
        process = Process(path, make(path))
        process.begin_log(skip)
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


def wait_taken(process: Process, partitions: int = 1, timeout_s: float = 300.0) -> None:
    """Wait until a daemon writes all its partitions; fails at once if it ended instead.

    It may have to read a whole archive before.
    """

    def taken() -> bool:
        if len(process.said("taken") + process.said("recovered")) >= partitions:
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
def memory_folder() -> Iterator[Path]:
    """A folder in memory where there is such a thing: nothing in it ever waits for a disk."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="sw-", dir=place) as folder:
        yield Path(folder)


def _go_without(reason: str) -> NoReturn:
    """Skip a test whose machine can not do it; on one that must be able to, fail."""
    if under_ci() and os.geteuid() == 0:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


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
        _go_without(reason)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def resize_disk(place: Path, size_bytes: int) -> None:
    """Give a `small_disk` another size."""
    subprocess.run(["mount", "-o", f"remount,size={size_bytes}", str(place)], check=True)


@contextmanager
def immutable(path: Path) -> Iterator[None]:
    """A file or folder that nobody may write, root included; needs root."""
    made = subprocess.run(["chattr", "+i", str(path)], capture_output=True, check=False)
    if made.returncode:
        reason = f"chattr may not be used here: {made.stderr.decode(errors='replace')[:100]}"
        _go_without(reason)
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", str(path)], check=True)
