"""Whether a run reads back as its agent believes that it said it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from producers.contract.jsontext import sorted_json
from writer.demo.agent import Told, state_digest
from writer.store.reader import StateReader

STATED = frozenset(("run.create", "run_created", "node_finished", "run_completed"))
"""Types of the events by which a state comes."""


def differences(reader: StateReader, told: Told) -> Iterator[str]:
    """Each thing that is not as it was said, in words; none for a run that reads back equal."""
    run = reader.run(told.run)
    if run is None or run["status"] is None:
        yield f"{told.run}: it is not there"
        return
    found = _found(reader, told, run)
    for what, (stored, said) in found.items():
        if sorted_json(stored) != sorted_json(said):
            yield f"{told.run}: {what} differ"


def _found(reader: StateReader, told: Told, run: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What is stored beside what was said, by what it is."""
    trace = _all(reader.trace, told.run, "revision")
    revisions = [event["revision"] for event in trace]
    states = [
        state_digest(reader.state(told.run, event["revision"]) or {})
        for event in trace
        if event["type"] in STATED
    ]
    updates = {f"{row['type']} {row['key']}": row["data"] for row in reader.updates(told.run)}
    entries = [row["entry"] for row in _all(reader.transcript, told.run, "seq")]
    events = [row["event"] for row in _all(reader.session_events, told.run, "seq")]
    ends = {name: run["cursor"][name] for name in ("applied", "duplicates", "rejected")}
    captures = [segment["status"] for segment in run["segments"]]
    return {
        "status": (run["status"], "completed"),
        "outcomes": (ends, {name: told.ends[name] for name in ends}),
        "revisions": (revisions, list(range(1, run["revision"] + 1))),
        "states": (states, told.states),
        "updates": (updates, told.updates),
        "entries": (entries, told.entries),
        "events": (events, told.events),
        "captures": (captures, ["complete"]),
    }


def _all(read: Any, run: str, key: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    while page := read(run, after=rows[-1][key] if rows else 0):
        rows += page
    return rows
