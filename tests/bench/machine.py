"""On what a figure was measured: the machine, the versions, and who else was busy."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import apsw

from tests.support.servers import program

PACKAGES = ("redis", "hiredis", "orjson", "pydantic", "apsw")
PEERS = ("langgraph-checkpoint-sqlite", "dbos", "rq", "huey")


def machine(place: Path) -> dict[str, str]:
    """A name and a text each. `place` is where the files of the benchmark lie."""
    return {
        "processor": f"{os.cpu_count()} x {_processor()}",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "disk": _filesystem(place),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "redis-server": _redis(),
        "statewriter": _commit(),
        **{name: _version(name) for name in (*PACKAGES, *PEERS)},
    }


def busy() -> str:
    """How many processes wanted a processor, over the last minute."""
    return f"{os.getloadavg()[0]:.2f}"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _filesystem(place: Path) -> str:
    best = ("", "unknown")
    for line in Path("/proc/mounts").read_text().splitlines():
        _, point, kind, *_ = line.split()
        if place.is_relative_to(point) and len(point) >= len(best[0]):
            best = (point, kind)
    return best[1]


def _redis() -> str:
    found = program("redis")
    if found is None:
        return "none"
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    return said.partition("v=")[2].partition(" ")[0]


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent
    )
    return f"{_version('statewriter')} ({done.stdout.strip() or 'no repository'})"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
