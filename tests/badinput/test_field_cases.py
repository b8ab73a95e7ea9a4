"""Cases that went wrong elsewhere, by their number in the list that they were collected in."""

# ruff: noqa: N802 - a case is named after its mark
from __future__ import annotations

from hashlib import sha256
from typing import Any

import orjson
import pytest

from tests.support.world import DUPLICATE, StoredWorld

RUN = "run-1"


def note(value: Any, key: str = "k") -> dict[str, Any]:
    return {"type": "note", "key": key, "data": {"value": value}}


def test_O3_in_one_millisecond_the_stream_alone_tells_the_order(stored: StoredWorld) -> None:
    stored.must(RUN, "run.create", {"state": {}})
    at = stored.time() + 1
    sent = [stored.send(RUN, "run.update", note(number), at=at) for number in range(50)]
    assert [message.id.partition("-")[2] for message in sent] == [str(n) for n in range(50)]
    assert [outcome.revision for outcome in stored.settle()] == list(range(2, 52))
    trace = stored.reader.trace(RUN, after=1)
    assert [event["message_id"] for event in trace] == [message.id for message in sent]
    (current,) = stored.reader.updates(RUN)
    assert current["data"] == {"value": 49}


def test_O5_each_command_sent_three_times_counts_once(stored: StoredWorld) -> None:
    stored.must(RUN, "run.create", {})
    for number in range(100):
        sent = stored.send(RUN, "run.update", note(number, key=f"k{number}"))
        stored.resend(sent)
        stored.resend(sent)
    outcomes = stored.settle()
    assert [outcome.revision for outcome in outcomes[::3]] == list(range(2, 102))
    assert outcomes[1::3] == outcomes[2::3] == [DUPLICATE] * 100
    run = stored.reader.run(RUN)
    assert run is not None
    cursor = run["cursor"]
    counts = (cursor["applied"], cursor["duplicates"], cursor["rejected"])
    assert counts == (101, 200, 0)


def test_O5_a_sequence_that_comes_with_another_body_is_visible(stored: StoredWorld) -> None:
    stored.must(RUN, "run.create", {})
    stored.must(RUN, "run.update", note("first"), seq=2)
    assert stored.apply(RUN, "run.update", note("second"), seq=2).reason == "sequence_reused"
    (current,) = stored.reader.updates(RUN)
    assert current["data"] == {"value": "first"}
    assert len(stored.reader.rejections(run=RUN).rejections) == 1


@pytest.mark.parametrize(
    "raw, reason",
    [
        ({b"body": b"not json"}, "body_not_json"),
        ({b"body": None}, "field_missing"),
        ({b"more": b"than asked"}, "field_unknown"),
        ({b"body": b'{"x":"\xff"}'}, "body_not_utf8"),
    ],
)
def test_O10_one_bad_message_of_a_hundred_is_refused_alone(
    stored: StoredWorld, raw: dict[bytes, bytes | None], reason: str
) -> None:
    stored.must(RUN, "run.create", {})
    sent = [
        stored.send(RUN, "run.update", note(number, f"k{number}"), raw=raw if number == 50 else {})
        for number in range(100)
    ]
    outcomes = stored.settle()
    assert outcomes.pop(50).reason == reason
    assert [outcome.revision for outcome in outcomes] == list(range(2, 101))
    (rejection,) = stored.reader.rejections(run=RUN).rejections
    assert (rejection["message_id"], rejection["reason"]) == (sent[50].id, reason)
    keys = [event["payload"]["key"] for event in stored.reader.trace(RUN, after=1)]
    assert keys == [f"k{number}" for number in range(100) if number != 50]


def test_O17_nul_inside_a_document_comes_back_unchanged(stored: StoredWorld) -> None:
    said = "before\0after \U0001f600"
    document = {"text": said, "key\0with": [said]}
    stored.must(RUN, "run.create", {"state": document, "input": document})
    stored.must(RUN, "session.bind", {"session": "s", "binding": document})
    stored.must(RUN, "session.entry", {"entry": document})
    event = {"seq": 1, "at": "t", "type": "x", "payload": document}
    stored.must(RUN, "session.events", {"events": [event]})
    stored.must(RUN, "run.update", {"type": "note", "key": "k", "data": document})
    stored.must(
        RUN,
        "run.snapshot",
        {"state": document | {"pad": "x" * 2_000}, "event": {"type": "t", "payload": document}},
    )

    assert stored.state(RUN, 1) == document
    assert stored.state(RUN) == document | {"pad": "x" * 2_000}
    (entry,) = stored.reader.transcript(RUN)
    assert orjson.dumps(entry["entry"]) == orjson.dumps(document)
    (kept,) = stored.reader.session_events(RUN)
    assert kept["event"] == event
    (update,) = stored.reader.updates(RUN)
    assert update["data"] == document
    assert stored.reader.trace(RUN)[-1]["payload"] == document
    run = stored.reader.read_run(RUN)
    assert run is not None
    assert run["sessionBinding"] == document


