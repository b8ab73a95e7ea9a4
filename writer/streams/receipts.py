"""Receipts: the outcome of a command, for a producer that asked. Best effort, and never waited
for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import redis
from redis.exceptions import RedisError

from producers.contract.keys import Keys

RECEIPTS_MAX = 10_000
"""Kept per producer; older ones are dropped."""
TTL_MS = 60 * 60 * 1_000


def send_receipts(
    client: redis.Redis,
    keys: Keys,
    partition: int,
    receipts: Iterable[tuple[str, Mapping[str, str | int]]],
) -> None:
    """Append each receipt to its producer's reply stream. A failure is not an error: they may be
    lost.
    """
    pipeline = client.pipeline(transaction=False)
    names = set()
    for reply, receipt in receipts:
        name = keys.reply(partition, reply)
        names.add(name)
        fields: dict[Any, Any] = dict(receipt)
        pipeline.xadd(name, fields, maxlen=RECEIPTS_MAX, approximate=True)
    for name in names:
        pipeline.pexpire(name, TTL_MS)
    with suppress(RedisError):
        pipeline.execute(raise_on_error=False)
