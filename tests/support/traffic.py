"""Valid commands for many runs at once, sent as any host may, and what became of the sending.

Every command carries its producer's sequence as `n`, so that what is stored can be traced back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import redis

from producers.contract.envelope import encode
from producers.contract.keys import Keys, partition_of

Body = dict[str, Any]


class Command(NamedTuple):
    """One command of the traffic."""

    run: str
    seq: int
    kind: str
    body: Body


def opening(run: str) -> list[tuple[str, Body]]:
    """What every run begins with."""
    return [
        ("run.create", {"workflow": "traffic", "state": {"status": "running", "n": 1}}),
        ("session.bind", {"session": f"{run}-session"}),
    ]


def body_of(seq: int, size: int) -> tuple[str, Body]:
    """The command of a sequence past the opening: it applies whatever is missing before it."""
    text = f"{seq} " * (size // 8 + 1)
    which = seq % 4
    if which == 0:
        return "run.update", {"type": "progress", "key": f"k{seq % 7}", "data": {"n": seq}}
    if which == 1:
        state = {"status": "running", "n": seq, "text": text, f"m{seq % 5}": {"n": seq}}
        return "run.snapshot", {"state": state, "event": {"type": "step", "payload": {"n": seq}}}
    if which == 2:
        return "session.entry", {"entry": {"id": f"e{seq}", "n": seq, "text": text}}
    return "run.update", {"type": "note", "key": "last", "data": {"n": seq, "text": text}}


class Traffic:
    """One producer that writes to some runs of a prefix, round robin."""

    def __init__(
        self,
        runs: Sequence[str],
        *,
        producer: str = "traffic",
        prefix: str = "sw",
        partitions: int = 1,
        body_bytes: int = 200,
    ) -> None:
        self.runs = runs
        self.producer = producer
        self.keys = Keys(prefix)
        self.partitions = partitions
        self.acked: dict[str, dict[int, str]] = defaultdict(dict)
        """Message id by run and sequence, of what Redis has confirmed."""
        self.attempted: dict[str, int] = defaultdict(int)
        """Last sequence by run that was ever sent."""
        self._commands = self._generate(body_bytes)

    @property
    def total(self) -> int:
        """How many commands were confirmed."""
        return sum(map(len, self.acked.values()))

    def next(self, count: int) -> list[Command]:
        """The next commands, not sent yet."""
        return list(islice(self._commands, count))

    def send(self, client: redis.Redis, count: int) -> None:
        """Send the next commands in one pipeline. Raises what redis-py raises; some may arrive."""
        self.put(client, self.next(count))

    def put(self, client: redis.Redis, commands: Sequence[Command]) -> None:
        """Send these commands in one pipeline: plain XADDs, then the marks."""
        pipeline = client.pipeline(transaction=False)
        for command in commands:
            partition = partition_of(command.run, self.partitions)
            pipeline.xadd(self.keys.run(partition, command.run), self.fields(command))
            self.attempted[command.run] = max(self.attempted[command.run], command.seq)
        for run in dict.fromkeys(command.run for command in commands):
            pipeline.zadd(self.keys.ready(partition_of(run, self.partitions)), {run: 0}, lt=True)
        replies = pipeline.execute()
        for command, reply in zip(commands, replies, strict=False):
            self.acked[command.run][command.seq] = reply.decode()

    def fields(self, command: Command) -> dict[Any, Any]:
        """The stream fields of a command."""
        return encode(command.kind, command.body, producer=self.producer, seq=command.seq)

    def _generate(self, body_bytes: int) -> Iterator[Command]:
        seq = 0
        while True:
            seq += 1
            for run in self.runs:
                first = opening(run)
                kind, body = first[seq - 1] if seq <= len(first) else body_of(seq, body_bytes)
                yield Command(run, seq, kind, body)


def names(count: int, stem: str = "run") -> list[str]:
    """Run ids."""
    return [f"{stem}-{number:03d}" for number in range(count)]
