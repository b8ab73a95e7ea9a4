"""Sending messages as any host may: XADD, then a mark. For the command line, which judges none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import redis
from redis.exceptions import AuthenticationError, OutOfMemoryError, ReadOnlyError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from producers.contract.keys import Keys, partition_of
from producers.contract.limits import CONTRACT_VERSION
from writer.clock import monotonic, now_ms, sleep
from writer.errors import RedisUnavailable
from writer.streams.link import lua, text, translated

PATIENCE_S = 10.0
"""How long an unreachable Redis is tried again."""
RETRY_S = 0.2
PASSING = (RedisConnectionError, RedisTimeoutError, OutOfMemoryError, ReadOnlyError)
"""What may be over soon. Anything else is told at once: a key of another type stays one."""


class Outgoing(NamedTuple):
    """A message that is to be sent: its run, and its stream fields, one at least."""

    run: str
    fields: Mapping[bytes, bytes]


def agree(client: redis.Redis, keys: Keys, wanted: int) -> int:
    """The number of partitions that hosts are told; `wanted`, if they are told none yet.

    What is sent before any writer has run is for a writer that will have to agree.
    """
    with translated():
        meta = client.register_script(lua("meta.lua"))
        return int(meta(keys=[keys.meta], args=[wanted, CONTRACT_VERSION]))


class Publisher:
    """Sends to the runs of all partitions over one connection."""

    def __init__(self, client: redis.Redis, keys: Keys, partitions: int) -> None:
        self._client = client
        self._keys = keys
        self._partitions = partitions

    def publish(self, items: Sequence[Outgoing], patience_s: float = PATIENCE_S) -> list[str]:
        """Append messages, each run's in this order; returns their ids.

        A partition's are sent in one transaction, so that a Redis that is full takes all or none
        of them: no later command overtakes an earlier one. Tried again for `patience_s`, under the
        same sequences, so what arrived unseen is a duplicate. Raises RedisUnavailable after that.
        """
        ids = [""] * len(items)
        by_partition: dict[int, list[int]] = {}
        for place, item in enumerate(items):
            partition = partition_of(item.run, self._partitions)
            by_partition.setdefault(partition, []).append(place)
        deadline = monotonic() + patience_s
        for partition, places in by_partition.items():
            while True:
                try:
                    found = self._append(partition, [items[place] for place in places])
                except RedisUnavailable as error:
                    if monotonic() >= deadline or not _may_pass(error.__cause__):
                        raise
                    sleep(RETRY_S)
                    continue
                for place, message_id in zip(places, found, strict=True):
                    ids[place] = message_id
                break
        return ids

    def _append(self, partition: int, items: Sequence[Outgoing]) -> list[str]:
        with translated():
            pipeline = self._client.pipeline(transaction=True)
            for item in items:
                fields: dict[Any, Any] = dict(item.fields)
                pipeline.xadd(self._keys.run(partition, item.run), fields)
            now = now_ms()
            marks = {item.run: now for item in items}
            pipeline.zadd(self._keys.ready(partition), marks, lt=True)
            replies = pipeline.execute()
        return [text(reply) for reply in replies[: len(items)]]


def _may_pass(cause: BaseException | None) -> bool:
    return isinstance(cause, PASSING) and not isinstance(cause, AuthenticationError)
