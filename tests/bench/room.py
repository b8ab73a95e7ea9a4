"""The room that a figure gets: a folder on the real disk, a real Redis, how often and how much."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from rich.console import Console

from tests.support.servers import RealServer, real_server

SLOW_SYNC_MS = 2
REDIS_SETTINGS = {"appendonly": "yes", "appendfsync": "everysec"}


class Skip(Exception):
    """Raised by a figure that can not be measured here; its text says what is missing."""


@dataclass
class Room:
    """What `measure(room)` works with.

    `rounds` are how often both sides are measured, in turns; `quick` asks for sizes that only show
    that the figure works; `long` allows for minutes of building.
    """

    place: Path
    console: Console
    rounds: int = 3
    quick: bool = False
    long: bool = False
    _started: float = field(default_factory=monotonic)

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A fresh folder on the disk that is measured; removed afterwards."""
        made = Path(tempfile.mkdtemp(prefix="sw-bench-", dir=self.place))
        try:
            yield made
        finally:
            shutil.rmtree(made)

    @contextmanager
    def redis(self, settings: Mapping[str, str] | None = None) -> Iterator[RealServer]:
        """A fresh server on a socket of its own: AOF, synced every second unless `settings` say
        otherwise.
        """
        with real_server("redis", {**REDIS_SETTINGS, **(settings or {})}) as server:
            yield server

    def log(self, line: str) -> None:
        """Show that something goes on."""
        self.console.print(f"[dim]{monotonic() - self._started:6.0f} s  {line}[/dim]")

    def slow_sync(self) -> dict[str, str]:
        """Environment for a child process whose every sync takes 2 ms longer.

        Raises Skip where no C compiler is.
        """
        library = self.place / "slowsync.so"
        if not library.exists():
            compiler = shutil.which("cc")
            if compiler is None:
                raise Skip("no C compiler (cc) for the library that slows down syncs")
            source = Path(__file__).parent / "slowsync.c"
            flags = ["-shared", "-fPIC", "-O2", f"-DDELAY_MS={SLOW_SYNC_MS}"]
            subprocess.run([compiler, *flags, "-o", library, source, "-ldl"], check=True)
        return {**os.environ, "LD_PRELOAD": str(library)}
