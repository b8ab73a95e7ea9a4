"""The sweep: marks for whatever hosts and writers that died in between left unmarked.

It looks at all streams in small steps, on connections of its own, and the loops never wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Event

import redis

from producers.contract.keys import Keys
from writer.clock import SYSTEM, Clock
from writer.streams.link import lua, text, translated

NEVER = ("0-0", False)
STEP = 500
"""Keys looked at in one step."""

Cursors = Callable[[Sequence[str]], Mapping[str, tuple[str, bool]]]
"""Asks a partition's file for runs' last settled message ids, and which of the runs have ended."""


def sweep(
    client: redis.Redis,
    keys: Keys,
    partition: int,
    cursors: Cursors,
    ended: Event,
    clock: Clock = SYSTEM,
) -> int:
    """Mark each stream of a partition that is not as its cursor says, and each of an ended run.

    A stream that was replaced is behind its cursor, one that was not trimmed has a length, one
    whose run has ended may go: the loop finds out. Returns how many it marked. Raises
    RedisUnavailable.
    """
    marked = 0
    prefix = keys.run_prefix(partition)
    place = 0
    while not ended.is_set():
        with translated():
            place, names = client.scan(
                cursor=place, match=_literal(prefix) + "*", count=STEP, _type="STREAM"
            )
        # A name that is not UTF-8 can be no run's: it is left as it is.
        runs = [run for name in names if (run := _run_of(name, prefix)) is not None]
        if runs:
            ready = _ready(client, keys, partition, runs, cursors(runs))
            _mark(client, keys, partition, ready, clock.now_ms())
            marked += len(ready)
        if place == 0:
            break
    return marked


def _run_of(name: bytes | str, prefix: str) -> str | None:
    try:
        return text(name).removeprefix(prefix)
    except UnicodeDecodeError:
        return None


def _ready(
    client: redis.Redis,
    keys: Keys,
    partition: int,
    runs: Sequence[str],
    cursors: Mapping[str, tuple[str, bool]],
) -> list[str]:
    with translated():
        pipeline = client.pipeline(transaction=False)
        for run in runs:
            pipeline.xinfo_stream(keys.run(partition, run))
        replies = pipeline.execute(raise_on_error=False)
    return [
        run
        for run, reply in zip(runs, replies, strict=True)
        if isinstance(reply, dict)
        and _differs(reply["length"], text(reply["last-generated-id"]), *cursors.get(run, NEVER))
    ]


def _mark(client: redis.Redis, keys: Keys, partition: int, runs: Sequence[str], now: int) -> None:
    if runs:
        with translated():
            mark = client.register_script(lua("mark.lua"))
            mark(keys=[keys.ready(partition)], args=[now, *runs])


def _differs(length: int, last_id: str, cursor: str, ended: bool) -> bool:
    return bool(length) or last_id != cursor or ended


def _literal(text_: str) -> str:
    """A text that SCAN's pattern matches as it is."""
    return "".join(f"\\{char}" if char in "\\*?[]" else char for char in text_)
