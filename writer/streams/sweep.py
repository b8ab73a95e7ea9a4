"""The sweep: marks for whatever hosts and writers that died in between left unmarked.

It looks at all streams in small steps, on connections of its own, and the loops never wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from threading import Event

import redis

from producers.contract.keys import Keys
from writer.clock import SYSTEM, Clock
from writer.streams.link import lua, text, translated

STEP = 500
"""Keys looked at in one step."""

Unlike = Callable[[Mapping[str, str]], Iterable[str]]
"""Of runs whose streams hold nothing, with the last ids of these: which are not settled up to
there in the partition's file, or have ended.
"""


def sweep(
    client: redis.Redis,
    keys: Keys,
    partition: int,
    unlike: Unlike,
    ended: Event,
    clock: Clock = SYSTEM,
    *,
    thorough: bool = True,
) -> int:
    """Mark each stream of a partition that holds messages; if `thorough`, also each that is not as
    its cursor says, and each of an ended run.

    A stream that was replaced is behind its cursor, one that was not trimmed has a length, one
    whose run has ended may go: the loop finds out. Returns how many it marked. Raises
    RedisUnavailable.
    """
    marked = 0
    prefix = keys.run_prefix(partition)
    look = client.register_script(lua("look.lua"))
    place = 0
    while not ended.is_set():
        with translated():
            place, names = client.scan(
                cursor=place, match=_literal(prefix) + "*", count=STEP, _type="STREAM"
            )
            replies = look(keys=names, args=[int(thorough)]) if names else []
        ready: list[str] = []
        empty: dict[str, str] = {}
        for name, reply in zip(names, replies, strict=True):
            # A name that is not UTF-8 can be no run's: it is left as it is.
            if reply is None or (run := _run_of(name, prefix)) is None:
                continue
            if reply == 1:
                ready.append(run)
            else:
                empty[run] = text(reply)
        if empty:
            ready += unlike(empty)
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


def _mark(client: redis.Redis, keys: Keys, partition: int, runs: list[str], now: int) -> None:
    if runs:
        with translated():
            mark = client.register_script(lua("mark.lua"))
            mark(keys=[keys.ready(partition)], args=[now, *runs])


def _literal(text_: str) -> str:
    """A text that SCAN's pattern matches as it is."""
    return "".join(f"\\{char}" if char in "\\*?[]" else char for char in text_)
