"""What a call refuses. It is the writer's judgement, made before anything is numbered or sent."""

from __future__ import annotations

import enum
import math
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers import Auth, InvalidCommand, Producer
from producers.contract import limits
from producers.contract.envelope import decode, encode, seal
from producers.contract.reasons import Reason
from producers.validation import encode_body
from tests.producers.reading import NOWHERE

SECRET = "payload-that-no-message-may-show"


def nested(levels: int) -> Any:
    """A document that nests so many levels deep."""
    document: Any = []
    for _ in range(levels - 1):
        document = [document]
    return document


@dataclass
class Point:
    x: int
    _hidden: int = 0


class Broken(enum.Enum):
    NAN = math.nan


CYCLE: dict[str, Any] = {"other": {}}
CYCLE["self"] = [CYCLE, CYCLE]

BAD_DOCUMENTS = {
    "nan": ({"a": [1.0, {"b": math.nan}]}, Reason.NUMBER_NOT_EXACT, "entry.a.1.b"),
    "infinity": ({"a": -math.inf}, Reason.NUMBER_NOT_EXACT, "entry.a"),
    "nan in a tuple": ({"a": (math.nan,)}, Reason.NUMBER_NOT_EXACT, "entry.a.0"),
    "nan in an enum": ({"a": Broken.NAN}, Reason.NUMBER_NOT_EXACT, "entry.a"),
    "integer above 64 bits": ({"a": 2**64}, Reason.NUMBER_NOT_EXACT, "entry.a"),
    "integer below 64 bits": ({"a": -(2**63) - 1}, Reason.NUMBER_NOT_EXACT, "entry.a"),
    "lone surrogate": ({"a": [SECRET + "\ud800"]}, Reason.TEXT_NOT_EXACT, "entry.a.0"),
    "lone surrogate in a key": ({"\udfff": SECRET}, Reason.TEXT_NOT_EXACT, "entry"),
    "key that is no text": ({"a": {1: SECRET}}, Reason.BODY_NOT_JSON, "entry.a"),
    "bytes": ({"a": b"x"}, Reason.BODY_NOT_JSON, "entry.a"),
    "set": ({"a": {SECRET}}, Reason.BODY_NOT_JSON, "entry.a"),
    "object": ({"a": object()}, Reason.BODY_NOT_JSON, "entry.a"),
    "dataclass": ({"a": Point(1)}, Reason.BODY_NOT_JSON, "entry.a"),
    "unjudged text": ({"a": orjson.Fragment(b"NaN")}, Reason.BODY_NOT_JSON, "entry.a"),
    "too deep": ({"a": nested(127)}, Reason.BODY_TOO_DEEP, None),
    "much too deep": ({"a": nested(600)}, Reason.BODY_TOO_DEEP, None),
    "cycle": (CYCLE, Reason.BODY_TOO_DEEP, None),
    "no object": ([1, 2], Reason.FIELD_INVALID, "entry"),
    "too large": ({"a": SECRET * 140_000}, Reason.ENTRY_TOO_LARGE, ""),
}

BAD_COMMANDS = {
    "unknown kind": ("run.explode", {}, Reason.KIND_UNKNOWN, "kind"),
    "kind inside": ("run.resume", {"kind": "run.resume"}, Reason.FIELD_UNKNOWN, "kind"),
    "body is no object": ("run.resume", [SECRET], Reason.BODY_NOT_JSON, "body"),
    "missing field": ("run.snapshot", {}, Reason.FIELD_MISSING, "state"),
    "unknown field": ("run.resume", {"x": SECRET}, Reason.FIELD_UNKNOWN, "x"),
    "text for a number": (
        "lease.renew",
        {"lease_ms": "1"},
        Reason.FIELD_INVALID,
        "lease_ms",
    ),
    "true for a number": ("lease.renew", {"lease_ms": True}, Reason.FIELD_INVALID, "lease_ms"),
    "1.0 for a number": ("lease.renew", {"lease_ms": 1.0}, Reason.FIELD_INVALID, "lease_ms"),
    "out of range": ("lease.renew", {"lease_ms": 3_600_001}, Reason.FIELD_INVALID, "lease_ms"),
    "nul in an id": ("session.bind", {"session": "a\0"}, Reason.FIELD_INVALID, "session"),
    "update key": (
        "run.update",
        {"type": "progress", "key": "no blanks", "data": {}},
        Reason.FIELD_INVALID,
        "key",
    ),
    "update too large": (
        "run.update",
        {"type": "progress", "key": "k", "data": {"a": "x" * 65_536}},
        Reason.UPDATE_TOO_LARGE,
        "",
    ),
    "event too large": (
        "session.events",
        {"events": [{"seq": 1, "at": "t", "type": "e", "payload": {"a": "x" * 1_048_576}}]},
        Reason.EVENT_TOO_LARGE,
        "",
    ),
    "event without type": (
        "session.events",
        {"events": [{"seq": 1, "at": "t", "payload": {}}]},
        Reason.FIELD_MISSING,
        "events.0.type",
    ),
    "above 16 MiB": ("run.create", {"input": "x" * 2**24}, Reason.BODY_TOO_LARGE, "body"),
}


@pytest.fixture
def producer() -> Iterator[Producer]:
    """A producer that needs no server."""
    made = Producer(NOWHERE, partitions=1)
    yield made
    made.close(0)


