"""Faults at exact system calls, injected by strace."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import apply_main
from tests.support.processes import Process, Processes
from tests.support.servers import under_ci
from tests.support.wait import PATIENCE_S, poll


def require_strace() -> str:
    """The program, if it may trace here; skips visibly where not, and fails under CI."""
    program = shutil.which("strace")
    reason = "no strace: apt-get install strace"
    if program is not None:
        probe = subprocess.run(
            [program, "-f", "-e", "trace=none", "true"], capture_output=True, check=False
        )
        if probe.returncode == 0:
            return program
        reason = f"strace may not trace here: {probe.stderr.decode(errors='replace')[:200]}"
    if under_ci():
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@contextmanager
def injected(pid: int, call: str, fault: str, log: Path) -> Iterator[None]:
    """While within, a fault strikes a process' (and its threads') calls: `error=EIO`, and so on.

    `fault` may end in `:when=3` (the third call only) or `:when=3+` (from the third on).
    """
    log.unlink(missing_ok=True)
    with log.open("wb") as stderr:
        command = [require_strace(), "-f", "-p", str(pid), "-o", os.devnull]
        tracer = subprocess.Popen(
            [*command, "-e", f"trace={call}", "-e", f"inject={call}:{fault}"], stderr=stderr
        )
    try:
        poll(lambda: b"attached" in log.read_bytes() or tracer.poll() is not None, message="strace")
        assert tracer.poll() is None, log.read_text()
        yield
    finally:
        # It detaches, and the process goes on unharmed.
        tracer.send_signal(signal.SIGINT)
        tracer.wait(PATIENCE_S)


class Scripted:
    """Runs of `apply_main`, each with a fault at one system call."""

    def __init__(self, started: Processes, folder: Path) -> None:
        self._folder = folder
        self._server: Process = started.python("tests.support.apply_main", log="apply.log")

    def run(self, data: Path, call: str, fault: str) -> tuple[int, list[str]]:
        """Apply all batches to a folder; returns the exit code and what was told."""
        told = data.with_suffix(".told")
        self._server.stdin.write(f"{data} {told}\n".encode())
        self._server.stdin.flush()
        pid = int(self._server.stdout.readline())
        poll(lambda: _is_stopped(pid), message="the child to stop itself")
        with injected(pid, call, fault, self._folder / "strace.log"):
            os.kill(pid, signal.SIGCONT)
            code = int(self._server.stdout.readline())
        return code, told.read_text().splitlines()


def _is_stopped(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "T"


def expected_after(told: list[str]) -> tuple[int, int]:
    """How many batches must be in the file at least, and may be at most."""
    committed = [int(line) for line in told if line.isdigit()]
    certain = max(committed, default=-1) + 1
    return certain, min(certain + 1, apply_main.BATCHES)
