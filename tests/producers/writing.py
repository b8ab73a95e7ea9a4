"""A writer beside the producers of a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.silence import SilentLog
from tests.support.wait import poll
from writer.daemon import Daemon
from writer.settings import WriterSettings
from writer.store.reader import StateReader


@contextmanager
def writing(data: Path, url: str, **settings: Any) -> Iterator[StateReader]:
    """A daemon that runs, and a reader of what it wrote."""
    daemon = Daemon(WriterSettings(data=data, **settings), url, SilentLog())
    daemon.start()
    try:
        with StateReader(data) as reader:
            yield reader
    finally:
        daemon.stop()
        daemon.wait()


def settled(reader: StateReader, run: str) -> int:
    """How many messages of a run are settled."""
    found = reader.run(run)
    cursor = None if found is None else found["cursor"]
    return 0 if cursor is None else cursor["applied"] + cursor["duplicates"] + cursor["rejected"]


def await_applied(reader: StateReader, run: str, wanted: int) -> None:
    """Wait until so many commands of the run are applied."""
    poll(lambda: applied(reader, run) >= wanted, message=f"{wanted} of {run} to be applied")


def applied(reader: StateReader, run: str) -> int:
    """How many commands of the run are applied."""
    found = reader.run(run)
    return 0 if found is None or found["cursor"] is None else found["cursor"]["applied"]


def numbers(reader: StateReader, run: str) -> list[Any]:
    """The `n` of the state after each of the run's revisions past its creation."""
    found: list[Any] = []
    after = 0
    while events := reader.trace(run, after=after, limit=10_000):
        found += [event["payload"]["n"] for event in events if event["type"] == "step"]
        after = events[-1]["revision"]
    return found


def say(run: Any, n: int) -> Any:
    """A command that `numbers` finds again."""
    return run.snapshot({"n": n}, event="step", payload={"n": n})
