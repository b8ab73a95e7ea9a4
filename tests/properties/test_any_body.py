"""Whatever a message says, it ends: nothing that a host can send raises, nor stops a neighbour."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from producers.contract.commands import MODELS
from producers.contract.envelope import decode, seal
from tests.properties.histories import RUNS, START_MS, bodies
from tests.properties.partition import partition
from writer.apply import Message
from writer.core.outcome import Applied, Held

KINDS = tuple(MODELS)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["2026-08-23T00:00:00Z", "9999-12-31T23:59:59.999999-23:59", "0001-01-01T00:00:00+23:59", "\0"]
)
integers = st.integers(-(2**63), 2**64 - 1) | st.integers(-2, 2)
floats = st.floats(allow_nan=False, allow_infinity=False)
anything = st.recursive(
    st.none() | st.booleans() | integers | floats | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)

PI_FIELDS = [
    "status",
    "title",
    "statusDetail",
    "currentNode",
    "currentAttemptId",
    "currentNodeStartedAt",
    "finishedAt",
    "error",
    "steps",
    "carriedStepCount",
    "updates",
    "traceSeq",
    "updatedAt",
    "outputs",
]
STEP_FIELDS = ["attemptId", "nodeId", "nodeType", "outcome", "startedAt", "finishedAt", "output"]

steps = st.lists(st.dictionaries(st.sampled_from(STEP_FIELDS), anything) | anything, max_size=3)


@st.composite
def pi_documents(draw: st.DrawFn, run: str) -> dict[str, Any]:
    """A state with the right name on it and anything inside."""
    state = draw(st.dictionaries(st.sampled_from(PI_FIELDS), anything, max_size=6))
    state |= {"schema": "pi-workflows.run-state.v1", "runId": run, "status": "running"}
    return state | ({"steps": draw(steps)} if draw(st.booleans()) else {})


@st.composite
def almost_good(draw: st.DrawFn, kind: str, run: str) -> dict[str, Any]:
    """A good body with up to two of its fields replaced by anything."""
    body = dict(draw(bodies(kind, run)))
    if "state" in body and draw(st.booleans()):
        body["state"] = draw(pi_documents(run))
    names = [name for name in MODELS[kind].model_fields if name != "kind"]
    if names:
        for name in draw(st.lists(st.sampled_from(names), max_size=2)):
            body[name] = draw(anything)
    return body


@st.composite
def streams(draw: st.DrawFn) -> list[Message]:
    """Good creates, a good bind, then commands that are almost good."""
    found = []
    for number in range(draw(st.integers(3, 12))):
        run = draw(st.sampled_from(RUNS[1:3]))
        kind = draw(st.sampled_from(KINDS))
        if number < 2:
            run, kind = RUNS[1:3][number], "run.create"
        if number == 2:
            kind = "session.bind"
        body = draw(bodies(kind, run) if number < 3 else almost_good(kind, run))
        fields = {
            b"v": b"1",
            b"kind": kind.encode(),
            b"producer": b"p",
            b"seq": b"%d" % (number + 1),
            b"body": orjson.dumps(body),
        }
        found.append(Message(run, f"{START_MS + number}-0", fields))
    return found


@given(streams())
@settings(max_examples=60)
def test_every_command_ends_and_stores(sent: list[Message]) -> None:
    with partition() as file:
        settled = file.apply_all(sent)
        assert len(settled) == len(sent)
        again = file.apply_all(sent)
        assert again == [], "nothing at or before the cursor is read twice"


FIELDS = (
    b"v",
    b"kind",
    b"producer",
    b"seq",
    b"body",
    b"auth",
    b"reply",
    b"trace",
    b"other",
    b"\xff",
)
DEEP = b'{"token":"x","deep":%b%b}' % (b"[" * 300, b"]" * 300)
values = st.binary(max_size=20) | st.sampled_from(
    [b"1", b"2", b"run.create", b"p", b"{}", b'{"token":"x"}', b"lease.claim", b"\x00", DEEP]
)


@given(st.dictionaries(st.sampled_from(FIELDS), values), st.text(max_size=5) | st.just("run-1"))
@settings(max_examples=200)
def test_every_set_of_fields_is_judged(fields: dict[bytes, bytes], run: str) -> None:
    sealed = seal(fields)
    decoded = decode(run, "1-0", sealed)
    said = [decoded.command, decoded.reason, decoded.newer_version]
    assert sum(each is not None for each in said) == 1
    if decoded.command is not None:
        assert decoded.producer is not None
        assert decoded.seq is not None
    if b"token" in fields.get(b"auth", b""):
        assert b'"x"' not in sealed[b"auth"]


@given(anything)
@settings(max_examples=60)
def test_any_document_comes_back_as_it_went_in(document: Any) -> None:
    state = {"held": document}
    with partition() as file:
        sent = []
        for number, (kind, body) in enumerate(
            [
                ("run.create", {"input": document, "state": state}),
                ("session.bind", {"session": "s"}),
                ("session.entry", {"entry": state}),
                ("run.update", {"type": "note", "key": "k", "data": state}),
            ]
        ):
            fields = {
                b"v": b"1",
                b"kind": kind.encode(),
                b"producer": b"p",
                b"seq": b"%d" % (number + 1),
                b"body": orjson.dumps(body),
            }
            sent.append(Message("run-1", f"{START_MS + number}-0", fields))
        assert all(isinstance(each.outcome, Applied) for each in file.apply_all(sent))
        tables = file.tables()
        (entry,) = tables["session_entries"]
        (update,) = tables["updates"]
        assert entry[4] == orjson.dumps(state).decode()
        assert update[6] == orjson.dumps(state).decode()
        (run,) = tables["runs"]
        assert orjson.dumps(document).decode() in run
        assert Held not in {type(each) for each in run}
