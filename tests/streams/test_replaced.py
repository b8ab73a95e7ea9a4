"""A stream that is replaced before its first trim: nothing of the other is trimmed unread.

From its first trim on, where a stream begins tells whether it is the one that was read. Before,
the writer has to know by itself where it began, or look below where it stands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from producers.contract.envelope import encode
from tests.streams.conftest import KEYS, Streams
from tests.support import checks
from tests.support.silence import SilentLog
from writer.clock import Clock, now_ms
from writer.loop import PartitionLoop
from writer.settings import WriterSettings
from writer.streams.control import LOOK_EVERY_S, ask
from writer.streams.link import connect
from writer.tenure import Outside, Tenure
from writer.trimming import SYNC_EVERY_S

AT_ONCE: dict[str, Any] = {"archive": True}
LATE: dict[str, Any] = {"archive": False, "synchronous": "NORMAL"}
"""Trims at most once a second of the clock, which stands still here until it is moved."""
ROUNDS_MAX = 10


@dataclass(slots=True)
class Stage:
    """One run `a`, who sends to it, and a clock; `amid` is done once, between commit and trim."""

    streams: Streams
    data: Path
    seconds: float = 0.0
    amid: Callable[[], None] | None = None
    sent: dict[tuple[str, str], set[int]] = field(default_factory=dict)

    def tenure(self, settings: dict[str, Any]) -> Tenure:
        """A writer that has the partition within `with`."""
        made = WriterSettings(data=self.data, prefix="t", redis=self.streams.url, **settings)
        clock = Clock(now_ms, lambda: self.seconds)
        outside = Outside(lambda: connect(self.streams.url), clock, self._reached)
        return Tenure(made, outside, SilentLog(), 0, 1)

    def _reached(self, point: str) -> None:
        if point == "committed" and self.amid is not None:
            amid, self.amid = self.amid, None
            amid()

    def put(self, place: str, seq: int, producer: str = "first", run: str = "a") -> None:
        """A message at an id, without a mark."""
        body = {"type": "progress", "key": f"{producer}-{seq}", "data": {}}
        fields: dict[Any, Any] = encode("run.update", body, producer=producer, seq=seq)
        self.streams.client.xadd(KEYS.run(0, run), fields, id=place)
        self.sent.setdefault((run, producer), set()).add(seq)

    def replace(self, *places: str) -> None:
        """Another stream in the place of the one there is. Each of its messages is some producer's
        first, so that no gap tells of one that is missed.
        """
        self.streams.client.delete(KEYS.run(0, "a"))
        for place in places:
            self.put(place, 1, f"other-{place}")

    def mark(self, run: str = "a") -> None:
        """There is something to read."""
        self.streams.client.zadd(KEYS.ready(0), {run: 0})

    def trims_late(self, loop: PartitionLoop) -> None:
        """Use up the first trim, which is at once, on another run."""
        self.put("1-1", 1, "nobody", "spent")
        self.mark("spent")
        assert loop.step() == 1
        assert self.streams.ids("spent") == []

    def settles_untrimmed(self) -> None:
        """A writer settles a message, and goes before it trims it."""
        with self.tenure(LATE) as loop:
            self.trims_late(loop)
            self.put("5-1", 1)
            self.mark()
            assert loop.step() == 1
            loop.step_down()

    def ends(self, loop: PartitionLoop) -> None:
        """Go on until all is trimmed; then all that was sent was read, whichever way it ended."""
        assert self.amid is None
        for _ in range(ROUNDS_MAX):
            self.seconds += SYNC_EVERY_S
            self.mark()
            loop.step()
            if not self.streams.ids("a"):
                break
        assert self.streams.ids("a") == []
        self.all_was_read()

    def all_was_read(self) -> None:
        """All that was sent ended, whichever way."""
        applied = checks.sequences(self.data)
        refused = checks.sequences(self.data, "rejections")
        assert {each: applied[each] | refused[each] for each in self.sent} == self.sent


@pytest.fixture
def stage(streams: Streams, tmp_path: Path) -> Stage:
    return Stage(streams, tmp_path)


REPLACEMENTS = [
    pytest.param(("3-1", "5-2"), id="with the id settled last"),
    pytest.param(("3-1", "9-1"), id="without it"),
    pytest.param(("3-1", "5-1", "5-2", "9-1"), id="with every id"),
]


@pytest.mark.parametrize("places", REPLACEMENTS)
def test_between_a_first_read_and_its_trim(stage: Stage, places: tuple[str, ...]) -> None:
    with stage.tenure(AT_ONCE) as loop:
        stage.put("5-1", 1)
        stage.put("5-2", 2)
        stage.mark()
        stage.amid = lambda: stage.replace(*places)
        loop.step()
        stage.ends(loop)


@pytest.mark.parametrize("places", REPLACEMENTS)
@pytest.mark.parametrize("marked", [True, False])
def test_while_the_first_trim_waits_for_a_sync(
    stage: Stage, places: tuple[str, ...], marked: bool
) -> None:
    """Also when it is not marked: then nothing is read of it before it is trimmed."""
    with stage.tenure(LATE) as loop:
        stage.trims_late(loop)
        stage.put("5-1", 1)
        stage.put("5-2", 2)
        stage.mark()
        assert loop.step() == 2
        assert stage.streams.ids("a") == ["5-1", "5-2"]
        stage.replace(*places)
        stage.seconds += SYNC_EVERY_S
        if marked:
            stage.mark()
        else:
            stage.put("1-2", 2, "nobody", "spent")
            stage.mark("spent")
        loop.step()
        stage.ends(loop)


@pytest.mark.parametrize("places", [("3-1", "7-1"), ("3-1", "7-1", "7-2")])
def test_after_a_look_below_found_nothing(stage: Stage, places: tuple[str, ...]) -> None:
    """It looked once and read on, but did not trim yet: one look is not enough."""
    stage.settles_untrimmed()
    # The next writer does not know where the stream began.
    with stage.tenure(LATE) as loop:
        stage.put("1-2", 2, "nobody", "spent")
        stage.mark("spent")
        loop.step()
        stage.put("6-1", 2)
        stage.mark()
        assert loop.step() == 1
        assert stage.streams.ids("a") == ["5-1", "6-1"]
        stage.replace(*places)
        stage.mark()
        loop.step()
        stage.ends(loop)


@pytest.mark.parametrize("places", [("3-1", "7-1"), ("3-1", "5-1", "6-1", "7-1")])
def test_between_a_later_read_and_its_first_trim(stage: Stage, places: tuple[str, ...]) -> None:
    """By a writer that knows what it settled last, and from its look where the stream began."""
    stage.settles_untrimmed()
    with stage.tenure(AT_ONCE) as loop:
        stage.put("6-1", 2)
        stage.mark()
        stage.amid = lambda: stage.replace(*places)
        loop.step()
        stage.ends(loop)


@pytest.mark.parametrize("places", [("3-1", "5-1"), ("3-1", "9-1")])
def test_while_nobody_wrote(stage: Stage, places: tuple[str, ...]) -> None:
    stage.settles_untrimmed()
    assert stage.streams.ids("a") == ["5-1"]
    stage.replace(*places)
    with stage.tenure(LATE) as loop:
        stage.ends(loop)


@pytest.mark.parametrize("settings", [AT_ONCE, LATE])
def test_a_stream_that_only_grew_is_not_taken_for_another(
    stage: Stage, settings: dict[str, Any]
) -> None:
    with stage.tenure(settings) as loop:
        stage.trims_late(loop)
        stage.put("5-1", 1)
        stage.put("5-2", 2)
        stage.mark()
        stage.amid = lambda: stage.put("6-1", 3)
        loop.step()
        stage.put("7-1", 4)
        stage.mark()
        loop.step()
        stage.ends(loop)
    counted = "SELECT max(incarnation), sum(duplicates) FROM cursors"
    assert checks.rows(stage.data, counted) == [(1, 0)]


def test_an_older_one_comes_back_while_settled_messages_are_kept(stage: Stage) -> None:
    """Ids ahead of the writer's clock: its replay window lets nothing go, so no trim tells."""
    key = KEYS.run(0, "a")
    with stage.tenure(AT_ONCE | {"replay_window_ms": 1_000}) as loop:
        for place in ("9000000000001-0", "9000000000002-0"):
            stage.put(place, 1, f"older-{place}")
            older: Any = stage.streams.client.dump(key)
            if place == "9000000000001-0":
                stage.mark()
                assert loop.step() == 1
        stage.replace("9000000000003-0")
        stage.mark()
        assert loop.step() == 1
        stage.streams.client.restore(key, 0, older, replace=True)
        stage.put("9000000000004-0", 1, "newer")
        for _ in range(ROUNDS_MAX):
            stage.mark()
            loop.step()
        stage.all_was_read()


