"""`ingest`: a transcript becomes a run, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.console import RunningDaemon, statewriter
from writer.cli.exits import Refused
from writer.errors import Usage
from writer.store.reader import StateReader

pytestmark = pytest.mark.server

LINES = [
    '{"type": "user", "text": "hi"}',
    '{"role": "assistant", "content": [{"type": "text", "text": "a\\u0000b"}], "n": 1.0}',
    "",
    "not json",
    "[1]",
    '{"n": NaN}',
    '{"deep": {"deeper": [1, 2, {"x": null}]}, "id": "of its own"}',
]
TORN = '{"torn": '


@pytest.fixture
def transcript(tmp_path: Path) -> Path:
    """Seven lines and a torn one, of which three are entries."""
    file = tmp_path / "My session.v1.jsonl"
    file.write_text("\n".join([*LINES, TORN]))
    return file


def test_a_transcript_becomes_a_run_with_an_entry_a_line(
    shared: RunningDaemon, transcript: Path
) -> None:
    ran = statewriter("ingest", transcript, data=shared.data).ok()
    told = dict(each.rsplit(maxsplit=1) for each in ran.out.splitlines())
    assert told["run"] == "My-session"
    assert (told["lines"], told["sent"], told["skipped"], told["added"]) == ("7", "3", "4", "3")
    reported = [each.split(":")[0] for each in ran.err.splitlines() if "skipped" in each]
    assert reported == ["line 4", "line 5", "line 6", "line 8"]
    assert "torn" in ran.err
    with StateReader(shared.data) as reader:
        entries = reader.transcript("My-session")
    assert [each["entry_id"] for each in entries] == ["line-1", "line-2", "line-7"]
    assert entries[1]["entry"]["content"][0]["text"] == "a\0b"
    assert str(entries[1]["entry"]["n"]) == "1.0"


def test_again_adds_nothing_but_what_the_file_has_gained(
    shared: RunningDaemon, transcript: Path
) -> None:
    def ingest(*more: str) -> dict[str, int]:
        ran = statewriter("ingest", transcript, "--run", "twice", "--json", *more, data=shared.data)
        found: dict[str, int] = ran.ok().json()
        return found

    assert ingest()["added"] == 3
    with StateReader(shared.data) as reader:
        before = reader.digest()["runs"]["twice"]
    again = ingest()
    assert (again["added"], again["already_there"], again["rejected"]) == (0, 3, 0)
    with StateReader(shared.data) as reader:
        run = reader.run("twice")
        assert run is not None
        assert run["revision"] == 2
        assert [each["gaps"] for each in run["producers"]] == [[], []]
        # The last sequences of the second invocation's producer are all that is new.
        assert reader.digest()["runs"]["twice"] != before
        assert reader.session_counts("twice")["entryCount"] == 3
    transcript.write_text("\n".join([*LINES, TORN + "1}", '{"last": true}']) + "\n")
    grown = ingest("--complete", "--title", "Twice")
    assert (grown["added"], grown["already_there"], grown["skipped"]) == (2, 3, 3)
    done = ingest("--complete", "--title", "Twice")
    assert (done["added"], done["already_there"], done["rejected"]) == (0, 5, 0)
    with StateReader(shared.data) as reader:
        run = reader.run("twice")
        assert run is not None
        assert (run["title"], run["segments"][0]["status"]) == ("Twice", "complete")


def test_a_changed_line_is_refused_and_the_stored_one_stays(
    shared: RunningDaemon, tmp_path: Path
) -> None:
    file = tmp_path / "changed.jsonl"
    file.write_text('{"n": 1}\n{"n": 2}\n')
    statewriter("ingest", file, data=shared.data).ok()
    file.write_text('{"n": 1}\n{"n": 3}\n')
    ran = statewriter("ingest", file, data=shared.data)
    assert ran.code == Refused.exit_code
    assert "1 session.entry: entry_conflict" in ran.err
    with StateReader(shared.data) as reader:
        assert [each["entry"] for each in reader.transcript("changed")] == [{"n": 1}, {"n": 2}]


def test_two_files_under_one_run(shared: RunningDaemon, tmp_path: Path) -> None:
    for key in ("plan", "review"):
        file = tmp_path / f"{key}.jsonl"
        file.write_text(f'{{"from": "{key}"}}\n')
        statewriter("ingest", file, "--run", "both", "--capture-key", key, data=shared.data).ok()
    with StateReader(shared.data) as reader:
        assert reader.list_session_segments("both") == ["plan", "review"]
    shown = statewriter("transcript", "both", "--capture-key", "plan", "--json", data=shared.data)
    assert shown.ok().lines()[0]["entry"] == {"from": "plan"}
    other = statewriter("transcript", "both", data=shared.data)
    assert other.code == 3
    assert "--capture-key plan" in other.err


def test_from_stdin_without_waiting(shared: RunningDaemon) -> None:
    ran = statewriter("ingest", "-", data=shared.data, stdin='{"a": 1}\n')
    assert ran.code == Usage.exit_code
    assert "--run" in ran.err
    told = statewriter(
        "ingest", "-", "--run", "piped", "--no-wait", "--json", data=shared.data, stdin='{"a": 1}\n'
    )
    assert told.ok().json() == {
        "run": "piped",
        "lines": 1,
        "sent": 1,
        "skipped": 0,
        "skipped_lines": [],
    }


def test_a_run_id_that_is_none(shared: RunningDaemon) -> None:
    ran = statewriter("ingest", "-", "--run", "a b", data=shared.data, stdin='{"a": 1}\n')
    assert ran.code == Usage.exit_code
    assert "run_id_invalid" in ran.err
