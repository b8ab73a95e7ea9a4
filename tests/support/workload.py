"""The workload that every comparison uses: the same texts, steps, updates and events everywhere.

Nothing in it is drawn by chance, so its digest is a constant (`tests/test_workload.py`), and a
figure measured here can be set beside one that was measured elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, NamedTuple

Document = dict[str, Any]

MIDNIGHT = datetime(2026, 8, 23, tzinfo=UTC)
ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ."
MASK = 0xFFFFFFFF

ROUNDS = 40
BATCHES_PER_ROUND = 5
EVENTS_PER_BATCH = 10
CURRENT = ("currentNode", "currentAttemptId", "currentNodeStartedAt")


class Op(NamedTuple):
    """One operation of a typical run: its name, and what it brings along."""

    name: str
    payload: Any


class Sent(NamedTuple):
    """A command of ours: its kind and its body."""

    kind: str
    body: Document


def iso(ms: int) -> str:
    """The time so many ms after the workload's midnight, as hosts write it."""
    return (MIDNIGHT + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds")[:-6] + "Z"


def text(seed: int, length: int) -> str:
    """Text without a pattern: a linear congruential generator, started from `seed`."""
    state = (seed * 2654435761 + 12345) & MASK
    letters = []
    for _ in range(length):
        state = (state * 1664525 + 1013904223) & MASK
        letters.append(ALPHABET[state >> 26])
    return "".join(letters)


def salt(run_id: str) -> int:
    """By what the texts of one run differ from another's (FNV-1a)."""
    mixed = 2166136261
    for letter in run_id:
        mixed = ((mixed ^ ord(letter)) * 16777619) & MASK
    return mixed % 1_000_000


def workflow(name: str = "bench") -> Document:
    """A definition of ten nodes in a row, and one beside them."""
    nodes: Document = {
        f"node-{place}": {"nodeType": "compute"}
        if place % 2
        else {"nodeType": "agent", "expectedOutput": "JSON with a reply field"}
        for place in range(10)
    }
    nodes["work"] = {"nodeType": "agent", "expectedOutput": "JSON"}
    edges = [{"from": f"node-{place}", "to": f"node-{place + 1}"} for place in range(9)]
    return {"name": name, "startAt": "node-0", "nodes": nodes, "edges": edges}


def base_state(run_id: str, input_chars: int = 600) -> Document:
    """A run that has started and done nothing."""
    return {
        "schema": "pi-workflows.run-state.v1",
        "traceSeq": 0,
        "runId": run_id,
        "workflowName": "bench",
        "startedAt": iso(0),
        "updatedAt": iso(0),
        "status": "running",
        "input": {"task": text(7, input_chars)},
        "outputs": {},
        "results": {},
        "steps": [],
        "updates": [],
    }


def small_state(run_id: str) -> Document:
    """A state of 2 KB without steps."""
    return {
        **base_state(run_id, 1600),
        "currentNode": "work",
        "currentAttemptId": f"{run_id}-a1",
        "currentNodeStartedAt": iso(1),
        "statusDetail": "tick 0",
    }


def step(run_id: str, number: int) -> Document:
    """A finished step of about 1 KB."""
    seed = salt(run_id) * 7
    computed = number % 2 == 1
    return {
        "attemptId": f"{run_id}-a{number}",
        "nodeId": f"node-{number % 10}",
        "nodeType": "compute" if computed else "agent",
        "outcome": "ok",
        "startedAt": iso(number * 1000),
        "finishedAt": iso(number * 1000 + 900),
        "prompt": None if computed else text(seed + 1000 + number, 300),
        "output": {
            "reply": text(seed + 2000 + number, 720 if computed else 420),
            "index": number,
        },
        "conversation": {
            "firstEntryId": f"entry-{number * 5}",
            "lastEntryId": f"entry-{number * 5 + 4}",
        },
    }


def push_step(state: Document, number: int) -> Document:
    """Add a step to a state, in place; returns the draft of the trace event that says so."""
    done = step(state["runId"], number)
    node = done["nodeId"]
    state["steps"].append(done)
    state["outputs"][node] = done["output"]
    state["results"][node] = {
        **{name: done[name] for name in ("attemptId", "nodeId", "nodeType", "outcome")},
        **{name: done[name] for name in ("startedAt", "finishedAt")},
        "durationMs": 900,
        "output": done["output"],
    }
    state["currentNode"] = f"node-{(number + 1) % 10}"
    state["currentAttemptId"] = f"{state['runId']}-a{number + 1}"
    state["currentNodeStartedAt"] = iso(number * 1000 + 950)
    return {
        "scope": "node",
        "type": "node_finished",
        "nodeId": node,
        "attemptId": done["attemptId"],
        "payload": {"outcome": "ok", "output": done["output"], "durationMs": 900},
    }


def update(number: int, seed: int = 0) -> Document:
    """A progress update: 8 keys in turn."""
    return {
        "type": "progress",
        "key": f"worker-{number % 8}",
        "data": {
            "schema": "pi-workflows.progress.v1",
            "status": "running",
            "label": f"Worker {number % 8}",
            "phase": text(seed + 3000 + number, 40),
            "completed": number,
            "total": 100_000,
            "unit": "rows",
            "sourceUpdatedAt": iso(number),
        },
    }


def entry(prefix: str, number: int, seed: int = 0) -> Document:
    """A transcript entry of about 1 KB."""
    said = text(seed + 100_000 + number, 830)
    return {
        "type": "message",
        "id": f"{prefix}entry-{number}",
        "parentId": f"{prefix}entry-{number - 1}" if number > 0 else None,
        "timestamp": iso(number),
        "message": {
            "role": "assistant",
            "content": [{"type": "text", "text": said}],
            "usage": {"input": 1000 + number, "output": 200 + number},
        },
    }


def event(seq: int, attempt_id: str, seed: int = 0) -> Document:
    """A temporal event of a session, about 500 B."""
    return {
        "seq": seq,
        "at": iso(seq),
        "nodeId": "work",
        "attemptId": attempt_id,
        "turnId": f"t{seq // 50}",
        "messageId": f"m{seq // 25}",
        "type": "assistant_event",
        "payload": {
            "type": "text_delta",
            "contentIndex": 0,
            "delta": text(seed + 500_000 + seq, 300),
        },
    }


def binding(run_id: str, session: str = "session-1") -> Document:
    """What binds a session to a run."""
    return {
        "schema": "pi-workflows.session-binding.v1",
        "runId": run_id,
        "piSessionId": session,
        "cwd": "project",
        "boundAt": iso(5),
    }


def capture(entries: int, events: int, status: str = "complete") -> Document:
    """How a recording stands."""
    return {
        "schema": "pi-workflows.session-capture.v1",
        "eventSchema": "pi-workflows.session-event.v1",
        "status": status,
        "eventCount": events,
        "entryCount": entries,
        "lastEventSeq": events,
    }


def typical_ops(run_id: str) -> Iterator[Op]:
    """The 483 operations of one agent run, in order. Its state is one object that grows."""
    state = base_state(run_id)
    seed = salt(run_id) * 11
    state |= dict(zip(CURRENT, ("node-0", f"{run_id}-a0", iso(1)), strict=True))
    yield Op("init", (workflow(), state))
    yield Op("bind", binding(run_id))
    seq = entries = 0
    for number in range(ROUNDS):
        for _ in range(BATCHES_PER_ROUND):
            places = range(seq + 1, seq + EVENTS_PER_BATCH + 1)
            yield Op("events", [event(place, state["currentAttemptId"], seed) for place in places])
            yield Op("entry", entry(f"{run_id}-", entries, seed))
            seq += EVENTS_PER_BATCH
            entries += 1
        yield Op("update", (state["currentNode"], state["currentAttemptId"], update(number, seed)))
        draft = push_step(state, number)
        if number == ROUNDS - 1:
            for name in CURRENT:
                del state[name]
            yield Op("capture", capture(entries, seq))
            ended = iso(number * 1000 + 999)
            state |= {"status": "completed", "finishedAt": ended, "finalOutput": {"ok": True}}
        yield Op("snapshot", (state, draft))


def growth_states(run_id: str, steps: int) -> Iterator[tuple[Document, Document]]:
    """States that gain one step each, with their drafts. One object that grows: use at once."""
    state = base_state(run_id)
    for number in range(steps):
        draft = push_step(state, number)
        yield state, draft


def command(op: Op) -> Sent:
    """An operation as our command, in the pi_workflows dialect."""
    match op:
        case Op("init", (definition, state)):
            named = {"dialect": "pi_workflows", "definition": definition, "state": state}
            return Sent("run.create", named)
        case Op("bind", document):
            return Sent("session.bind", {"session": document["piSessionId"], "binding": document})
        case Op("events", events):
            return Sent("session.events", {"events": events})
        case Op("entry", document):
            return Sent("session.entry", {"entry": document})
        case Op("update", (node, attempt, published)):
            return Sent("run.update", {**published, "node_id": node, "attempt_id": attempt})
        case Op("capture", document):
            return Sent("session.capture", capture_body(document))
        case Op("snapshot", (state, draft)):
            return Sent("run.snapshot", {"state": state, "event": event_draft(draft)})
    raise ValueError(f"the workload has no operation {op.name!r}")


def event_draft(draft: Document) -> Document:
    """A host's draft of a trace event as our snapshot command spells it."""
    ours = {"nodeId": "node_id", "attemptId": "attempt_id"}
    return {ours.get(name, name): value for name, value in draft.items()}


def capture_body(document: Document) -> Document:
    """A host's capture document as the body of our command."""
    body = {
        "status": document["status"],
        "entry_count": document["entryCount"],
        "event_count": document["eventCount"],
        "last_event_seq": document["lastEventSeq"],
    }
    return body | ({"failure": document["failure"]} if "failure" in document else {})


def canonical(value: Any) -> bytes:
    """The bytes that the workload's digest is made of."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest() -> str:
    """SHA-256 over a sample of all that is above."""
    sample = sha256()
    state = base_state("bench-e-0001")
    for number in range(12):
        sample.update(canonical(push_step(state, number)))
        sample.update(canonical(update(number, 77)))
        sample.update(canonical(entry("p-", number, 99)))
        sample.update(canonical(event(number + 1, "a", 1_234_567)))
    for value in (state, small_state("x"), workflow(), binding("r"), capture(1, 2)):
        sample.update(canonical(value))
    return sample.hexdigest()
