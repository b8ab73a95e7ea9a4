"""Large states of a run, of which a little changes each time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis

from producers import Producer, Run, Sent
from tests.producers.reading import bodies
from tests.support.servers import RealServer
from writer.store.reader import StateReader

BIG = "x" * 1_100


def state_at(n: int, **more: Any) -> dict[str, Any]:
    """A state of which a little changes each time, and which grows."""
    steps = [{"id": place, "output": f"{place} {BIG}"} for place in range(10 + n)]
    return {"status": "running", "n": n, "steps": steps, **more}


def say(run: Run, n: int, **more: Any) -> Sent:
    """The nth state, with an event that `told` finds again."""
    return run.snapshot(state_at(n, **more), event="step", payload={"n": n})


def kinds(client: redis.Redis, run: str = "r") -> list[str | None]:
    """Of the messages in the run's stream."""
    return [kind for kind, _ in bodies(client, run)]


def told(reader: StateReader, run: str = "r") -> list[int]:
    """The `n` of the run's events, in order."""
    found = reader.trace(run, limit=10_000)
    return [event["payload"]["n"] for event in found if event["type"] == "step"]


def state(reader: StateReader, run: str = "r", revision: int | None = None) -> dict[str, Any]:
    """The run's state, now or as of a revision."""
    found = reader.state(run, revision)
    assert found is not None
    return found


def refused(reader: StateReader, run: str = "r") -> list[str]:
    """Reasons of the run's rejections."""
    return [each["reason"] for each in reader.rejections(run=run).rejections]


def overwrite(other: Producer, n: int = -1) -> None:
    """Another producer says a state, and it is applied."""
    other.wait_applied(say(other.run("r"), n), 60)


@contextmanager
def unanswered(server: RealServer) -> Iterator[None]:
    """What is said within is said before the writer has answered any of it."""
    server.pause()
    try:
        yield
    finally:
        server.resume()