def test_while_its_run_is_quarantined(stage: Stage) -> None:
    """It was looked at once, and nothing trimmed, before it had to wait: perhaps for days."""
    stage.settles_untrimmed()
    newer: dict[Any, Any] = {**encode("run.create", {}, producer="newer", seq=1), b"v": b"2"}
    with stage.tenure(AT_ONCE) as loop:
        stage.streams.client.xadd(KEYS.run(0, "a"), newer, id="5-2")
        stage.mark()
        assert loop.step() == 0
        assert stage.streams.ids("a") == ["5-1", "5-2"]
        stage.replace("3-1", "5-1", "9-1")
        ask(stage.streams.client, KEYS, 0, "resume", "a", (1, "5-2"), "someone@here")
        stage.seconds += LOOK_EVERY_S
        loop.step()
        stage.ends(loop)


@pytest.mark.parametrize(
    "other, incarnation", [("before", 1), ("after", 2)], ids=["equal", "another"]
)
def test_what_has_no_sequence_is_told_apart_by_what_it_says(
    stage: Stage, other: str, incarnation: int
) -> None:
    """Refused, as the writer can not number it; at its id another one stands later."""

    def fill(said: str) -> None:
        stage.streams.client.delete(KEYS.run(0, "a"))
        stage.streams.client.xadd(KEYS.run(0, "a"), {"kind": said}, id="4-1")
        stage.put("5-1", 1)

    fill("before")
    with stage.tenure(LATE) as loop:
        stage.trims_late(loop)
        stage.mark()
        assert loop.step() == 2
        loop.step_down()
    fill(other)
    with stage.tenure(AT_ONCE) as loop:
        stage.ends(loop)
    refused = "SELECT kind FROM rejections WHERE message_id = '4-1' ORDER BY rejection_seq"
    assert [kind for (kind,) in checks.rows(stage.data, refused)] == list(
        dict.fromkeys(("before", other))
    )
    counted = "SELECT incarnation FROM cursors WHERE run_id = 'a'"
    assert checks.rows(stage.data, counted) == [(incarnation,)]


