"""Sequences: new, late, known, too far ahead; and what a late command may still do."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.contract.envelope import encode, seal
from producers.contract.limits import COUNTER_MAX, SEQUENCE_JUMP_MAX
from tests.support.host import Host
from tests.support.world import DUPLICATE, CoreWorld, FileWorld
from writer.apply import Message
from writer.core.outcome import Applied, Duplicate
from writer.core.run import Sequences
from writer.core.sequence import Standing, standing, use_up

RUN = "run-1"


@pytest.fixture
def world() -> CoreWorld:
    """A world with a run that its producer created as its sequence 1."""
    world = CoreWorld()
    world.must(RUN, "run.create", {"state": {}})
    return world


def sequences(world: CoreWorld, producer: str = "p") -> Sequences:
    return world.run(RUN).producers[producer]


def note(value: int, key: str = "k", **more: Any) -> dict[str, Any]:
    return {"type": "note", "key": key, "data": {"value": value}} | more


@given(st.lists(st.integers(1, 12), max_size=40))
def test_sequences_stand_as_a_set_of_all_seen_says(sent: list[int]) -> None:
    kept, seen = Sequences(1, "p"), set[int]()
    for seq in sent:
        where = standing(kept, seq)
        if seq in seen:
            assert where is Standing.KNOWN
        else:
            assert where is (Standing.NEXT if seq > max(seen, default=0) else Standing.LATE)
            use_up(kept, seq)
        seen.add(seq)
        missing = set(range(1, max(seen) + 1)) - seen
        assert {n for first, last in kept.gaps for n in range(first, last + 1)} == missing
        assert kept.gaps == sorted(kept.gaps)
        assert kept.last == max(seen)


@pytest.mark.parametrize(
    "last, seq, expected",
    [
        (0, 1, Standing.NEXT),
        (0, SEQUENCE_JUMP_MAX, Standing.NEXT),
        (0, SEQUENCE_JUMP_MAX + 1, Standing.JUMP),
        (5, SEQUENCE_JUMP_MAX + 5, Standing.NEXT),
        (5, SEQUENCE_JUMP_MAX + 6, Standing.JUMP),
        (5, 5, Standing.KNOWN),
        (5, None, Standing.NONE),
    ],
)
def test_a_jump_has_a_limit(last: int, seq: int | None, expected: Standing) -> None:
    assert standing(Sequences(1, "p", last), seq) is expected


def test_of_an_unknown_producer_any_sequence_is_new() -> None:
    assert standing(None, 7) is Standing.NEXT
    assert standing(None, None) is Standing.NONE


def test_a_jump_opens_a_gap_and_its_filling_closes_it(world: CoreWorld) -> None:
    world.must(RUN, "run.annotate", {"title": "a"}, seq=6)
    assert sequences(world).gaps == [(2, 5)]
    world.must(RUN, "run.annotate", {"title": "b"}, seq=3)
    assert sequences(world).gaps == [(2, 2), (4, 5)]
    for seq in (2, 4, 5):
        world.must(RUN, "run.annotate", {"title": f"c{seq}"}, seq=seq)
    assert sequences(world).gaps == []
    assert sequences(world).last == 6


def test_what_is_sent_twice_is_applied_once(world: CoreWorld) -> None:
    sent = world.send(RUN, "run.update", note(1))
    world.resend(sent)
    first, second = world.settle()
    assert (first.kind, first.revision) == ("applied", 2)
    assert second == DUPLICATE
    assert world.run(RUN).head.revision == 2  # type: ignore[union-attr]


def test_key_order_and_spaces_make_no_other_command(world: CoreWorld) -> None:
    world.must(RUN, "run.annotate", {"title": "t", "tags": {"a": "1"}}, seq=2)
    spaced = {b"body": b'{ "tags" : {"a":"1"},\n"title":"t" }'}
    assert world.apply(RUN, "run.annotate", seq=2, raw=spaced) == DUPLICATE


@pytest.mark.parametrize(
    "kind, body",
    [("run.annotate", {"title": "other"}), ("run.annotate", {}), ("run.resume", {})],
    ids=["other body", "less", "other kind"],
)
def test_a_sequence_is_not_used_for_two_commands(
    world: CoreWorld, kind: str, body: dict[str, Any]
) -> None:
    world.must(RUN, "run.annotate", {"title": "t"}, seq=2)
    assert world.apply(RUN, kind, body, seq=2).reason == "sequence_reused"
    assert world.run(RUN).head.title == "t"  # type: ignore[union-attr]
    assert sequences(world).last == 2


def test_1_and_true_and_one_point_nought_are_three_bodies(world: CoreWorld) -> None:
    world.must(RUN, "run.update", note(1), seq=2)
    for value in (b"1.0", b"true"):
        raw = {b"body": b'{"type":"note","key":"k","data":{"value":%b}}' % value}
        assert world.apply(RUN, "run.update", seq=2, raw=raw).reason == "sequence_reused"


def test_a_refused_commands_sequence_is_used_up(world: CoreWorld) -> None:
    refused = {"type": "Bad", "key": "k", "data": {}}
    assert world.apply(RUN, "run.update", refused, seq=2).reason == "field_invalid"
    assert world.apply(RUN, "run.update", refused, seq=2) == DUPLICATE
    assert world.apply(RUN, "run.update", note(1), seq=2).reason == "sequence_reused"
    assert sequences(world).last == 2


def test_of_a_renewal_no_row_keeps_the_hash_so_its_sequence_is_only_a_duplicate(
    world: CoreWorld,
) -> None:
    host = Host("host-a")
    world.must(RUN, "lease.claim", host.claim())
    world.must(RUN, "lease.renew", {"lease_ms": 5}, auth=host.auth(), seq=3)
    assert world.apply(RUN, "run.update", note(1), auth=host.auth(), seq=3) == DUPLICATE


def test_too_far_a_jump_uses_up_nothing(world: CoreWorld) -> None:
    far = SEQUENCE_JUMP_MAX + 2
    assert world.apply(RUN, "run.update", note(1), seq=far).reason == "sequence_jump"
    assert (sequences(world).last, sequences(world).gaps) == (1, [])
    assert world.must(RUN, "run.update", note(1), seq=2).revision == 2


@pytest.mark.parametrize("seq", [b"0", b"01", b"-1", b"1.0", b"true", b'"1"', b" 1", b"1_0", b""])
def test_a_sequence_is_a_plain_whole_number(world: CoreWorld, seq: bytes) -> None:
    outcome = world.apply(RUN, "run.update", note(1), raw={b"seq": seq})
    assert (outcome.reason, outcome.detail) == ("field_invalid", "seq")
    assert sequences(world).last == 1


def test_a_sequence_ends_where_every_parser_is_exact() -> None:
    world = CoreWorld()
    over = {b"seq": b"%d" % (COUNTER_MAX + 1)}
    assert world.apply(RUN, "run.create", raw=over).reason == "field_invalid"
    last = {b"seq": b"%d" % COUNTER_MAX}
    assert world.apply(RUN, "run.create", raw=last).reason == "sequence_jump"


@pytest.mark.parametrize(
    "kind, body",
    [
        ("run.snapshot", {"state": {"late": True}}),
        ("run.resume", {}),
        ("run.reset", {}),
        ("run.interrupt", {}),
    ],
)
def test_a_late_change_of_the_state_is_superseded_by_a_newer_one(
    world: CoreWorld, kind: str, body: dict[str, Any]
) -> None:
    world.must(RUN, "run.snapshot", {"state": {"new": True}}, seq=3)
    late = world.apply(RUN, kind, body, seq=2)
    assert late.reason == "superseded"
    assert sequences(world).gaps == [], "its gap is closed all the same"


def test_a_late_snapshot_counts_while_nothing_newer_was_applied(world: CoreWorld) -> None:
    world.must(RUN, "run.update", note(1), seq=3)
    world.must(RUN, "run.snapshot", {"state": {"late": True}}, seq=2)


def test_a_refused_newer_one_supersedes_nothing(world: CoreWorld) -> None:
    refused = {"state": {}, "expected_revision": 99}
    assert world.apply(RUN, "run.snapshot", refused, seq=3).kind == "rejected"
    world.must(RUN, "run.snapshot", {"state": {"late": True}}, seq=2)


def test_only_the_same_producers_newer_one_supersedes(world: CoreWorld) -> None:
    world.must(RUN, "run.update", note(1), seq=3)
    world.must(RUN, "run.snapshot", {"state": {"other": True}}, producer="q")
    world.must(RUN, "run.snapshot", {"state": {"late": True}}, seq=2)


@pytest.mark.parametrize(
    "late, reason",
    [
        (note(0), "superseded"),
        (note(0, key="other"), None),
        (note(0) | {"type": "other"}, None),
        (note(0, attempt_id="a1"), None),
    ],
    ids=["same", "other key", "other type", "other attempt"],
)
def test_a_late_update_loses_to_a_newer_one_of_its_own_only(
    world: CoreWorld, late: dict[str, Any], reason: str | None
) -> None:
    world.must(RUN, "run.update", note(1), seq=3)
    assert world.apply(RUN, "run.update", late, seq=2).reason == reason


def test_a_late_lease_command_is_superseded_by_a_newer_one(world: CoreWorld) -> None:
    claim = {"owner_type": "host", "owner_id": "a", "token_sha256": "0" * 64, "lease_ms": 10}
    world.must(RUN, "lease.claim", claim, seq=3)
    late = claim | {"token_sha256": "1" * 64}
    assert world.apply(RUN, "lease.claim", late, seq=2).reason == "superseded"
    assert world.run(RUN).lease.token_sha256 == "0" * 64  # type: ignore[union-attr]


def test_late_transcripts_and_annotations_apply_by_their_own_identity(world: CoreWorld) -> None:
    world.must(RUN, "session.bind", {"session": "s"}, seq=2)
    world.must(RUN, "session.entry", {"entry": {"id": "e2"}}, seq=5)
    world.must(RUN, "session.entry", {"entry": {"id": "e1"}}, seq=3)
    event = {"seq": 1, "at": "t", "type": "x", "payload": {}}
    world.must(RUN, "session.events", {"events": [event]}, seq=4)
    assert sequences(world).gaps == []


@pytest.mark.parametrize("together", [True, False], ids=["one batch", "one by one"])
def test_an_id_that_came_before_is_judged_alike_in_any_batch(
    tmp_path: Path, together: bool
) -> None:
    """A stream that was replaced gives out an id again, for what was refused under it before."""
    create, reused = ("run.create", {"title": "t"}), ("run.create", {"title": "other"})

    def message(place: str, producer: str, what: tuple[str, dict[str, str]]) -> Message:
        return Message(RUN, place, seal(encode(*what, producer=producer, seq=1)))

    world = FileWorld(tmp_path)
    try:
        apply = partial(world.applier.apply, now=0)
        apply([message("1-0", "p", create), message("2-0", "p", reused)])
        apply([], restarts=[RUN])
        again = [message("1-0", "q", ("run.annotate", {"title": "u"})), message("2-0", "q", reused)]
        batches = [again] if together else [again[:1], again[1:]]
        ended = [each.outcome for batch in batches for each in apply(batch)[0]]
        assert isinstance(ended[0], Applied)
        assert ended[1] == Duplicate()
    finally:
        world.close()
