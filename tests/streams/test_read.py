"""Taking marks, and reading streams within bounds."""

from __future__ import annotations

import time

import pytest

from tests.streams.conftest import KEYS, Streams
from writer.errors import RedisUnavailable
from writer.streams.read import Reader

BUDGET = 10_000


@pytest.fixture
def reader(streams: Streams) -> Reader:
    return Reader(streams.client, KEYS, 0, batch_bytes_max=BUDGET, batch_messages_max=100)


def places(reader: Reader, *cursors: tuple[str, str], most: int = 100) -> list[tuple[str, str]]:
    return [(item.run, item.id) for item in reader.read(cursors, most).items]


def test_marks_are_taken_in_the_order_of_their_scores(streams: Streams, reader: Reader) -> None:
    streams.client.zadd(KEYS.ready(0), {"c": 3, "a": 1, "b": 2})
    assert reader.take(2, wait=True) == ["a", "b"]
    assert reader.take(2, wait=False) == ["c"]
    assert reader.take(2, wait=False) == []


def test_waiting_for_a_mark_ends_by_itself(reader: Reader) -> None:
    began = time.monotonic()
    assert reader.take(5, wait=True) == []
    assert time.monotonic() - began > 0.3


def test_a_mark_is_put_back_where_a_newer_one_does_not_lower_it(
    streams: Streams, reader: Reader
) -> None:
    reader.mark(["a"], 5)
    reader.mark(["a", "b"], 9)
    reader.mark([], 1)
    assert streams.ready() == {"a": 5.0, "b": 9.0}


def test_reading_goes_on_behind_each_cursor(streams: Streams, reader: Reader) -> None:
    streams.add("a", "5-1", "5-2", "6-0")
    streams.add("b", "1-1", "9-1")
    assert places(reader, ("b", "1-1"), ("a", "5-1")) == [("b", "9-1"), ("a", "5-2"), ("a", "6-0")]


def test_a_stream_that_is_read_to_its_end_has_no_rest(streams: Streams, reader: Reader) -> None:
    streams.add("a", *(f"5-{n}" for n in range(1, 8)))
    assert reader.read([("a", "0-0")], 7).more == ["a"]  # it can not know yet
    assert reader.read([("a", "0-0")], 8).more == []
    assert reader.read([("a", "5-7")], 8).empty == ["a"]


def test_a_stream_that_is_not_there_yields_nothing(reader: Reader) -> None:
    assert reader.read([("nobody", "0-0")], 10) == ([], [], ["nobody"])


def test_one_run_takes_no_more_than_its_share(streams: Streams, reader: Reader) -> None:
    streams.add("a", *(f"5-{n}" for n in range(1, 50)))
    streams.add("b", "5-1")
    reading = reader.read([("a", "0-0"), ("b", "0-0")], 10)
    assert [item.run for item in reading.items] == ["a"] * 10 + ["b"]
    assert reading.more == ["a"]


def test_no_more_than_the_batch_is_read(streams: Streams, reader: Reader) -> None:
    for run in ("a", "b", "c"):
        streams.add(run, *(f"5-{n}" for n in range(1, 60)))
    reading = reader.read([(run, "0-0") for run in ("a", "b", "c")], 60)
    assert len(reading.items) == 100
    assert reading.more == ["b", "c"]
    assert reading.empty == []


@pytest.mark.parametrize("size", [10, 900, 3_000, 9_999, 10_000])
def test_the_budget_in_bytes_is_kept(streams: Streams, reader: Reader, size: int) -> None:
    for run in ("a", "b"):
        streams.add(run, *(f"5-{n}" for n in range(1, 40)), size=size)
    cursors = {"a": "0-0", "b": "0-0"}
    found: list[tuple[str, str]] = []
    while True:
        reading = reader.read(list(cursors.items()), 100)
        if not reading.items:
            break
        total = sum(len(item.fields[b"body"]) + 4 for item in reading.items)
        assert total <= BUDGET or len(reading.items) == 1
        for item in reading.items:
            cursors[item.run] = item.id
            found.append((item.run, item.id))
    assert sorted(found) == sorted((run, f"5-{n}") for run in "ab" for n in range(1, 40))


