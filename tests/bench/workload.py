"""The workload as messages of our contract: what lies in Redis before a writer is started.

Its values are those of `tests.support.workload`, given on here: the same texts everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from producers.contract.envelope import encode
from producers.contract.keys import Keys, partition_of
from tests.support.servers import RealServer
from tests.support.workload import (
    CURRENT,
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
    "patch",
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
STATEFUL = ("run.create", "run.snapshot", "run.patch")
ENDING = ("status", "finishedAt", "finalOutput")
"""What the last snapshot of a run sets."""


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


def packed(run: str, sent: Iterable[Sent]) -> Iterator[Packed]:
    """Commands as messages of one producer, in order. A patch builds on the state before it."""
    base = 0
    for seq, (kind, body) in enumerate(sent, 1):
        based = {**body, "base": base} if kind == "run.patch" else body
        yield Packed(run, encode(kind, based, producer=PRODUCER, seq=seq))
        if kind in STATEFUL:
            base = seq


def typical_commands(run: str, *, patches: bool = False) -> Iterator[Packed]:
    """The 483 commands of one agent run; its snapshots whole, or as what changed."""
    return packed(run, map(patch if patches else command, typical_ops(run)))


def patch(op: Op) -> Sent:
    """An operation as our command, a snapshot as a patch of what `push_step` changes."""
    if op.name != "snapshot":
        return command(op)
    state, draft = op.payload
    done, node = state["steps"][-1], draft["nodeId"]
    ended = state["status"] != "running"
    members = ENDING if ended else CURRENT
    return Sent(
        "run.patch",
        {
            "remove": [[name] for name in CURRENT] if ended else [],
            "set": [
                {"path": ["outputs", node], "value": state["outputs"][node]},
                {"path": ["results", node], "value": state["results"][node]},
                *({"path": [name], "value": state[name]} for name in members),
            ],
            "splice": [
                {
                    "path": ["steps"],
                    "length": len(state["steps"]) - 1,
                    "start": len(state["steps"]) - 1,
                    "delete": 0,
                    "items": [done],
                }
            ],
            "event": event_draft(draft),
        },
    )


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
