"""Histories: what several hosts may send to several runs, good and bad, in one order.

An `Act` says what is sent and how its sequence stands to the ones before; `messages` makes stream
items of it. So a failing history shrinks to few acts, and each of them still means something.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson
from hypothesis import strategies as st

from producers.contract.commands import Auth
from producers.contract.envelope import encode, seal, token_sha256
from writer.apply import Message

START_MS = 1_700_000_000_000
PI_RUNS = ("run-0", "run-1")
RUNS = (*PI_RUNS, "run-2", "run-3")
PRODUCERS = ("p", "q")
OWNERS = ("host-a", "host-b")
LAST_CLAIMANT = "whoever claimed last"
CLAIMS = (1, 2)
LEASE_MS = 50
FAR = 2**33

Body = dict[str, Any]


class Act(NamedTuple):
    """One message to be: `place` is how its sequence stands to the producer's highest so far."""

    run: str
    producer: str
    kind: str
    body: Body
    auth: tuple[str, int, int | None] | None
    place: str
    wait_ms: int
    damage: str


def messages(acts: Sequence[Act]) -> list[Message]:
    """The stream items of a history, tokens sealed, in the order in which they came."""
    highest: dict[tuple[str, str], int] = {}
    holders: dict[str, tuple[str, int]] = {}
    last: dict[tuple[str, str], dict[bytes, bytes]] = {}
    ms, n = START_MS, 0
    found = []
    for act in acts:
        n = n + 1 if act.wait_ms == 0 else 0
        ms += act.wait_ms
        pair = (act.run, act.producer)
        top = highest.get(pair, 0)
        seq = {
            "next": top + 1,
            "gap": top + 2,
            "wide gap": top + 3,
            "late": max(top - 1, 1),
            "later": max(top - 2, 1),
            "same": max(top, 1),
            "again": max(top, 1),
            "far": top + FAR,
        }[act.place]
        if act.place == "again" and pair in last:
            fields = last[pair]
        else:
            fields = damaged(_fields(act, seq, holders), act.damage)
            if act.place not in ("far", "again"):
                last[pair] = fields
        if act.place != "far" and act.damage != "no seq":
            highest[pair] = max(top, seq)
        found.append(Message(act.run, f"{ms}-{n}", seal(fields)))
    return found


def _fields(act: Act, seq: int, holders: dict[str, tuple[str, int]]) -> dict[bytes, bytes]:
    auth = None
    if act.kind == "lease.claim":
        holders[act.run] = next(
            (owner, claim)
            for owner in OWNERS
            for claim in CLAIMS
            if token_sha256(token(owner, claim)) == act.body["token_sha256"]
        )
    if act.auth is not None and (act.auth[0] in OWNERS or act.run in holders):
        owner, claim, generation = act.auth
        if owner == LAST_CLAIMANT:
            owner, claim = holders[act.run]
        named: dict[str, Any] = {"owner_type": "host", "owner_id": owner}
        auth = Auth(**named, token=token(owner, claim), generation=generation)
    return encode(act.kind, act.body, producer=act.producer, seq=seq, auth=auth)


def token(owner: str, claim: int) -> str:
    """The token of an owner's nth claim."""
    return f"{owner}-token-{claim}"


def damaged(fields: dict[bytes, bytes], damage: str) -> dict[bytes, bytes]:
    """The fields with something wrong about them."""
    match damage:
        case "no seq":
            return fields | {b"seq": b"1.0"}
        case "no producer":
            return {name: value for name, value in fields.items() if name != b"producer"}
        case "not json":
            return fields | {b"body": fields[b"body"][:-1]}
        case "not utf-8":
            return fields | {b"body": b'{"x":"\xff"}'}
        case "unknown field":
            return fields | {b"color": b"red"}
        case "unknown kind":
            return fields | {b"kind": b"run.paint"}
        case "newer":
            return fields | {b"v": b"2", b"color": b"red"}
    return fields


LARGE = "x" * 600
scalars = st.sampled_from([None, True, 0, 1, 1.0, -0.0, 2**64 - 1, "", "a", "\0", LARGE])
documents = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["a", "b/c", "d~e", "", "status", "0"]), inner, max_size=4
        )
    ),
    max_leaves=6,
)
ids = st.sampled_from(["a1", "a2", "a3"])
nodes = st.sampled_from(["plan", "work"])
statuses = st.sampled_from(
    ["running"] * 5 + ["waiting", "completed", "failed", "timed_out", "cancelled", "queued"]
)


