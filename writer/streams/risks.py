"""What a Redis server may lose, judged by its settings: one sentence for each risk."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from redis.exceptions import ResponseError

from writer.streams.link import Client, text, translated

SETTINGS = ("appendonly", "appendfsync", "maxmemory-policy")
FULL = "maxmemory"
"""The setting of the risk that is none any more: the server is full now."""


class Risk(NamedTuple):
    """A setting and what it may cost. `severe`: accepted commands may be lost for no good reason;
    else it is a choice that someone may have made.
    """

    setting: str
    value: str | None
    sentence: str
    severe: bool


def risks(client: Client) -> list[Risk]:
    """What the server may lose, or refuses already, worst first; none: it keeps what it accepted.

    What neither CONFIG GET nor INFO tells (a managed server may forbid both) is said, too. Raises
    RedisUnavailable where the server does not answer at all.
    """
    known, told = _settings(client)
    found = [
        risk
        for risk in (
            _append_only(known["appendonly"]),
            _sync(known["appendonly"], known["appendfsync"]),
            _eviction(known["maxmemory-policy"]),
            _full(told),
        )
        if risk is not None
    ]
    return sorted(found, key=lambda risk: not risk.severe)


def _settings(client: Client) -> tuple[dict[str, str | None], dict[str, Any]]:
    known: dict[str, str | None] = dict.fromkeys(SETTINGS)
    with translated():
        client.ping()
        for name in SETTINGS:
            values: Any = _allowed(partial(client.config_get, name))
            known[name] = values.get(name, values.get(name.encode()))
        told: Any = _allowed(client.info)
    if known["appendonly"] is None and "aof_enabled" in told:
        known["appendonly"] = "yes" if told["aof_enabled"] else "no"
    if known["maxmemory-policy"] is None:
        known["maxmemory-policy"] = told.get("maxmemory_policy")
    return {name: None if value is None else text(value) for name, value in known.items()}, told


def _allowed(ask: Callable[[], Any]) -> Any:
    """The reply, or nothing where the server forbids or does not know the command."""
    try:
        return ask()
    except ResponseError:
        return {}


def _append_only(value: str | None) -> Risk | None:
    if value is None:
        return Risk(
            "appendonly",
            None,
            "Whether Redis keeps an append-only file could not be checked; without one its restart "
            "loses every message that is not applied yet.",
            severe=False,
        )
    if value == "yes":
        return None
    return Risk(
        "appendonly",
        value,
        "Redis keeps no append-only file (appendonly is no): its restart loses every message that "
        "is not applied yet.",
        severe=True,
    )


def _sync(append_only: str | None, value: str | None) -> Risk | None:
    if append_only == "no" or value == "always":
        return None
    if value is None:
        return Risk(
            "appendfsync",
            None,
            "How often Redis syncs its append-only file could not be checked; with anything but "
            "always, a power cut or a kill under load loses the latest accepted messages.",
            severe=False,
        )
    if value == "everysec":
        return Risk(
            "appendfsync",
            value,
            "Redis syncs once a second (appendfsync is everysec): a power cut, or a kill while its "
            "disk is busy, loses the last second or two of accepted messages; the writer says "
            "which.",
            severe=False,
        )
    return Risk(
        "appendfsync",
        value,
        f"Redis leaves syncing to the system (appendfsync is {value}): a power cut loses up to "
        "half a minute of accepted messages.",
        severe=True,
    )


def _eviction(value: str | None) -> Risk | None:
    if value is None:
        return Risk(
            "maxmemory-policy",
            None,
            "What Redis does when it is full could not be checked; with any policy but noeviction "
            "it may delete messages that nobody has applied.",
            severe=False,
        )
    if value == "noeviction":
        return None
    return Risk(
        "maxmemory-policy",
        value,
        f"When Redis is full it deletes keys (maxmemory-policy is {value}): whole streams that "
        "nobody has applied, without an error; set noeviction.",
        severe=True,
    )


def _full(told: dict[str, Any]) -> Risk | None:
    """At `maxmemory` without a policy that deletes: whatever makes the server larger is refused."""
    most = told.get("maxmemory", 0)
    used = told.get("used_memory", 0) - told.get("mem_not_counted_for_evict", 0)
    if not most or used < most or told.get("maxmemory_policy") != "noeviction":
        return None
    return Risk(
        FULL,
        str(most),
        f"Redis is full ({used} bytes of maxmemory {most}): it refuses what hosts send; raise "
        "maxmemory, or find what fills it.",
        severe=True,
    )
