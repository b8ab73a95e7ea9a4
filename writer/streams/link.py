"""A connection to Redis without hidden retries, whose errors are ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry as RedisRetry

from writer.errors import RedisUnavailable

BLOCK_MS_MAX = 500
"""Longest blocking read: also how long a stop may go unnoticed."""
TIMEOUT_S = 10.0
"""For a reply. Far above BLOCK_MS_MAX, for a server under load answers late."""

_HINTS: tuple[tuple[type[RedisError], str, str], ...] = (
    (AuthenticationError, "it refuses the password", "check the URL's user and password"),
    (AuthorizationError, "it refuses the user", "check the URL's user and password"),
    (NoPermissionError, "the user lacks a right", "see docs for the ACL the writer needs"),
    (OutOfMemoryError, "it is at maxmemory", "raise maxmemory; the policy must be noeviction"),
    (ReadOnlyError, "it is a replica", "point --redis at the primary"),
    (BusyLoadingError, "it is loading its data", "wait: the writer goes on by itself"),
    (RedisTimeoutError, "it does not answer in time", "look at the server's load"),
    (RedisConnectionError, "it can not be reached", "start it; the writer goes on by itself"),
)


@contextmanager
def translated() -> Iterator[None]:
    """Redis' errors as RedisUnavailable, with a cause in words and a next step."""
    try:
        yield
    except RedisError as error:
        for kind, cause, hint in _HINTS:
            if isinstance(error, kind):
                raise RedisUnavailable(f"Redis: {cause}", hint=hint) from error
        raise RedisUnavailable(
            f"Redis answers with an error: {str(error)[:200]}", hint="look at the server's log"
        ) from error


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


def lua(name: str) -> str:
    """The text of a script below `writer/streams/scripts`."""
    return files("writer.streams").joinpath("scripts", name).read_text(encoding="utf-8")


def text(value: Any) -> str:
    """A reply's text; our keys and ids are UTF-8."""
    return value.decode() if isinstance(value, bytes) else str(value)