@st.composite
def pi_states(draw: st.DrawFn, run: str) -> Body:
    """A state document of the pi dialect, now and then one that breaks its rules."""
    state: Body = {"schema": "pi-workflows.run-state.v1", "runId": run, "status": draw(statuses)}
    state["steps"] = draw(
        st.lists(
            st.fixed_dictionaries(
                {"attemptId": ids, "nodeId": nodes, "outcome": st.sampled_from(["ok", "failed"])},
                optional={"output": documents, "finishedAt": st.just("2026-08-23T00:00:01.000Z")},
            ),
            max_size=3,
        )
    )
    if draw(st.booleans()):
        state |= {"currentNode": draw(nodes), "currentAttemptId": draw(ids)}
    state["more"] = draw(documents)
    if draw(st.integers(0, 19)) == 0:
        state[draw(st.sampled_from(["schema", "runId", "status"]))] = "other"
    return state


@st.composite
def generic_states(draw: st.DrawFn) -> Body:
    """Any document, with a status more often than not."""
    state: Body = draw(st.dictionaries(st.sampled_from(["a", "b", "title"]), documents, max_size=3))
    if draw(st.booleans()):
        state["status"] = draw(statuses)
    return state


def states(run: str) -> st.SearchStrategy[Body]:
    """State documents of the dialect that the run most likely has."""
    return pi_states(run) if run in PI_RUNS else generic_states()


def optional(fields: dict[str, st.SearchStrategy[Any]], **required: Any) -> st.SearchStrategy[Body]:
    """Bodies with some of these fields, and all of the required ones."""
    return st.fixed_dictionaries(required, optional=fields)


endings: list[Body] = [
    {"status": "complete"},
    {"status": "failed", "failure": {"code": "x", "message": "y"}},
    {"status": "failed", "failure": {"code": "x", "message": "z"}},
    {"status": "failed"},
    {"status": "complete", "capture_key": "k"},
]
captures = optional(
    {"capture_key": st.just("k"), "entry_count": st.integers(0, 2)},
    status=st.just("recording"),
) | st.sampled_from(endings)


def patches(draft: st.SearchStrategy[Body]) -> st.SearchStrategy[Body]:
    """Edits, of which some fit: most states have few members, and steps more often than not."""
    names = st.sampled_from(["a", "b", "more", "status"])
    paths = names.map(lambda name: [name]) | st.sampled_from([["steps", 0, "outcome"], ["a", "n"]])
    splices = optional(
        {},
        path=st.just(["steps"]),
        length=st.integers(0, 2),
        start=st.integers(0, 1),
        delete=st.integers(0, 1),
        items=st.lists(documents, max_size=2),
    )
    return optional(
        {
            "event": draft,
            "remove": st.lists(paths, max_size=1),
            "set": st.lists(optional({}, path=paths, value=statuses | documents), max_size=2),
            "splice": st.lists(splices, max_size=1),
        },
        base=st.integers(1, 6),
    )


@st.composite
def session_events(draw: st.DrawFn) -> list[Body]:
    """A batch: mostly one that goes on, so mostly small sequences in a row."""
    first = draw(st.integers(1, 4))
    length = draw(st.integers(1, 4))
    return [
        {
            "seq": seq,
            "at": "t",
            "type": "turn",
            "payload": {"n": draw(st.sampled_from([0] * 7 + [1]))},
        }
        for seq in range(first, first + length)
    ]


