"""The workload as messages of our contract: what lies in Redis before a writer is started.

Its values are those of `tests.support.workload`, given on here: the same texts everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import orjson

from producers.contract.envelope import encode
from producers.contract.keys import Keys, partition_of
from tests.support.servers import RealServer
from tests.support.workload import (
    Op,
    Sent,
    base_state,
    binding,
    command,
    entry,
    event_draft,
    growth_states,
    push_step,
    small_state,
    text,
    typical_ops,
    update,
    workflow,
)

__all__ = [
    "PRODUCER",
    "Op",
    "Packed",
    "Sent",
    "base_state",
    "binding",
    "command",
    "entry",
    "entry_commands",
    "event_draft",
    "growth_states",
    "load",
    "packed",
    "push_step",
    "run_ids",
    "small_state",
    "text",
    "typical_commands",
    "typical_ops",
    "update",
    "workflow",
]

PRODUCER = "bench"
PIPELINE = 200


class Packed(NamedTuple):
    """A message before it has an id: its run, and its fields as Redis will have them."""

    run: str
    fields: dict[bytes, bytes]


def run_ids(count: int, partitions: int = 1, partition: int = 0) -> list[str]:
    """Ids of runs that all belong to one partition."""
    found: list[str] = []
    number = 0
    while len(found) < count:
        number += 1
        if partition_of(f"run-{number:06}", partitions) == partition:
            found.append(f"run-{number:06}")
    return found


def packed(run: str, sent: Iterable[Sent], first_seq: int = 1) -> Iterator[Packed]:
    """Commands as messages of one producer, in order."""
    for seq, (kind, body) in enumerate(sent, first_seq):
        yield Packed(run, encode(kind, body, producer=PRODUCER, seq=seq))


def typical_commands(run: str) -> Iterator[Packed]:
    """The 483 commands of one agent run."""
    return packed(run, map(command, typical_ops(run)))


def entry_commands(run: str, count: int) -> Iterator[Packed]:
    """A run with a session, and so many transcript entries of 1 KB: `count` + 2 commands."""
    return packed(run, _entries(run, count))


def _entries(run: str, count: int) -> Iterator[Sent]:
    state = base_state(run)
    yield command(Op("init", (workflow(), state)))
    yield command(Op("bind", binding(run)))
    for number in range(count):
        yield Sent("session.entry", {"entry": entry(f"{run}-", number)})


def load(server: RealServer, messages: Sequence[Packed], partitions: int = 1) -> None:
    """Put messages into their streams, pipelined, and mark the runs as ready."""
    keys = Keys()
    places = {run: partition_of(run, partitions) for run in {each.run for each in messages}}
    with server.client() as client:
        for first in range(0, len(messages), PIPELINE):
            pipeline: Any = client.pipeline(transaction=False)
            for run, fields in messages[first : first + PIPELINE]:
                pipeline.xadd(keys.run(places[run], run), fields)
            pipeline.execute()
        for run, partition in places.items():
            client.zadd(keys.ready(partition), {run: 0})


def payload_bytes(messages: Iterable[Packed]) -> int:
    """What the hosts sent: the bodies, without the envelope's other fields."""
    return sum(len(each.fields[b"body"]) for each in messages)


def body_of(each: Packed) -> Any:
    """A message's body, parsed."""
    return orjson.loads(each.fields[b"body"])
