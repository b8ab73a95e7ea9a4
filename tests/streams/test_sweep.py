"""The sweep marks each stream that is not as its cursor says, and leaves the others."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Event

import pytest

from tests.streams.conftest import KEYS, Streams
from writer.streams.sweep import STEP, sweep


def marked(
    streams: Streams, cursors: Mapping[str, tuple[str, bool]], *, thorough: bool = True
) -> set[str]:
    """Runs that a sweep marks, given their cursors and whether they have ended."""

    def unlike(empty: Mapping[str, str]) -> list[str]:
        return [run for run, last in empty.items() if cursors.get(run) != (last, False)]

    count = sweep(streams.client, KEYS, 0, unlike, Event(), thorough=thorough)
    found = set(streams.ready())
    assert count == len(found)
    return found


@pytest.mark.parametrize(
    "cursor, held, marks",
    [
        (None, ("5-1",), True),  # nothing of it was ever read
        (("5-1", False), ("5-1", "5-2"), True),  # it has something to read
        (("5-2", False), ("5-1", "5-2"), True),  # it was not trimmed
        (("9-1", False), ("5-1",), True),  # it is another one
        (("5-1", False), (), False),  # all is settled and trimmed
        (("9-1", False), (), True),  # another one, which is empty already
        (("5-1", True), (), True),  # its run has ended: it may go
    ],
)
def test_what_is_marked(
    streams: Streams, cursor: tuple[str, bool] | None, held: tuple[str, ...], marks: bool
) -> None:
    streams.add("run", *(held or ("5-1",)))
    if not held:
        streams.client.xtrim(KEYS.run(0, "run"), maxlen=0, approximate=False)
    assert marked(streams, {"run": cursor} if cursor else {}) == ({"run"} if marks else set())


def test_what_holds_nothing_is_left_to_the_thorough_sweeps(streams: Streams) -> None:
    streams.add("ended", "5-1")
    streams.client.xtrim(KEYS.run(0, "ended"), maxlen=0, approximate=False)
    streams.add("unmarked", "5-1")
    cursors = {"ended": ("5-1", True), "unmarked": ("5-1", False)}
    assert marked(streams, cursors, thorough=False) == {"unmarked"}
    assert marked(streams, cursors) == {"ended", "unmarked"}


def test_other_keys_and_partitions_are_left_alone(streams: Streams) -> None:
    streams.client.set(KEYS.run(0, "text"), "v")
    streams.client.xadd(KEYS.control(0), {"act": "skip"})
    streams.client.xadd(KEYS.reply(0, "me"), {"outcome": "applied"})
    streams.client.xadd(KEYS.run(1, "elsewhere"), {"f": "v"})
    streams.client.xadd(b"t:{0}:run:\xff\xfe", {"f": "v"})
    streams.add("run", "5-1")
    assert marked(streams, {}) == {"run"}


def test_a_mark_that_is_there_keeps_its_place(streams: Streams) -> None:
    streams.add("run", "5-1")
    streams.client.zadd(KEYS.ready(0), {"run": 7})
    assert marked(streams, {}) == {"run"}
    assert streams.ready() == {"run": 7.0}


def test_many_streams_are_looked_at_in_steps(streams: Streams) -> None:
    count = 3 * STEP
    pipeline = streams.client.pipeline(transaction=False)
    for number in range(count):
        pipeline.xadd(KEYS.run(0, f"run-{number}"), {"f": "v"})
    pipeline.execute()
    assert len(marked(streams, {})) == count


def test_it_ends_when_it_is_told_to(streams: Streams) -> None:
    streams.add("run", "5-1")
    ended = Event()
    ended.set()
    assert sweep(streams.client, KEYS, 0, lambda empty: empty, ended) == 0


def test_it_works_in_a_full_server(full_streams: Streams) -> None:
    assert marked(full_streams, {}) == {"filler"}