def bodies(kind: str, run: str) -> st.SearchStrategy[Body]:
    """Bodies of one kind for one run."""
    state = states(run)
    dialect = "pi_workflows" if run in PI_RUNS else "generic"
    draft = optional(
        {"node_id": nodes, "attempt_id": ids, "payload": st.just({"x": LARGE})},
        type=st.sampled_from(["node_started", "node_finished"]),
    )
    by_kind: dict[str, st.SearchStrategy[Body]] = {
        "run.create": optional(
            {
                "definition": st.sampled_from([{"name": "d"}, {"name": "e"}, {"n": 2**60}]),
                "status": st.just("queued"),
                "state": state,
                "effects": st.just(["run.settled", "run.parked"]),
                "title": st.just("t"),
            },
            dialect=st.just(dialect),
        ),
        "run.snapshot": optional(
            {
                "event": draft,
                "expected_revision": st.integers(1, 9),
                "on_conflict": st.sampled_from(["merge", "merge", "reject"]),
            },
            state=state,
        ),
        "run.patch": patches(draft),
        "run.update": optional(
            {"attempt_id": ids, "node_id": nodes},
            type=st.sampled_from(["note", "note", "progress"]),
            key=st.sampled_from(["k", "l"]),
            data=st.dictionaries(st.just("n"), documents, max_size=1),
        ),
        "run.resume": st.just({}),
        "run.reset": st.just({}),
        "run.interrupt": st.just({}),
        "run.delete": st.just({}),
        "run.annotate": optional(
            {
                "title": st.sampled_from(["t", "u", None]),
                "tags": st.sampled_from([{"a": "1", "b": "2"}, {"b": "2", "a": "1"}, None]),
            }
        ),
        "session.bind": optional({"capture_key": st.just("k")}, session=st.sampled_from("st")),
        "session.entry": optional(
            {"capture_key": st.just("k"), "entry_id": ids},
            entry=st.fixed_dictionaries({}, optional={"id": ids, "text": documents}),
        ),
        "session.events": optional({"capture_key": st.just("k")}, events=session_events()),
        "session.capture": captures,
        "lease.claim": st.builds(claim_body, st.sampled_from(OWNERS), st.sampled_from(CLAIMS)),
        "lease.renew": st.just({"lease_ms": LEASE_MS}),
        "lease.release": st.just({}),
        "effect.settle": optional(
            {"result": documents},
            effect_id=st.sampled_from(effect_ids(run)),
            occurrence=st.integers(1, 2),
            status=st.sampled_from(["applied", "rejected"]),
        ),
    }
    return by_kind[kind]


def claim_body(owner: str, claim: int) -> Body:
    """The body of an owner's nth claim."""
    return {
        "owner_type": "host",
        "owner_id": owner,
        "token_sha256": token_sha256(token(owner, claim)),
        "lease_ms": LEASE_MS,
    }


def effect_ids(run: str) -> list[str]:
    """The ids of the run's first effects."""
    names = [f"{run}\0{kind}\0001" for kind in ("run.settled", "run.parked")]
    return [f"effect-{token_sha256(name)[:40]}" for name in names]


KINDS = (
    *["run.snapshot", "run.patch"] * 4,
    *["run.update"] * 4,
    *["session.entry", "session.events", "lease.claim", "session.bind"] * 2,
    *["run.create", "run.resume", "run.reset", "run.interrupt", "run.annotate"],
    *["session.capture", "lease.renew", "lease.release", "effect.settle"],
)
RARE = ("run.delete",)
PLACES = (
    *["next"] * 12,
    *["gap", "gap", "wide gap", "late", "late", "late", "later"],
    *["same", "again", "far"],
)
DAMAGES = ("",) * 20 + (
    "no seq",
    "no producer",
    "not json",
    "not utf-8",
    "unknown field",
    "unknown kind",
)
authorities = (
    st.none()
    | st.just((LAST_CLAIMANT, 0, None))
    | st.just((LAST_CLAIMANT, 0, None))
    | st.tuples(
        st.sampled_from((*OWNERS, LAST_CLAIMANT)),
        st.sampled_from(CLAIMS),
        st.sampled_from([None, 1, 2, 3]),
    )
)


@st.composite
def acts(draw: st.DrawFn, *, newer: bool = True) -> Act:
    """One act."""
    run = draw(st.sampled_from(RUNS))
    rare = draw(st.integers(0, 39)) == 0
    kind = draw(st.sampled_from(RARE if rare else KINDS))
    damage = "newer" if newer and rare and draw(st.booleans()) else draw(st.sampled_from(DAMAGES))
    return Act(
        run,
        draw(st.sampled_from(PRODUCERS)),
        kind,
        draw(bodies(kind, run)),
        draw(authorities),
        draw(st.sampled_from(PLACES)),
        draw(st.sampled_from([0, 1, 1, 5, LEASE_MS])),
        damage,
    )


@st.composite
def histories(draw: st.DrawFn, *, newer: bool = True, max_size: int = 40) -> list[Act]:
    """Creates for most runs, then whatever comes."""
    created = [
        Act(run, "p", "run.create", draw(bodies("run.create", run)), None, "next", 1, "")
        for run in RUNS
        if draw(st.integers(0, 5))
    ]
    return created + draw(st.lists(acts(newer=newer), min_size=1, max_size=max_size))


def shown(message: Message) -> str:
    """A message as a failing test shows it."""
    return orjson.dumps(
        {name.decode("latin-1"): value.decode("latin-1") for name, value in message.fields.items()}
    ).decode()
