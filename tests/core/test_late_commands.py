"""Late commands whose newer ones were settled in an earlier batch: the store remembers them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.host import Host
from tests.support.world import DUPLICATE, StoredWorld, World

RUN = "run-1"


def note(value: int, key: str = "k", **more: Any) -> dict[str, Any]:
    return {"type": "note", "key": key, "data": {"value": value}} | more


def missing(stored: StoredWorld, producer: str = "p") -> list[list[int]]:
    """The open gaps of a producer, as a reader sees them."""
    run = stored.reader.run(RUN)
    assert run is not None
    (found,) = [each["gaps"] for each in run["producers"] if each["producer"] == producer]
    return list(found)


@pytest.mark.parametrize(
    "late, reason",
    [
        (note(0), "superseded"),
        (note(0, key="other"), None),
        (note(0, attempt_id="a1"), None),
    ],
    ids=["same", "other key", "other attempt"],
)
def test_a_late_update_loses_to_the_newer_one(
    world: World, late: dict[str, Any], reason: str | None
) -> None:
    world.create(RUN)
    world.must(RUN, "run.update", note(1), seq=3)
    assert world.apply(RUN, "run.update", late, seq=2).reason == reason


def test_the_newest_of_several_counts(world: World) -> None:
    world.create(RUN)
    world.must(RUN, "run.update", note(1), seq=2)
    world.must(RUN, "run.update", note(2), seq=5)
    assert world.apply(RUN, "run.update", note(3), seq=4).reason == "superseded"
    world.must(RUN, "run.update", note(4), producer="q", seq=9)


def test_a_late_snapshot_and_a_late_claim_lose_too(world: World) -> None:
    host = Host("host-a")
    world.must(RUN, "run.create", {})
    world.must(RUN, "run.snapshot", {"state": {"new": True}}, seq=3)
    assert world.apply(RUN, "run.snapshot", {"state": {}}, seq=2).reason == "superseded"
    world.must(RUN, "lease.claim", host.claim(), seq=6)
    assert world.apply(RUN, "lease.claim", host.claim(), seq=5).reason == "superseded"


def test_gaps_are_shown_to_the_number_until_they_are_filled(stored: StoredWorld) -> None:
    stored.must(RUN, "run.create", {})
    assert missing(stored) == []
    stored.must(RUN, "run.annotate", {"title": "a"}, seq=5)
    stored.must(RUN, "run.annotate", {"title": "b"}, seq=8)
    assert missing(stored) == [[2, 4], [6, 7]]
    stored.must(RUN, "run.annotate", {"title": "c"}, seq=3)
    assert missing(stored) == [[2, 2], [4, 4], [6, 7]]
    for seq in (2, 4, 6, 7):
        stored.must(RUN, "run.annotate", {"title": f"d{seq}"}, seq=seq)
    assert missing(stored) == []
    assert stored.rows("SELECT * FROM gaps") == []


def test_a_superseded_one_fills_its_gap(stored: StoredWorld) -> None:
    stored.must(RUN, "run.create", {})
    stored.must(RUN, "run.snapshot", {"state": {"new": True}}, seq=3)
    stored.apply(RUN, "run.snapshot", {"state": {}}, seq=2)
    assert missing(stored) == []


def test_a_refused_one_is_known_by_its_hash(world: World) -> None:
    world.must(RUN, "run.create", {})
    bad = note(1) | {"type": "Bad"}
    assert world.apply(RUN, "run.update", bad, seq=2).reason == "field_invalid"
    assert world.apply(RUN, "run.update", bad, seq=2) == DUPLICATE
    assert world.apply(RUN, "run.update", note(1), seq=2).reason == "sequence_reused"


def test_one_without_a_sequence_is_known_when_the_stream_is_read_again(world: World) -> None:
    world.must(RUN, "run.create", {})
    for _ in range(2):
        refused = world.apply(RUN, "run.resume", raw={b"producer": None})
        assert refused.reason == "field_missing", "another message is another refusal"
