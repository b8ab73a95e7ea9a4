"""Operator acts on their way: read once, in order, from a cursor that outlives the process."""

from __future__ import annotations

import pytest

from tests.streams.conftest import KEYS, Streams
from writer.clock import Clock, now_ms
from writer.streams.control import LOOK_EVERY_S, READ_MAX, Asked, Control, ask


class Reading:
    """A control stream's reader, and the time that it sees."""

    def __init__(self, streams: Streams, cursor: str = "0-0") -> None:
        self.seconds = 0.0
        clock = Clock(now_ms, lambda: self.seconds)
        self.control = Control(streams.client, KEYS, 0, cursor, clock)

    def read(self) -> list[Asked]:
        """What it reads when it is time to look again."""
        self.seconds += LOOK_EVERY_S
        return self.control.read()


@pytest.fixture
def reading(streams: Streams) -> Reading:
    return Reading(streams)


def skip(streams: Streams, run: str, message_id: str = "5-1") -> str:
    return ask(streams.client, KEYS, 0, "skip", run, (1, message_id), "ops")


def test_an_act_is_read_once(streams: Streams, reading: Reading) -> None:
    control_id = skip(streams, "run", "5-1")
    assert reading.read() == [Asked(control_id, "skip", "run", 1, "5-1", "ops")]
    assert reading.read() == []
    assert reading.control.cursor == control_id


def test_it_is_looked_at_no_more_than_twice_a_second(streams: Streams, reading: Reading) -> None:
    assert reading.read() == []
    skip(streams, "run")
    assert reading.control.read() == []
    assert len(reading.read()) == 1


def test_acts_keep_their_order_over_several_reads(streams: Streams, reading: Reading) -> None:
    for number in range(READ_MAX + 20):
        skip(streams, f"run-{number}")
    found = reading.read() + reading.read()
    assert [act.run for act in found] == [f"run-{number}" for number in range(READ_MAX + 20)]


def test_another_process_goes_on_at_the_cursor(streams: Streams, reading: Reading) -> None:
    skip(streams, "one")
    reading.read()
    skip(streams, "two")
    assert [act.run for act in Reading(streams, reading.control.cursor).read()] == ["two"]


def test_a_replaced_stream_is_read_from_its_start(streams: Streams) -> None:
    skip(streams, "run")
    ahead = Reading(streams, "99999999999999-0")
    assert [act.run for act in ahead.read()] == ["run"]


@pytest.mark.parametrize(
    "fields",
    [
        {"act": "skip"},
        {"act": "skip", "run": "r", "incarnation": "x", "message_id": "1-1", "operator": "o"},
        {"act": b"\xff", "run": "r", "incarnation": "1", "message_id": "1-1", "operator": "o"},
        {"nonsense": "1"},
    ],
)
def test_what_is_no_act_is_passed_over(
    streams: Streams, reading: Reading, fields: dict[str, str | bytes]
) -> None:
    streams.client.xadd(KEYS.control(0), fields)
    skip(streams, "run")
    assert [act.run for act in reading.read()] == ["run"]


def test_a_long_name_is_cut(streams: Streams, reading: Reading) -> None:
    ask(streams.client, KEYS, 0, "skip", "run", (1, "5-1"), "x" * 10_000)
    assert len(reading.read()[0].operator) == 100


def test_reading_works_in_a_full_server(full_streams: Streams) -> None:
    assert Reading(full_streams).read() == []