def test_while_others_are_read(stage: Stage) -> None:
    """Its turn did not come in the round in which it was taken."""
    stage.settles_untrimmed()
    large: dict[Any, Any] = encode(
        "run.create", {"state": {"text": "x" * 2_000}}, producer="p", seq=1
    )
    with stage.tenure(AT_ONCE | {"batch_bytes_max": 1_024}) as loop:
        stage.streams.client.xadd(KEYS.run(0, "before"), large)
        stage.streams.client.zadd(KEYS.ready(0), {"before": 0, "a": 1})
        assert loop.step() == 1
        assert stage.streams.ids("a") == ["5-1"]
        stage.replace("3-1", "5-1", "9-1")
        stage.ends(loop)


def test_by_one_that_begins_past_the_last_trim(stage: Stage) -> None:
    """Where it begins tells nothing then; that it lacks the message settled last does."""
    with stage.tenure(AT_ONCE) as loop:
        stage.put("5-1", 1)
        stage.mark()
        assert loop.step() == 1
        stage.put("6-5", 2)
        stage.mark()
        stage.amid = lambda: stage.replace("6-1")
        assert loop.step() == 1
        assert stage.streams.ids("a") == ["6-1"]
        stage.ends(loop)


def test_what_others_trimmed_comes_back_before_the_trim(stage: Stage) -> None:
    key = KEYS.run(0, "a")
    with stage.tenure(AT_ONCE) as loop:
        stage.put("5-1", 1)
        stage.mark()
        assert loop.step() == 1
        stage.put("6-1", 1, "trimmed")
        stage.put("6-2", 2)
        whole: Any = stage.streams.client.dump(key)
        stage.streams.client.xtrim(key, minid="6-2", approximate=False)
        stage.mark()
        stage.amid = lambda: stage.streams.client.restore(key, 0, whole, replace=True)
        assert loop.step() == 1
        stage.ends(loop)


def test_a_stream_of_which_all_is_kept_is_not_taken_for_another(stage: Stage) -> None:
    with stage.tenure(AT_ONCE | {"replay_window_ms": 1_000}) as loop:
        for seq in range(1, 4):
            stage.put(f"900000000000{seq}-0", seq)
            stage.mark()
            assert loop.step() == 1
    assert len(stage.streams.ids("a")) == 3
    counted = "SELECT max(incarnation), sum(duplicates) FROM cursors"
    assert checks.rows(stage.data, counted) == [(1, 0)]