@pytest.mark.parametrize(
    "value, reason",
    [
        (rb'"\ud83d"', "text_not_exact"),
        (rb'"\ud83d\ude00"', None),
        (b'"\xf0\x9f\x98\x80"', None),
        (b'"\xff"', "body_not_utf8"),
        (rb'"\u0000"', None),
    ],
)
def test_O17_half_an_emoji_is_refused_and_a_whole_one_kept(
    stored: StoredWorld, value: bytes, reason: str | None
) -> None:
    stored.must(RUN, "run.create", {})
    raw = {b"body": b'{"type":"note","key":"k","data":{"value":%b}}' % value}
    assert stored.apply(RUN, "run.update", raw=raw).reason == reason
    if reason is None:
        (current,) = stored.reader.updates(RUN)
        assert current["data"] == {"value": orjson.loads(value)}
    stored.must(RUN, "run.update", note("goes on"))


@pytest.mark.parametrize(
    "number, kept",
    [
        (b"9223372036854775808", b"9223372036854775808"),
        (b"18446744073709551615", b"18446744073709551615"),
        (b"-9223372036854775808", b"-9223372036854775808"),
        (b"18446744073709551616", None),
        (b"-9223372036854775809", None),
        (b"1e400", None),
        (b"NaN", None),
        (b"-0.0", b"-0.0"),
        (b"1.0", b"1.0"),
        (b"1e2", b"100.0"),
        (b"0.1", b"0.1"),
        (b"5e-324", b"5e-324"),
        (b"0.3000000000000000444", b"0.30000000000000004"),
        (b'"1234567890123456789012345"', b'"1234567890123456789012345"'),
    ],
)
def test_O18_a_number_is_kept_exactly_or_refused(
    stored: StoredWorld, number: bytes, kept: bytes | None
) -> None:
    stored.must(RUN, "run.create", {})
    raw = {b"body": b'{"type":"note","key":"k","data":{"value":%b}}' % number}
    outcome = stored.apply(RUN, "run.update", raw=raw)
    if kept is None:
        assert outcome.reason == "number_not_exact"
        return
    (current,) = stored.reader.updates(RUN)
    assert orjson.dumps(current["data"]["value"]) == kept


def test_O18_of_repeated_keys_the_last_wins(stored: StoredWorld) -> None:
    body = b'{"state":{"a":1,"b":{"c":1,"c":2},"a":3}}'
    stored.must(RUN, "run.create", raw={b"body": body})
    assert stored.state(RUN) == {"a": 3, "b": {"c": 2}}


CANONICAL = '{"":0,"a":1,"big":1e+21,"z":[100,"\u20ac"],"\U0001f600":1,"\ufb33":2}'


@pytest.mark.parametrize(
    "text",
    [
        CANONICAL,
        '{"\ufb33":2,"\U0001f600":1.0,"z":[1e2,"\\u20ac"],"big":1e21,"a":1.0,"":-0.0}',
        '{"\\ufb33":2.0,"\\ud83d\\ude00":1,"z":[100.0,"€"],"big":10.0e20,"a":1,"":0}',
    ],
    ids=["canonical", "as Python writes it", "as Node writes it"],
)
def test_O19_a_definition_has_one_digest_whoever_wrote_it(stored: StoredWorld, text: str) -> None:
    body = b'{"definition":%b}' % text.encode()
    stored.must(RUN, "run.create", raw={b"body": body})
    assert stored.only("runs", RUN)["definition_digest"] == sha256(CANONICAL.encode()).digest()
    assert stored.rows("SELECT definition FROM definitions") == [{"definition": CANONICAL}]


def test_O19_a_definition_that_has_none_is_refused(stored: StoredWorld) -> None:
    refused = stored.apply(RUN, "run.create", {"definition": {"n": 2**63}})
    assert refused.reason == "definition_invalid"
    stored.must(RUN, "run.create", {"definition": {"n": 2**53 - 1}})
