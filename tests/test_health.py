"""What a daemon says of itself: believed while it lives, and only while it goes on saying it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import orjson

from writer.health import SILENT_MS_MAX, Health, last_end, read_health


def told(data: Path) -> Path:
    """The file of this process, which says that it runs partition 0."""
    health = Health(data, "redis://:secret@127.0.0.1:6379/0")
    health.tell(0, "running")
    return data / f"daemon-{os.getpid()}.json"


def test_a_living_daemon_is_believed(tmp_path: Path) -> None:
    path = told(tmp_path)
    found = read_health(tmp_path)
    assert found is not None
    assert found["pids"] == [os.getpid()]
    assert found["partitions"]["0"]["state"] == "running"
    assert found["redis"] == "redis://127.0.0.1:6379/0"
    assert b"secret" not in path.read_bytes()


def test_a_dead_one_is_not(tmp_path: Path) -> None:
    path = told(tmp_path)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    path.write_bytes(orjson.dumps({**orjson.loads(path.read_bytes()), "pid": ended.pid}))
    assert read_health(tmp_path) is None


def test_nor_is_one_whose_number_another_program_got(tmp_path: Path) -> None:
    """As after a restart of the machine."""
    path = told(tmp_path)
    path.write_bytes(orjson.dumps({**orjson.loads(path.read_bytes()), "born": "1"}))
    assert read_health(tmp_path) is None
    # And the next daemon tidies up.
    Health(tmp_path, "redis://127.0.0.1")
    assert not path.exists()


def test_one_that_has_been_silent_stands_still(tmp_path: Path) -> None:
    path = told(tmp_path)
    long_ago = time.time() - SILENT_MS_MAX / 1000 - 1
    os.utime(path, (long_ago, long_ago))
    found = read_health(tmp_path)
    assert found is not None
    said = found["partitions"]["0"]
    assert said["state"] == "silent"
    heard = re.match(rf"process {os.getpid()} was last heard of (\d+) s ago", said["cause"])
    assert heard is not None
    assert 7 <= int(heard[1]) < 60


def test_a_beat_is_enough_to_be_heard(tmp_path: Path) -> None:
    health = Health(tmp_path, "redis://127.0.0.1")
    health.tell(0, "running")
    (path,) = tmp_path.glob("daemon-*.json")
    os.utime(path, (1, 1))
    health.beat()
    found = read_health(tmp_path)
    assert found is not None
    assert found["partitions"]["0"]["state"] == "running"


def test_what_it_waits_for_before_it_has_any_partition(tmp_path: Path) -> None:
    health = Health(tmp_path, "redis://127.0.0.1")
    health.waits_for("redis: Redis can not be reached")
    found = read_health(tmp_path)
    assert found is not None
    assert (found["waits"], found["partitions"]) == ("redis: Redis can not be reached", {})
    health.waits_for("")
    health.tell(0, "starting")
    again = read_health(tmp_path)
    assert again is not None
    assert again["waits"] == ""
    health.end()
    assert read_health(tmp_path) is None


def test_one_that_could_not_go_on_leaves_word_until_the_next_begins(tmp_path: Path) -> None:
    path = told(tmp_path)
    Health(tmp_path, "redis://127.0.0.1").end("p00.sqlite is damaged", "restore a backup")
    assert not path.exists()
    assert read_health(tmp_path) is None
    assert last_end(tmp_path) == "p00.sqlite is damaged"
    Health(tmp_path, "redis://127.0.0.1")
    assert last_end(tmp_path) == ""


def test_a_folder_that_can_not_be_written_is_no_error(tmp_path: Path) -> None:
    """The daemon waits for it, and its log says so."""
    health = Health(tmp_path / "nowhere", "redis://127.0.0.1")
    health.waits_for("the disk is full")
    health.tell(0, "waiting", "the disk is full")
    health.beat()
    health.end()
