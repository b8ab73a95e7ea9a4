"""A connection to Redis without hidden retries, whose errors are ours."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from importlib.resources import files
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry as RedisRetry

from writer import errors
from writer.errors import RedisUnavailable

BLOCK_MS_MAX = 500
"""Longest blocking read: also how long a stop may go unnoticed."""
TIMEOUT_S = 10.0
"""For a reply. Far above BLOCK_MS_MAX, for a server under load answers late."""


def translated() -> AbstractContextManager[None]:
    """Redis' errors as ours."""
    return errors.translated("redis")


def connect(url: str) -> redis.Redis:
    """A client of one server. Connects when first used; retries nothing by itself.

    RESP2, which hiredis parses fastest. Raises RedisUnavailable for a URL that it can not read.
    """
    over_tcp = {} if url.startswith("unix") else {"socket_keepalive": True}
    try:
        return redis.Redis.from_url(
            url,
            protocol=2,
            retry=RedisRetry(NoBackoff(), 0),
            retry_on_error=[],
            socket_timeout=TIMEOUT_S,
            socket_connect_timeout=TIMEOUT_S,
            **over_tcp,
        )
    except (ValueError, TypeError) as error:
        raise RedisUnavailable(
            f"the Redis URL can not be read: {error}",
            hint="use redis://, rediss:// (TLS) or unix://, with user and password inside",
        ) from error


Client = redis.Redis
"""What the rest of the writer calls a connection: only this package imports redis."""


def hang_up(client: redis.Redis) -> None:
    """Cut a client's connections; a thread that waits for a reply gets RedisUnavailable at once."""
    client.connection_pool.disconnect()


@cache
def lua(name: str) -> str:
    """The text of a script below `writer/streams/scripts`."""
    return files("writer.streams").joinpath("scripts", name).read_text(encoding="utf-8")


def text(value: Any) -> str:
    """A reply's text; our keys and ids are UTF-8."""
    return value.decode() if isinstance(value, bytes) else str(value)
