"""Each kind of bad message has one outcome: a reason, its bytes kept, its neighbours untouched."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson
import pytest

from producers.contract.envelope import fields_of, seal
from producers.contract.limits import COUNTER_MAX, NESTING_DEPTH_MAX, SEQUENCE_JUMP_MAX
from tests.support.host import Host
from tests.support.workload import base_state
from tests.support.world import Outcome, StoredWorld

RUN, NEIGHBOUR = "run-1", "run-2"
NOTE = {"type": "note", "key": "k", "data": {}}
MIB = 1024 * 1024

Raw = dict[bytes, bytes | None]


class Bad(NamedTuple):
    """A message: a good note, unless it says otherwise, and the reason why it is refused."""

    name: str
    reason: str
    raw: Mapping[bytes, bytes | None] = MappingProxyType({})
    kind: str = "run.update"
    body: Any = NOTE
    detail: str | None = None
    seq: int | None = None


def data(text: bytes) -> Raw:
    """A note with this JSON text as its data's only member."""
    return {b"body": b'{"type":"note","key":"k","data":{"x":%b}}' % text}


def deep(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def note(**changed: Any) -> dict[str, Any]:
    return NOTE | changed


ENVELOPE = [
    *(
        Bad(f"no {name}", "field_missing", {name.encode(): None}, detail=name)
        for name in ("v", "kind", "producer", "seq", "body")
    ),
    Bad("unknown field", "field_unknown", {b"color": b"red"}, detail="color"),
    Bad("unknown field that is not UTF-8", "field_unknown", {b"\xff": b"\xfe"}),
    *(
        Bad(f"version {text!r}", "version_invalid", {b"v": text})
        for text in (b"", b"0", b"-1", b"1.0", b"01", b"v1", b"1000", b"true", "٣".encode())
    ),
    *(
        Bad(f"kind {text!r}", "kind_unknown", {b"kind": text})
        for text in (b"", b"run.paint", b"RUN.UPDATE", b"run.update ", b"\xff")
    ),
    *(
        Bad(f"sequence {text!r}", "field_invalid", {b"seq": text}, detail="seq")
        for text in (b'"1"', b"true", b"1.0", b"1e3", b"-1", b"0", b"007", b"", b"\xff", b"9" * 40)
    ),
    Bad("sequence past 2^53-1", "field_invalid", {b"seq": b"%d" % (COUNTER_MAX + 1)}),
    *(
        Bad(f"producer {text[:20]!r}", "field_invalid", {b"producer": text}, detail="producer")
        for text in (b"", b"a b", b"a/b", b"a'b", b"a\0b", b"-a", b"\xff", b"p" * 129)
    ),
    *(
        Bad(f"{name} {text[:20]!r}", "field_invalid", {name.encode(): text}, detail=name)
        for name in ("reply", "trace")
        for text in (b"", b"a\nb", b"a\0b", b"\xff", b"r" * 513)
    ),
]

BODY = [
    *(
        Bad(f"body {text!r}", "body_not_json", {b"body": text})
        for text in (
            b"",
            b"{",
            b"null",
            b"[]",
            b'"x"',
            b"1",
            b"{'a':1}",
            b'{"a":1,}',
            b'{"a":1}{"b":2}',
            b'{"a":undefined}',
            b'\xef\xbb\xbf{"a":1}',
            b'{"a":"\x01"}',
        )
    ),
    Bad("bytes that are not UTF-8", "body_not_utf8", data(b'"\xff"')),
    Bad("half a pair in UTF-8", "body_not_utf8", data(b'"\xed\xa0\xbd"')),
    Bad("half a pair, escaped", "text_not_exact", data(b'"\\ud83d"')),
    Bad("the other half", "text_not_exact", data(b'"\\ude00"')),
    Bad("half a pair in a key", "text_not_exact", data(b'{"\\ud83d":1}')),
    Bad("NaN", "number_not_exact", data(b"NaN")),
    Bad("infinity", "number_not_exact", data(b"-Infinity")),
    Bad("1e400", "number_not_exact", data(b"1e400")),
    Bad("2^64", "number_not_exact", data(b"18446744073709551616")),
    Bad("-2^63-1", "number_not_exact", data(b"-9223372036854775809")),
    Bad("40 digits", "number_not_exact", data(b"1" * 40)),
    Bad("5000 digits", "number_not_exact", data(b"1" * 5_000)),
    Bad("too deep by one", "body_too_deep", data(deep(NESTING_DEPTH_MAX - 1))),
    Bad("far too deep", "body_too_deep", data(deep(100_000))),
    Bad("deep and torn", "body_too_deep", data(b"[" * 5_000)),
    Bad("update data over 64 KiB", "update_too_large", body=note(data={"x": "x" * 65_536})),
]

MODEL = [
    Bad("missing field", "field_missing", body={"type": "note", "key": "k"}, detail="data"),
    Bad("unknown field", "field_unknown", body=note(color="red"), detail="color"),
    Bad("kind inside", "field_unknown", body=note(kind="run.update"), detail="body.kind"),
    Bad("wrong type", "field_invalid", body=note(data=[]), detail="data"),
    Bad("null where a text is", "field_invalid", body=note(type=None), detail="type"),
    Bad("type", "field_invalid", body=note(type="Bad Type"), detail="type"),
    Bad("key", "field_invalid", body=note(key="a key"), detail="key"),
    Bad("empty id", "field_invalid", body=note(node_id=""), detail="node_id"),
    Bad("id with NUL", "field_invalid", body=note(node_id="a\0b"), detail="node_id"),
    Bad("long id", "field_invalid", body=note(node_id="n" * 513), detail="node_id"),
    Bad("title with NUL", "field_invalid", kind="run.annotate", body={"title": "a\0b"}),
    Bad("tag with NUL", "field_invalid", kind="run.annotate", body={"tags": {"a\0": "b"}}),
    *(
        Bad(
            f"revision {value!r}",
            "field_invalid",
            kind="run.snapshot",
            body={"state": {}, "expected_revision": value},
            detail="expected_revision",
        )
        for value in ("1", True, 1.0, 0, -1, COUNTER_MAX + 1)
    ),
    *(
        Bad(
            f"parent {run!r}",
            "field_invalid",
            kind="run.create",
            body={"parent": {"run": run}},
            detail="parent.run",
        )
        for run in ("../x", "a b", "a'b", "a\0b", "", "r" * 201, "ü")
    ),
]

STATE = [
    Bad("a sequence that repeats", "sequence_reused", seq=1),
    Bad("a sequence that jumps", "sequence_jump", seq=SEQUENCE_JUMP_MAX + 3),
    Bad("a revision that is not", "revision_conflict", kind="run.snapshot",
        body={"state": base_state(RUN), "expected_revision": 9}),
    Bad("another run's state", "state_invalid", kind="run.snapshot",
        body={"state": base_state(NEIGHBOUR)}),
    Bad("a segment that is not", "segment_unknown", kind="session.entry", body={"entry": {}}),
    Bad("an effect that is not", "effect_unknown", kind="effect.settle",
        body={"effect_id": "e", "occurrence": 1, "status": "applied"}),
    Bad("a reset of a running run", "run_not_terminal", kind="run.reset", body={}),
]  # fmt: skip


@pytest.mark.parametrize("bad", [*ENVELOPE, *BODY, *MODEL, *STATE], ids=lambda bad: bad.name)
def test_it_is_refused_kept_and_harmless(stored: StoredWorld, bad: Bad) -> None:
    stored.create(RUN)
    stored.create(NEIGHBOUR)
    stored.send(NEIGHBOUR, "run.update", NOTE)
    sent = stored.send(RUN, bad.kind, bad.body, raw=bad.raw, seq=bad.seq)
    stored.send(NEIGHBOUR, "run.update", NOTE)
    before, refused, after = stored.settle()

    assert refused.reason == bad.reason
    if bad.detail is not None:
        assert refused.detail == bad.detail
    assert (before, after) == (Outcome("applied", 2), Outcome("applied", 3))
    assert [event["revision"] for event in stored.events(RUN)] == [1]

    (listed,) = stored.reader.rejections(run=RUN).rejections
    assert (listed["message_id"], listed["reason"]) == (sent.id, bad.reason)
    kept = stored.reader.rejection(listed["id"])
    assert kept is not None
    assert fields_of(kept["fields"]) == seal(sent.fields) == sent.fields
    assert stored.must(RUN, "run.update", NOTE, producer="q").revision == 2


@pytest.mark.parametrize(
    "run", ["../x", "a/b", "a b", "a'b", 'a"b', "a');drop", "a\0b", ".", "-a", "ü", "r" * 201, " "]
)
def test_a_run_id_is_plain(stored: StoredWorld, run: str) -> None:
    stored.send(run, "run.create", {})
    stored.send("good", "run.create", {})
    refused, applied = stored.settle()
    assert refused.reason == "run_id_invalid"
    assert applied.kind == "applied"
    assert [listed["run_id"] for listed in stored.reader.list_runs().runs] == ["good"]
    (rejection,) = stored.reader.rejections(run=run).rejections
    assert rejection["run_id"] == run


@pytest.mark.parametrize("kind", ["run.snapshot", "run.update", "session.bind", "run.delete"])
def test_a_run_that_does_not_exist_is_not_half_made(stored: StoredWorld, kind: str) -> None:
    bodies: dict[str, Any] = {
        "run.snapshot": {"state": {}},
        "run.update": NOTE,
        "session.bind": {"session": "s"},
        "run.delete": {},
    }
    assert stored.apply(RUN, kind, bodies[kind]).reason == "run_unknown"
    assert stored.reader.read_run(RUN) is None
    assert stored.must(RUN, "run.create", {}).revision == 1


def test_a_refused_command_can_be_sent_again_from_what_is_kept(stored: StoredWorld) -> None:
    early = stored.send(RUN, "run.annotate", {"title": "early"})
    assert stored.settle()[0].reason == "run_unknown"
    stored.must(RUN, "run.create", {})
    (listed,) = stored.reader.rejections(run=RUN).rejections
    kept = stored.reader.rejection(listed["id"])
    assert kept is not None
    fields: Raw = dict(fields_of(kept["fields"]))
    fields |= {b"producer": f"redrive-{early.id}".encode(), b"seq": b"1"}
    stored.must(RUN, "run.annotate", raw=fields, producer=f"redrive-{early.id}")
    assert stored.reader.run(RUN)["title"] == "early"  # type: ignore[index]


def test_an_update_for_a_finished_run_is_refused(stored: StoredWorld) -> None:
    stored.create(RUN)
    stored.must(RUN, "run.snapshot", {"state": base_state(RUN) | {"status": "completed"}})
    assert stored.apply(RUN, "run.update", NOTE).reason == "run_terminal"
    assert stored.state(RUN)["updates"] == []


def test_a_lease_that_is_not_held_is_said_so(stored: StoredWorld) -> None:
    host = Host("host-a")
    stored.create(RUN)
    assert stored.apply(RUN, "run.update", NOTE, auth=host.auth()).reason == "lease_missing"
    stored.must(RUN, "lease.claim", host.claim())
    assert stored.apply(RUN, "run.update", NOTE).reason == "lease_missing"
    other = Host("host-b").auth()
    assert stored.apply(RUN, "run.update", NOTE, auth=other).reason == "lease_owner_changed"


AUTH: dict[str, Any] = {"owner_type": "host", "owner_id": "a", "token": "SECRET-token"}


@pytest.mark.parametrize(
    "auth, reason, detail",
    [
        (b"", "field_invalid", "auth"),
        (b"SECRET-token", "field_invalid", "auth"),
        (b'"SECRET-token"', "field_invalid", "auth"),
        (b'["SECRET-token"]', "field_invalid", "auth"),
        (b'{"token":"SECRET-token"', "field_invalid", "auth"),
        (AUTH | {"owner_id": None}, "field_invalid", "auth.owner_id"),
        (AUTH | {"owner_type": "robot"}, "field_invalid", "auth.owner_type"),
        (AUTH | {"generation": "1"}, "field_invalid", "auth.generation"),
        (AUTH | {"generation": 0}, "field_invalid", "auth.generation"),
        (AUTH | {"generation": 1.0}, "field_invalid", "auth.generation"),
        (AUTH | {"token": ["SECRET-token"]}, "field_missing", "auth.token_sha256"),
        (AUTH | {"color": "red"}, "field_unknown", "auth.color"),
        (AUTH | {"token_sha256": "0" * 64}, "field_unknown", "auth.token_sha256_sent"),
        ({"owner_type": "host", "owner_id": "a"}, "field_missing", "auth.token_sha256"),
        (AUTH | {"deep": orjson.loads(deep(200))}, "field_invalid", "auth"),
    ],
    ids=str,
)
def test_a_broken_authority_is_refused_and_its_token_is_nowhere(
    stored: StoredWorld, auth: Any, reason: str, detail: str
) -> None:
    stored.create(RUN)
    raw = auth if isinstance(auth, bytes) else orjson.dumps(auth)
    refused = stored.apply(RUN, "run.update", NOTE, raw={b"auth": raw})
    assert (refused.reason, refused.detail) == (reason, detail)
    assert_nowhere(stored, b"SECRET")


@pytest.mark.parametrize("token", ["SECRET-token", ["SECRET-token"]], ids=str)
def test_a_claim_that_brings_its_token_is_refused_and_the_token_is_nowhere(
    stored: StoredWorld, token: Any
) -> None:
    stored.create(RUN)
    body = Host("host-a").claim() | {"token": token}
    refused = stored.apply(RUN, "lease.claim", body)
    assert refused.reason == "field_unknown"
    assert_nowhere(stored, b"SECRET")


def test_nor_is_one_in_a_torn_claim(stored: StoredWorld) -> None:
    stored.create(RUN)
    torn = orjson.dumps(Host("host-a").claim() | {"token": "SECRET-token"})[:-1]
    refused = stored.apply(RUN, "lease.claim", raw={b"body": torn})
    assert refused.reason == "body_not_json"
    assert_nowhere(stored, b"SECRET")


def test_a_good_token_is_nowhere_either(stored: StoredWorld) -> None:
    host = Host("SECRET")
    stored.create(RUN)
    stored.must(RUN, "lease.claim", host.claim())
    stored.must(RUN, "session.bind", {"session": "s"}, auth=host.auth())
    stored.apply(RUN, "run.update", NOTE | {"type": "Bad"}, auth=host.auth())
    assert_nowhere(stored, host.token().encode())


def assert_nowhere(stored: StoredWorld, secret: bytes) -> None:
    files = [path for path in stored.data.rglob("*") if path.is_file()]
    assert files
    assert [path.name for path in files if secret in path.read_bytes()] == []


@pytest.mark.parametrize(
    "reason, kind, body",
    [
        ("body_too_large", "run.update", note(data={"x": "x" * 16 * MIB})),
        ("entry_too_large", "session.entry", {"entry": {"x": "x" * 4 * MIB}}),
        (
            "event_too_large",
            "session.events",
            {"events": [{"seq": 1, "at": "t", "type": "x", "payload": {"x": "x" * MIB}}]},
        ),
    ],
    ids=["body", "entry", "event"],
)
def test_what_is_too_large_is_kept_whole(
    stored: StoredWorld, reason: str, kind: str, body: dict[str, Any]
) -> None:
    stored.create(RUN)
    sent = stored.send(RUN, kind, body)
    assert stored.settle()[0].reason == reason
    (listed,) = stored.reader.rejections(run=RUN).rejections
    kept = stored.reader.rejection(listed["id"])
    assert kept is not None
    assert fields_of(kept["fields"]) == sent.fields


def test_a_body_of_16_mib_is_taken(stored: StoredWorld) -> None:
    stored.create(RUN)
    around = len(orjson.dumps({"state": base_state(RUN) | {"x": ""}}))
    state = base_state(RUN) | {"x": "x" * (16 * MIB - around)}
    stored.must(RUN, "run.snapshot", {"state": state})
    assert stored.state(RUN)["x"] == state["x"]


def test_of_more_than_32_mib_the_head_and_the_hash_are_kept(stored: StoredWorld) -> None:
    stored.create(RUN)
    sent = stored.send(RUN, "run.update", raw={b"body": b"x" * (32 * MIB + 1)})
    assert stored.settle()[0].reason == "body_too_large"
    (listed,) = stored.reader.rejections(run=RUN).rejections
    kept = stored.reader.rejection(listed["id"])
    assert kept is not None
    assert kept["fields"] is None
    head = fields_of(kept["head"])
    assert head[b"body"] == b"x" * 4_096
    assert head[b"kind"] == b"run.update"
    size = sum(len(name) + len(value) for name, value in sent.fields.items())
    assert kept["fields_bytes"] == size
    assert len(bytes.fromhex(kept["fields_sha256"])) == 32
    stored.must(RUN, "run.update", NOTE)
