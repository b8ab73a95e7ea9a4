"""What waits in Redis: counted from our own cursors, since nobody else knows what is settled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import redis

from producers.contract.envelope import fields_text, seal
from producers.contract.keys import Keys, partition_of
from writer.streams.link import lua, text, translated
from writer.streams.sweep import STEP

LEAP_MS = 60_000
"""A stream whose last id is further ahead of the server's time: its clock has leapt."""
NAMED_MAX = 1_000
"""How many runs are named; all are counted."""
SCANNED = 50

Cursors = Callable[[Sequence[str]], Mapping[str, str]]
"""Last settled message ids of runs; a run of which nothing is settled is left out."""


@dataclass(slots=True)
class Backlog:
    """A partition's: messages behind the cursors, streams that have any, and those that leapt."""

    messages: int = 0
    streams: int = 0
    oldest_ms: int | None = None
    """When the message arrived that waits longest."""
    ahead: dict[str, int] = field(default_factory=dict)
    """Runs whose last id is over LEAP_MS ahead of the server's time, with how far (ms)."""


def backlog(client: redis.Redis, keys: Keys, partition: int, cursors: Cursors) -> Backlog:
    """Look at every stream of a partition, in small steps. Raises RedisUnavailable."""
    found = Backlog()
    with translated():
        seconds, micros = client.time()
    now = int(seconds) * 1000 + int(micros) // 1000
    script = client.register_script(lua("behind.lua"))
    for runs in streams(client, keys, partition):
        settled = cursors(runs)
        places = [settled.get(run, "0-0") for run in runs]
        with translated():
            replies = script(keys=[keys.run(partition, run) for run in runs], args=places)
        for run, place, reply in zip(runs, places, replies, strict=True):
            if reply is not None:
                _count(found, run, place, reply, now)
    return found


def _count(found: Backlog, run: str, cursor: str, reply: Any, now: int) -> None:
    length, settled, last, first = int(reply[0]), int(reply[1]), text(reply[2]), text(reply[3])
    if _order(last) < _order(cursor):
        # The stream was replaced by one whose ids run behind: it will be read from its start.
        settled = 0
    behind = length - settled
    if behind > 0:
        found.messages += behind
        found.streams += 1
        since = _order(first)[0] if first else None
        if since is not None and (found.oldest_ms is None or since < found.oldest_ms):
            found.oldest_ms = since
    leap = _order(last)[0] - now
    if leap > LEAP_MS and len(found.ahead) < NAMED_MAX:
        found.ahead[run] = leap


def existing(
    client: redis.Redis, keys: Keys, partitions: int, runs: Sequence[str]
) -> frozenset[str]:
    """Those of the runs that have a stream in Redis. Raises RedisUnavailable."""
    with translated():
        pipeline = client.pipeline(transaction=False)
        for run in runs:
            pipeline.exists(keys.run(partition_of(run, partitions), run))
        replies = pipeline.execute()
    return frozenset(run for run, reply in zip(runs, replies, strict=True) if reply)


def waiting_message(
    client: redis.Redis, keys: Keys, partition: int, run: str, message_id: str
) -> dict[str, Any] | None:
    """The fields of one message that a stream holds still, its token sealed, as rejections show
    them; None if it is gone. Raises RedisUnavailable.
    """
    with translated():
        found: Any = client.xrange(keys.run(partition, run), min=message_id, max=message_id)
    if not found:
        return None
    fields: dict[str, Any] = orjson.loads(fields_text(seal(found[0][1])))
    return fields


def last_sequence(client: redis.Redis, keys: Keys, partitions: int, run: str, producer: str) -> int:
    """The highest sequence of a producer that still waits in a run's stream; 0 if there is none.

    Looks from the end for the producer's last message, since its sequences rise.
    """
    name = keys.run(partition_of(run, partitions), run)
    wanted = producer.encode()
    end = "+"
    while True:
        with translated():
            messages: Any = client.xrevrange(name, max=end, count=SCANNED)
        for message_id, fields in messages:
            if fields.get(b"producer") == wanted and fields.get(b"seq", b"").isdigit():
                return int(fields[b"seq"])
            end = f"({text(message_id)}"
        if len(messages) < SCANNED:
            return 0


def streams(client: redis.Redis, keys: Keys, partition: int) -> Iterator[list[str]]:
    """Runs that have a stream in a partition, in small steps. Raises RedisUnavailable."""
    prefix = keys.run_prefix(partition)
    place: Any = 0
    while True:
        with translated():
            place, names = client.scan(
                cursor=place, match=_literal(prefix) + "*", count=STEP, _type="STREAM"
            )
        if names:
            yield [text(name).removeprefix(prefix) for name in names]
        if int(place) == 0:
            return


def _literal(prefix: str) -> str:
    """A text that SCAN's pattern matches as it is."""
    return "".join(f"\\{char}" if char in "\\*?[]" else char for char in prefix)


def _order(message_id: str) -> tuple[int, int]:
    ms, _, n = message_id.partition("-")
    return int(ms), int(n or 0)
