"""Following transcripts: growth, torn lines, rotation, truncation, restarts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from producers import Producer
from producers.integrations.transcripts import KIND, Follower
from tests.support.console import PROGRAM, environment, statewriter
from tests.support.servers import RealServer
from tests.support.wait import poll
from writer.store.reader import StateReader


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "sessions"
    made.mkdir()
    return made


def write(path: Path, *lines: Any) -> None:
    """Append documents, a line each."""
    with path.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def lines_of(reader: StateReader, title: str) -> list[list[Any]]:
    """Entries of the runs of a file, the longest run last."""
    runs = [run for run in reader.list_runs(workflow=KIND).runs if run["title"] == title]
    found = [[row["entry"] for row in reader.transcript(run["run_id"])] for run in runs]
    return sorted(found, key=len)


def test_it_follows_files_as_they_grow_and_waits_for_torn_lines(
    folder: Path, producer: Producer, reader: StateReader
) -> None:
    follower = Follower(producer, folder)
    write(folder / "a.jsonl", {"n": 1})
    (folder / "deep").mkdir()
    write(folder / "deep" / "b.jsonl", {"n": 1})
    (folder / "other.txt").write_text("no transcript\n")
    assert follower.look().lines == 2
    with (folder / "a.jsonl").open("a") as file:
        file.write('{"n": 2}\n{"n"')
        file.flush()
        assert follower.look().lines == 1
        file.write(": 3}\n\n[1]\nno json\n" + '{"n": NaN}\n')
    assert follower.look() == (4, 2)
    assert follower.look().lines == 0
    follower.close()
    poll(lambda: [len(run) for run in lines_of(reader, "a.jsonl")] == [6])
    assert lines_of(reader, "a.jsonl")[0] == [
        {"n": 1},
        {"n": 2},
        {"n": 3},
        {"value": [1]},
        {"unreadable": "no json", "bytes": 7},
        {"unreadable": '{"n": NaN}', "bytes": 10},
    ]
    # Another run: it may be applied later.
    poll(lambda: lines_of(reader, "deep/b.jsonl") == [[{"n": 1}]])


def test_a_restart_repeats_nothing_and_misses_nothing_with_or_without_positions(
    folder: Path, redis_server: RealServer, reader: StateReader, data: Path
) -> None:
    path = folder / "a.jsonl"
    sent = []
    for start in range(0, 30, 10):
        write(path, *({"n": n} for n in range(start, start + 10)))
        with Producer(redis_server.url) as producer:
            follower = Follower(producer, folder)
            sent.append(follower.look().lines)
            if start == 0:
                assert follower.save(60)
            follower.close()
    # The third process found the position of the first one, the second was "killed" before saving.
    assert sent == [10, 10, 20]
    poll(lambda: [len(run) for run in lines_of(reader, "a.jsonl")] == [30])
    for positions in data.glob("transcripts-*.json"):
        positions.unlink()
    with Producer(redis_server.url) as producer:
        follower = Follower(producer, folder)
        assert follower.look().lines == 30
        follower.close()
        producer.wait_applied(producer.create_run("w", run_id="last").resume(), 60)
    assert lines_of(reader, "a.jsonl") == [[{"n": n} for n in range(30)]]
    assert reader.rejections().rejections == []


def test_a_rotated_file_is_read_to_its_end_and_the_new_one_is_another_run(
    folder: Path, producer: Producer, reader: StateReader
) -> None:
    follower = Follower(producer, folder)
    path = folder / "a.jsonl"
    write(path, {"old": 1})
    follower.look()
    write(path, {"old": 2})
    path.rename(folder / "a.jsonl.1")
    write(path, {"new": 1})
    assert follower.look().lines == 2
    follower.close()
    poll(lambda: sum(map(len, lines_of(reader, "a.jsonl"))) == 3)
    assert lines_of(reader, "a.jsonl") == [[{"new": 1}], [{"old": 1}, {"old": 2}]]


def test_a_truncated_file_begins_anew(
    folder: Path, producer: Producer, reader: StateReader
) -> None:
    follower = Follower(producer, folder)
    path = folder / "a.jsonl"
    write(path, {"old": 1}, {"old": 2})
    follower.look()
    os.truncate(path, 0)
    write(path, {"new": 1}, {"new": 2}, {"new": 3})
    assert follower.look().lines == 3
    # The same head with another tail: what is equal is stored once.
    os.truncate(path, 0)
    write(path, {"new": 1})
    follower.look()
    write(path, {"other": 2})
    follower.look()
    follower.close()
    poll(lambda: sum(map(len, lines_of(reader, "a.jsonl"))) == 6)
    assert lines_of(reader, "a.jsonl") == [
        [{"old": 1}, {"old": 2}],
        [{"new": 1}, {"new": 2}, {"new": 3}, {"other": 2}],
    ]


def await_lines(reader: StateReader, title: str, wanted: int) -> None:
    poll(lambda: [len(run) for run in lines_of(reader, title)] == [wanted])


def test_the_command_follows_until_it_is_told_to_end_and_goes_on_after_a_kill(
    folder: Path, redis_server: RealServer, reader: StateReader, data: Path
) -> None:
    path = folder / "a.jsonl"
    command = [
        *PROGRAM,
        *("tail-transcripts", str(folder), "--interval", "0.02"),
        *("--data", str(data), "--redis", redis_server.url),
    ]
    for start, how, code in (
        (0, signal.SIGKILL, -signal.SIGKILL),
        (50, signal.SIGINT, 0),
        (100, signal.SIGTERM, 0),
    ):
        with subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL) as follower:
            try:
                for n in range(start, start + 50):
                    write(path, {"n": n})
                await_lines(reader, path.name, start + 50)
                follower.send_signal(how)
                assert follower.wait(60) == code
            finally:
                follower.kill()
    write(path, {"n": 150})
    done = statewriter(
        *("tail-transcripts", folder, "--once", "--json", "--redis", redis_server.url), data=data
    ).ok()
    assert done.json()["unreadable"] == 0
    poll(lambda: lines_of(reader, path.name) == [[{"n": n} for n in range(151)]])
    assert reader.rejections().rejections == []


def test_the_spool_is_shown_and_sent_by_commands(
    redis_server: RealServer, reader: StateReader, data: Path
) -> None:
    left = Producer("unix:///nonexistent/s", data=data)
    run = left.create_run("w", run_id="r")
    for n in range(9):
        run.snapshot({"n": n})
    left.close()
    (told,) = statewriter("spool", "list", "--json", data=data).ok().lines()
    assert (told["producer"], told["alive"]) == (left.producer_id, False)
    assert (told["runs"], told["commands"], told["torn_bytes"]) == (1, 10, 0)
    assert left.producer_id in statewriter("spool", "list", data=data).ok().out
    gone = ("--redis", "unix:///nonexistent/s", "--timeout", "0.3")
    assert statewriter("spool", "drain", *gone, data=data).code == 5
    done = statewriter("spool", "drain", "--json", "--redis", redis_server.url, data=data).ok()
    assert done.json() == {"sent": 10, "left": 0, "error": None}
    poll(lambda: reader.state("r") == {"n": 8})
    assert statewriter("spool", "list", "--json", data=data).ok().lines() == []