def test_a_message_over_the_budget_comes_alone(streams: Streams, reader: Reader) -> None:
    streams.add("a", "5-1")
    streams.add("a", "5-2", size=50 * BUDGET)
    streams.add("a", "5-3")
    assert places(reader, ("a", "0-0")) == [("a", "5-1")]
    assert places(reader, ("a", "5-1")) == [("a", "5-2")]
    assert places(reader, ("a", "5-2")) == [("a", "5-3")]


def test_streams_behind_the_one_that_ends_the_budget_have_a_rest(
    streams: Streams, reader: Reader
) -> None:
    streams.add("a", "5-1", size=2 * BUDGET)
    streams.add("b", "5-1")
    reading = reader.read([("a", "0-0"), ("b", "0-0")], 10)
    assert [item.run for item in reading.items] == ["a"]
    assert reading.more == ["a", "b"]


def test_a_token_is_sealed_as_it_is_read(streams: Streams, reader: Reader) -> None:
    streams.add("a", "5-1", auth='{"owner_type":"host","owner_id":"h","token":"secret"}')
    (item,) = reader.read([("a", "0-0")], 1).items
    assert b"secret" not in item.fields[b"auth"]


def test_reading_works_in_a_full_server(full_streams: Streams) -> None:
    reader = Reader(full_streams.client, KEYS, 0, BUDGET, 100)
    assert places(reader, ("filler", "0-0")) == [("filler", "1-1")]
    reader.mark(["filler"], 1)
    assert reader.take(1, wait=True) == ["filler"]


def test_the_state_of_streams(streams: Streams, reader: Reader) -> None:
    streams.add("a", "5-1", "5-2")
    streams.add("b", "7-1")
    streams.client.xtrim(KEYS.run(0, "b"), maxlen=0, approximate=False)
    assert reader.inspect(["a", "b", "nobody"]) == {"a": ("5-2", 2), "b": ("7-1", 0)}


def test_the_newest_message_up_to_an_id(streams: Streams, reader: Reader) -> None:
    streams.add("a", "5-1", "5-2", "9-0")
    assert reader.newest([("a", "5-9")]) == {"a": "5-2"}
    assert reader.newest([("a", "5-2"), ("nobody", "4-0")]) == {"a": "5-2"}
    assert reader.newest([("a", "4-0")]) == {}
    assert reader.newest([]) == {}


def test_missing_sequences_are_looked_for_up_to_the_cursor(
    streams: Streams, reader: Reader
) -> None:
    for seq in range(1, 251):
        streams.add("a", f"5-{seq}", producer="p", seq=str(seq))
    assert reader.holds("a", "5-250", [("p", 240, 245)])
    assert not reader.holds("a", "5-200", [("p", 240, 245)])
    assert not reader.holds("a", "5-250", [("q", 1, 250)])
    assert not reader.holds("nobody", "5-250", [("p", 1, 250)])


def test_a_reading_without_some_runs(streams: Streams, reader: Reader) -> None:
    streams.add("a", "5-1", "5-2")
    streams.add("b", "5-1")
    reading = reader.read([("a", "0-0"), ("b", "0-0"), ("c", "0-0")], 1)
    assert reading.without([]) == reading
    left = reading.without(["a", "c"])
    assert ([item.run for item in left.items], left.more, left.empty) == (["b"], ["b"], [])


def test_errors_are_ours_and_say_what_to_do(streams: Streams, reader: Reader) -> None:
    streams.client.replicaof("127.0.0.1", "1")
    try:
        with pytest.raises(RedisUnavailable, match="Redis is a replica") as raised:
            reader.mark(["a"], 1)
        assert "goes on by itself" in raised.value.hint
    finally:
        streams.client.replicaof("NO", "ONE")
