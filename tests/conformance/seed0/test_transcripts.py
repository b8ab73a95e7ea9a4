"""Recorded transcripts of real sessions: bound, appended in batches, captured, read back equal.

They are data that lies beside the repository, not in it; without them these tests are skipped.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.workload import base_state, binding, capture, capture_body
from tests.support.world import DUPLICATE, StoredWorld

TOP = Path(__file__).parents[3]
CASES = TOP.parent / "shared" / "cases"
RUN = "run-1"
BATCH = 5

FAILURE = {"code": "aborted", "message": "the session was aborted"}


def recorded(name: str) -> Any:
    path = CASES / name
    if not path.exists():
        pytest.skip(f"no recorded transcript {name} beside the repository")
    return orjson.loads(path.read_bytes())


@pytest.mark.parametrize(
    "name, status",
    [("pi-session-normal.json", "complete"), ("pi-session-aborted.json", "failed")],
)
def test_a_recorded_session_comes_back_equal(stored: StoredWorld, name: str, status: str) -> None:
    session = recorded(name)
    entries = [kept["entry"] for kept in session["entries"]]
    events = session["events"]
    stored.create(RUN)
    stored.must(RUN, "session.bind", {"session": "session-1", "binding": binding(RUN)})
    for entry in entries:
        stored.send(RUN, "session.entry", {"entry": entry})
    for first in range(0, len(events), BATCH):
        stored.send(RUN, "session.events", {"events": events[first : first + BATCH]})
    assert {outcome.kind for outcome in stored.settle()} == {"applied"}
    document = capture(len(entries), len(events), status)
    if status == "failed":
        document["failure"] = FAILURE
    stored.must(RUN, "session.capture", capture_body(document))
    stored.must(RUN, "run.snapshot", {"state": base_state(RUN) | {"status": "completed"}})

    run = stored.reader.read_run(RUN)
    assert run is not None
    assert [orjson.dumps(kept["entry"]) for kept in run["sessionEntries"]] == [
        orjson.dumps(entry) for entry in entries
    ]
    assert orjson.dumps(run["sessionEvents"]) == orjson.dumps(events)
    assert run["sessionCapture"] == document
    diagnostics = [FAILURE["message"]] if status == "failed" else []
    assert run["sessionIntegrity"] == {"status": status, "diagnostics": diagnostics}

    again = {"events": events[:BATCH]}
    assert stored.apply(RUN, "session.events", again, producer="forgetful") == DUPLICATE