def assert_refused(
    caught: pytest.ExceptionInfo[InvalidCommand], reason: Reason, place: str | None
) -> None:
    error = caught.value
    assert isinstance(error, ValueError)
    assert error.reason is reason
    assert place is None or error.place == place
    assert reason.sentence in str(error)
    assert SECRET not in repr(error) + str(error)


@pytest.mark.parametrize("name", BAD_DOCUMENTS)
def test_a_document_that_json_can_not_keep_is_refused_and_uses_up_no_sequence(
    name: str, producer: Producer
) -> None:
    document, reason, place = BAD_DOCUMENTS[name]
    with pytest.raises(InvalidCommand) as caught:
        producer.send("r", "session.entry", {"entry": document})
    assert_refused(caught, reason, place)
    assert producer.send("r", "run.resume", {}).seq == 1


@pytest.mark.parametrize("name", BAD_COMMANDS)
def test_a_command_outside_the_contract_is_refused_and_uses_up_no_sequence(
    name: str, producer: Producer
) -> None:
    kind, body, reason, place = BAD_COMMANDS[name]
    with pytest.raises(InvalidCommand) as caught:
        producer.send("r", kind, body)  # type: ignore[arg-type]
    assert_refused(caught, reason, place)
    assert producer.send("r", "run.resume", {}).seq == 1


@pytest.mark.parametrize("run", ["", "a/b", "a b", 'a"b', "a\0b", "ä", ".a", "a\n", "x" * 201, 7])
def test_a_run_id_outside_the_pattern_is_refused(run: Any, producer: Producer) -> None:
    for call in (
        lambda: producer.run(run),
        lambda: producer.create_run("w", run_id=run),
        lambda: producer.send(run, "run.resume", {}),
    ):
        with pytest.raises(InvalidCommand) as caught:
            call()
        assert_refused(caught, Reason.RUN_ID_INVALID, "run")


@pytest.mark.parametrize(
    "producer_id, seq, reason",
    [
        ("p", None, Reason.FIELD_MISSING),
        (None, 1, Reason.FIELD_MISSING),
        ("a b", 1, Reason.FIELD_INVALID),
        ("p", 0, Reason.FIELD_INVALID),
        ("p", True, Reason.FIELD_INVALID),
        ("p", "1", Reason.FIELD_INVALID),
        ("p", 1.0, Reason.FIELD_INVALID),
        ("p", 2**53, Reason.FIELD_INVALID),
    ],
)
def test_a_numbering_of_the_callers_is_checked(
    producer_id: Any, seq: Any, reason: Reason, producer: Producer
) -> None:
    with pytest.raises(InvalidCommand) as caught:
        producer.send("r", "run.resume", {}, producer=producer_id, seq=seq)
    assert caught.value.reason is reason


def test_a_refused_claim_leaves_the_run_without_authority_and_hides_the_token(
    producer: Producer,
) -> None:
    run = producer.run("r")
    for wrong in ({"token": ""}, {"owner_type": "ghost"}, {"lease_ms": 0}):
        with pytest.raises(InvalidCommand) as caught:
            run.claim("host-1", **({"token": SECRET} | wrong))
        assert SECRET not in str(caught.value)
    assert run.auth is None


def test_what_nests_128_levels_travels(producer: Producer) -> None:
    assert producer.send("r", "run.snapshot", {"state": {"a": nested(126)}}).seq == 1


def test_whatever_orjson_takes_travels_as_its_json() -> None:
    class Colour(enum.StrEnum):
        RED = "red"

    at = datetime(2026, 1, 31, 12, tzinfo=UTC)
    name = uuid.UUID(int=1)
    text = encode_body(
        "session.entry",
        {"entry": {"a": (1, 2), "b": Colour.RED, "c": at, "d": name, "e": None, "f": 2**64 - 1}},
    )
    assert orjson.loads(text)["entry"] == {
        "a": [1, 2],
        "b": "red",
        "c": "2026-01-31T12:00:00+00:00",
        "d": str(name),
        "e": None,
        "f": 2**64 - 1,
    }


DOCUMENTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**65), 2**65)
    | st.floats()
    | st.text(st.characters(exclude_categories=[]), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=[]), max_size=3) | st.integers(0, 3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def is_exact(value: Any) -> bool:
    """Whether JSON text says this value again, judged plainly."""
    match value:
        case bool() | None:
            return True
        case int():
            return limits.INTEGER_MIN <= value <= limits.INTEGER_MAX
        case float():
            return math.isfinite(value)
        case str():
            return not any(0xD800 <= ord(character) <= 0xDFFF for character in value)
        case dict():
            return all(isinstance(key, str) and is_exact(key) for key in value) and all(
                map(is_exact, value.values())
            )
    return all(map(is_exact, value))


@given(DOCUMENTS)
def test_a_document_is_taken_exactly_if_json_keeps_it_and_then_the_writer_takes_it_too(
    document: Any,
) -> None:
    body = {"state": {"document": document}}
    try:
        text = encode_body("run.snapshot", body)
    except InvalidCommand:
        assert not is_exact(document)
        return
    assert is_exact(document)
    fields = encode("run.snapshot", orjson.loads(text), producer="p", seq=1)
    decoded = decode("r", "1-0", seal(fields))
    assert decoded.reason is None
    assert orjson.dumps(decoded.body) == orjson.dumps(body)


def test_an_authority_reaches_the_message_as_given(producer: Producer) -> None:
    auth = Auth(owner_type="host", owner_id="h", token="t", generation=3)
    assert producer.send("r", "run.resume", {}, auth=auth).seq == 1
