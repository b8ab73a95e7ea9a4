"""What a producer left in Redis, read as the writer reads it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import redis

from producers.contract.envelope import Decoded, decode, seal
from producers.contract.keys import Keys, partition_of

PARTITIONS = 2
NOWHERE = "unix:///nonexistent/statewriter-test.sock"
"""A server that never answers, for calls whose commands need not arrive."""


def stream_of(run: str, partitions: int = PARTITIONS) -> str:
    """The key of a run's stream."""
    return Keys().run(partition_of(run, partitions), run)


def ready_of(run: str, partitions: int = PARTITIONS) -> str:
    """The key of the marks that the run's partition has."""
    return Keys().ready(partition_of(run, partitions))


def raw_messages(client: redis.Redis, run: str) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """Every message of a run, in order."""
    answer: Any = client.xrange(stream_of(run))
    return list(answer)


def messages(client: redis.Redis, run: str) -> list[Decoded]:
    """Every message of a run as the writer decodes it; none of them may be refused."""
    decoded = [
        decode(run, message_id.decode(), seal(fields))
        for message_id, fields in raw_messages(client, run)
    ]
    for message in decoded:
        assert message.command is not None, (message.reason, message.detail)
    return decoded


def first_arrivals(decoded: Iterable[Decoded]) -> list[Decoded]:
    """Without what was sent again, which must be the same command."""
    known: dict[tuple[str | None, int | None], Decoded] = {}
    for message in decoded:
        first = known.setdefault((message.producer, message.seq), message)
        assert first.body_hash == message.body_hash
    return list(known.values())


def bodies(client: redis.Redis, run: str) -> list[tuple[str | None, Any]]:
    """Kind and body of a run's messages."""
    return [(message.kind, message.body) for message in messages(client, run)]
