"""Settling: the mark never falls, and a stream is trimmed or removed only if it is the one read."""

from __future__ import annotations

import pytest

from tests.streams.conftest import KEYS, Streams
from writer.errors import Fenced
from writer.streams.settle import Settler, Trim, after

WRITER = "host:1:nonce"


@pytest.fixture
def settler(streams: Streams) -> Settler:
    return Settler(streams.client, KEYS, 0, WRITER)


def settle(settler: Settler, *trims: Trim, commit_seq: int = 1) -> dict[str, str]:
    return settler.settle(commit_seq, "line", 1, "1:1:9", trims)


def test_the_mark_rises_and_never_falls(settler: Settler) -> None:
    assert settler.mark() == (0, "", 0, "")
    settler.settle(7, "line", 3, "3:1:20", ())
    assert settler.mark() == (7, "line", 3, "3:1:20")
    settler.settle(6, "other", 4, "4:1:0", ())
    assert settler.mark() == (7, "line", 3, "3:1:20")
    settler.settle(8, "other", 4, "4:1:0", ())
    assert settler.mark() == (8, "other", 4, "4:1:0")


def test_a_stream_is_trimmed_up_to_the_cursor(streams: Streams, settler: Settler) -> None:
    streams.add("a", "5-1", "5-2", "6-0")
    assert settle(settler, Trim("a", "5-2")) == {"a": "trimmed"}
    assert streams.ids("a") == ["6-0"]


def test_a_trimmed_stream_keeps_its_last_id(streams: Streams, settler: Settler) -> None:
    streams.add("a", "5-1", "5-2")
    settle(settler, Trim("a", "5-2"))
    assert streams.ids("a") == []
    assert streams.exists("a")


def test_a_cursor_at_the_beginning_trims_nothing(streams: Streams, settler: Settler) -> None:
    streams.add("a", "0-1", "5-1")
    assert settle(settler, Trim("a", "0-0")) == {"a": "kept"}
    assert streams.ids("a") == ["0-1", "5-1"]


def test_a_missing_stream_is_kept_as_it_is(streams: Streams, settler: Settler) -> None:
    assert settle(settler, Trim("a", "5-1")) == {"a": "kept"}
    assert not streams.exists("a")


@pytest.mark.parametrize(
    "first, trimmed", [("4-9", "5-1"), ("5-0", "5-1"), ("9-0", "10-0"), ("99-0", "100-0")]
)
def test_a_stream_that_begins_below_its_trim_point_is_another(
    streams: Streams, settler: Settler, first: str, trimmed: str
) -> None:
    streams.add("a", first, "500-0")
    assert settle(settler, Trim("a", "500-0", trimmed=trimmed)) == {"a": "regressed"}
    assert streams.ids("a") == [first, "500-0"]


def test_a_stream_that_begins_past_its_trim_point_is_the_same(
    streams: Streams, settler: Settler
) -> None:
    streams.add("a", "5-2", "6-0")
    assert settle(settler, Trim("a", "5-2", trimmed="5-1")) == {"a": "trimmed"}


def test_ids_are_compared_beyond_what_a_double_holds(streams: Streams, settler: Settler) -> None:
    low, high = f"{2**63}-1", f"{2**63}-2"
    streams.add("a", low, high)
    assert settle(settler, Trim("a", high, trimmed=high)) == {"a": "regressed"}
    assert settle(settler, Trim("a", low, trimmed=low)) == {"a": "trimmed"}
    assert streams.ids("a") == [high]


def test_a_stream_without_the_message_settled_last_but_with_older_ones_is_another(
    streams: Streams, settler: Settler
) -> None:
    streams.add("a", "5-1", "9-0")
    assert settle(settler, Trim("a", "7-0", last="7-0")) == {"a": "regressed"}
    assert streams.ids("a") == ["5-1", "9-0"]
    streams.add("b", "5-1", "7-0")
    assert settle(settler, Trim("b", "7-0", last="7-0")) == {"b": "trimmed"}


def test_a_stream_goes_when_its_run_ended_and_all_of_it_is_settled(
    streams: Streams, settler: Settler
) -> None:
    streams.add("a", "5-1")
    settle(settler, Trim("a", "5-1"))
    assert settle(settler, Trim("a", "5-1", retire=True)) == {"a": "gone"}
    assert not streams.exists("a")


def test_a_stream_with_messages_never_goes(streams: Streams, settler: Settler) -> None:
    streams.add("a", "5-1", "5-2")
    assert settle(settler, Trim("a", "5-2", retire=True)) == {"a": "kept"}
    assert streams.ids("a") == ["5-1", "5-2"]


def test_an_empty_stream_that_had_more_than_the_cursor_knows_stays(
    streams: Streams, settler: Settler
) -> None:
    streams.add("a", "5-1", "5-2")
    streams.client.xtrim(KEYS.run(0, "a"), maxlen=0, approximate=False)
    assert settle(settler, Trim("a", "5-1", retire=True)) == {"a": "kept"}
    assert streams.exists("a")


def test_each_stream_has_its_own_word(streams: Streams, settler: Settler) -> None:
    streams.add("a", "5-1")
    streams.add("b", "1-1", "9-0")
    streams.client.set(KEYS.run(0, "text"), "another program's")
    words = settle(
        settler, Trim("a", "5-1"), Trim("none", "1-1"), Trim("b", "9-0", "5-0"), Trim("text", "1-1")
    )
    assert words == {"a": "trimmed", "none": "kept", "b": "regressed", "text": "kept"}


def test_whoever_lost_the_partition_settles_nothing(streams: Streams, settler: Settler) -> None:
    streams.add("a", "5-1")
    streams.client.set(KEYS.owner(0), "another:2:x")
    with pytest.raises(Fenced, match="another owner"):
        settle(settler, Trim("a", "5-1"))
    assert streams.ids("a") == ["5-1"]
    assert settler.mark().commit_seq == 0


@pytest.mark.parametrize("owner", [WRITER, None])
def test_the_owner_settles_also_once_its_lease_has_lapsed(
    streams: Streams, settler: Settler, owner: str | None
) -> None:
    if owner:
        streams.client.set(KEYS.owner(0), owner)
    streams.add("a", "5-1")
    assert settle(settler, Trim("a", "5-1")) == {"a": "trimmed"}


def test_settling_works_in_a_full_server_and_makes_room(full_streams: Streams) -> None:
    settler = Settler(full_streams.client, KEYS, 0, WRITER)
    assert settle(settler, Trim("filler", "1-1")) == {"filler": "trimmed"}
    assert settler.mark().commit_seq == 1
    assert full_streams.ids("filler") == []


@pytest.mark.parametrize(
    "message_id, following",
    [
        ("5-1", "5-2"),
        ("0-0", "0-1"),
        (f"5-{2**64 - 1}", "6-0"),
        (f"{2**64 - 1}-{2**64 - 1}", f"{2**64 - 1}-{2**64 - 1}"),
    ],
)
def test_the_smallest_id_past_one(message_id: str, following: str) -> None:
    assert after(message_id) == following
