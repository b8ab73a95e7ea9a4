"""`backup` and `restore`: copies made under load, proved, put back, and caught up from."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from threading import Event, Thread
from typing import Any

import apsw
import pytest

from tests.operations.site import Site
from tests.operations.test_replay import some_history
from tests.support.console import TOP, environment
from tests.support.wait import poll
from writer.errors import FileBehind, FileCorrupt, FileTooNew, Misconfigured, PartitionTaken, Usage
from writer.store.invariants import standing, violations
from writer.store.reader import StateReader


def manifest(folder: Path) -> Any:
    return json.loads((folder / "manifest.json").read_text())


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_backup_is_whole_and_says_what_it_holds(running: Site, tmp_path: Path) -> None:
    some_history(running)
    told = running.cli("backup", tmp_path / "copy", "--json").ok().json()
    assert told == manifest(tmp_path / "copy")
    assert names(tmp_path / "copy") == ["manifest.json", "p00.sqlite"]
    (file,) = told["files"]
    path = tmp_path / "copy" / "p00.sqlite"
    assert file["sha256"] == sha256(path.read_bytes()).hexdigest()
    assert file["bytes"] == path.stat().st_size
    assert (file["messages"], file["streams"]) == (54, 5)
    assert (told["partitions"], told["format"]) == (1, 1)
    assert file["digest"] == running.cli("digest", "--json").ok().json()["digest"]
    assert running.digest(tmp_path / "copy") == running.digest()
    assert "is complete" in running.cli("backup", tmp_path / "again").ok().out


def test_a_copy_made_under_load_is_of_one_moment(running: Site, tmp_path: Path) -> None:
    some_history(running)
    ended = Event()

    def go_on() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            kind = "run.create" if number <= 5 else "run.snapshot"
            # Another text each time, so that a few hundred of them make a file of some size.
            body = {} if number <= 5 else {"state": {"text": f"{number} " * 4_000}}
            running.send(f"busy-{number % 5}", kind, body)

    def commit() -> int:
        return int(running.rows("SELECT commit_seq FROM file")[0]["commit_seq"])

    thread = Thread(target=go_on)
    thread.start()
    try:
        poll(lambda: (running.data / "p00.sqlite").stat().st_size > 2_000_000, message="some size")
        commits: list[int] = []
        for turn in range(4):
            # There is something new for each of them, however slow the writer is.
            poll(lambda: commit() > max(commits, default=0), message="a commit")
            (file,) = running.cli("backup", tmp_path / str(turn), "--json").ok().json()["files"]
            commits.append(file["commit_seq"])
    finally:
        ended.set()
        thread.join()
    assert commits == sorted(set(commits))
    for turn in range(4):
        with standing(tmp_path / str(turn) / "p00.sqlite") as copy:
            assert list(violations(copy)) == []


def test_a_backup_is_not_written_into_a_folder_in_use(running: Site, tmp_path: Path) -> None:
    running.done("run-1", "run.create")
    assert running.cli("backup", running.data).code == Usage.exit_code
    running.cli("backup", tmp_path / "copy").ok()
    assert running.cli("backup", tmp_path / "copy").code == Usage.exit_code


def test_what_breaks_a_rule_is_not_called_a_backup(site: Site, tmp_path: Path) -> None:
    site.start()
    some_history(site)
    site.stop()
    site.edit("UPDATE cursors SET message_id = '5-0' WHERE run_id = 'run-1'")
    told = site.cli("backup", tmp_path / "copy")
    assert told.code == FileCorrupt.exit_code
    assert "A cursor is behind what its stream's messages wrote" in told.err
    assert names(tmp_path / "copy") == []


def test_a_damaged_file_is_not_called_a_backup(site: Site, tmp_path: Path) -> None:
    site.start()
    some_history(site)
    site.stop()
    site.edit("PRAGMA wal_checkpoint(TRUNCATE)")
    path = site.data / "p00.sqlite"
    content = bytearray(path.read_bytes())
    content[5 * 8192 :] = b"\xff" * (len(content) - 5 * 8192)
    path.write_bytes(content)
    assert site.cli("backup", tmp_path / "copy").code == FileCorrupt.exit_code
    assert not (tmp_path / "copy" / "manifest.json").exists()


def test_a_restored_older_file_catches_up_by_itself(site: Site, tmp_path: Path) -> None:
    """From the archive what Redis has forgotten, then from Redis; readers start over."""
    site.start()
    some_history(site)
    site.cli("backup", tmp_path / "copy").ok()
    for number in range(20):
        site.send("run-1", "run.annotate", {"title": f"after {number}"})
    site.done("run-new", "run.create")
    with StateReader(site.data) as reader:
        token = reader.changes(limit=10_000).token
        assert reader.changes(token).reset is False
        live = site.digest()
        site.stop()
        site.send("run-new", "run.annotate", {"title": "sent meanwhile"})

        site.cli("restore", tmp_path / "copy", "--force").ok()
        assert site.digest() != live
        site.start()
        site.settle()
        assert {**site.digest(), "run-new": ""} == {**live, "run-new": ""}
        assert site.run("run-new")["title"] == "sent meanwhile"
        changed = reader.changes(token, limit=10_000)
        assert changed.reset is True
        assert {event["run_id"] for event in changed.events} >= {"run-1", "run-new"}
    assert site.log.of("older_copy")
    site.cli("verify").ok()


def test_readers_start_over_even_where_redis_was_lost_too(site: Site, tmp_path: Path) -> None:
    """Then nothing tells the daemon that the file is older: the restored file tells the readers."""
    site.start()
    some_history(site)
    site.cli("backup", tmp_path / "copy").ok()
    site.done("run-1", "run.annotate", {"title": "after it"})
    with StateReader(site.data) as reader:
        token = reader.changes(limit=10_000).token
        live = site.digest()
        site.stop()
        site.client.flushall()
        site.cli("restore", tmp_path / "copy", "--force").ok()
        site.start()
        assert site.digest() == live
        assert reader.changes(token, limit=10_000).reset is True


def test_a_lost_folder_is_restored_into_a_new_one(site: Site, tmp_path: Path) -> None:
    site.start()
    some_history(site)
    site.cli("backup", tmp_path / "copy").ok()
    live = site.digest()
    site.stop()
    for path in site.data.glob("p00.sqlite*"):
        path.unlink()
    (told,) = site.cli("restore", tmp_path / "copy", "--json").ok().lines()
    assert (told["name"], told["replaced"]) == ("p00.sqlite", None)
    assert site.digest() == live
    assert not list(site.data.glob("*.restoring*"))
    site.start()
    site.cli("verify").ok()


def test_without_its_archive_an_older_file_stops(site: Site, tmp_path: Path) -> None:
    site.start(archive=False)
    some_history(site)
    site.cli("backup", tmp_path / "copy").ok()
    site.done("run-1", "run.annotate", {"title": "lost with the old file"})
    site.stop()
    site.cli("restore", tmp_path / "copy", "--force").ok()
    site.start(archive=False)
    with pytest.raises(FileBehind, match="older copy"):
        site.stop()


def test_a_restore_is_refused_while_a_daemon_runs(running: Site, tmp_path: Path) -> None:
    running.done("run-1", "run.create")
    running.cli("backup", tmp_path / "copy").ok()
    before = (running.data / "p00.sqlite").read_bytes()
    told = running.cli("restore", tmp_path / "copy", "--force")
    assert told.code == PartitionTaken.exit_code
    assert (running.data / "p00.sqlite").read_bytes() == before


def test_a_lock_counts_even_where_no_daemon_says_that_it_runs(site: Site, tmp_path: Path) -> None:
    site.start()
    site.done("run-1", "run.create")
    site.cli("backup", tmp_path / "copy").ok()
    for path in site.data.glob("daemon-*.json"):
        path.unlink()
    assert site.cli("restore", tmp_path / "copy", "--force").code == PartitionTaken.exit_code


def test_nothing_is_replaced_unasked(site: Site, tmp_path: Path) -> None:
    site.start()
    site.done("run-1", "run.create")
    site.cli("backup", tmp_path / "copy").ok()
    site.stop()
    before = (site.data / "p00.sqlite").read_bytes()
    told = site.cli("restore", tmp_path / "copy")
    assert told.code == Usage.exit_code
    assert "--force" in told.err
    assert (site.data / "p00.sqlite").read_bytes() == before


def test_what_was_there_is_kept_aside_with_its_wal(site: Site, tmp_path: Path) -> None:
    """A writer that was killed leaves a WAL: it belongs to the old file, never to the new one."""
    site.start()
    site.done("run-1", "run.create")
    site.cli("backup", tmp_path / "copy").ok()
    site.stop()
    killed = subprocess.Popen(
        [sys.executable, "-c", "from writer.cli import main; main()", "daemon", "--data",
         site.data, "--redis", site.server.url],
        cwd=TOP, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    site.send("run-1", "run.annotate", {"title": "in the WAL"})
    try:
        poll(lambda: site.run("run-1")["title"] == "in the WAL", message="the commit")
    finally:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    assert (site.data / "p00.sqlite-wal").stat().st_size > 0

    (told,) = site.cli("restore", tmp_path / "copy", "--force", "--json").ok().lines()
    aside = site.data / told["replaced"]
    assert site.run("run-1")["title"] is None
    assert aside.with_name(f"{aside.name}-wal").stat().st_size > 0
    connection = apsw.Connection(str(aside))
    assert connection.execute("SELECT title FROM runs").fetchall() == [("in the WAL",)]
    connection.close()
    site.start()
    assert site.run("run-1")["title"] == "in the WAL"


def test_an_earlier_try_leaves_nothing_behind(site: Site, tmp_path: Path) -> None:
    site.start()
    some_history(site)
    site.cli("backup", tmp_path / "copy").ok()
    live = site.digest()
    site.stop()
    (site.data / "p00.sqlite.restoring").write_bytes(b"half a file")
    # A WAL of that name would be taken for the new file's.
    (site.data / "p00.sqlite.restoring-wal").write_bytes(os.urandom(8192))
    # It died between moving the old file away and its WAL.
    (site.data / "p00.sqlite").unlink()
    (site.data / "p00.sqlite-wal").write_bytes(os.urandom(8192))
    site.cli("restore", tmp_path / "copy", "--force").ok()
    assert site.digest() == live
    assert not list(site.data.glob("*.restoring*"))


def test_one_partition_alone_is_restored(
    site: Site, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    two = Site(site.data, site.server, capfd, partitions=2)
    two.start()
    for number in range(6):
        two.send(f"run-{number}", "run.create")
    two.settle()
    two.cli("backup", tmp_path / "copy").ok()
    live = two.digest()
    two.stop()
    (two.data / "p01.sqlite").write_bytes(b"ruined")
    other = (two.data / "p00.sqlite").stat()
    two.cli("restore", tmp_path / "copy", "--partition", "1", "--force").ok()
    assert (two.data / "p00.sqlite").stat().st_mtime_ns == other.st_mtime_ns
    assert two.digest() == live
    assert two.cli("restore", tmp_path / "copy", "--partition", "7", "--force").code == 3
    two.start()
    two.cli("verify").ok()
    two.close()


def test_a_changed_copy_is_refused(site: Site, tmp_path: Path) -> None:
    site.start()
    site.done("run-1", "run.create")
    site.cli("backup", tmp_path / "copy").ok()
    site.stop()
    path = tmp_path / "copy" / "p00.sqlite"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    told = site.cli("restore", tmp_path / "copy", "--force")
    assert told.code == FileCorrupt.exit_code
    assert "SHA-256 differs" in told.err
    path.unlink()
    assert site.cli("restore", tmp_path / "copy", "--force").code == FileCorrupt.exit_code
    (tmp_path / "copy" / "manifest.json").write_text("{}")
    assert site.cli("restore", tmp_path / "copy", "--force").code == Usage.exit_code
    assert site.cli("restore", tmp_path, "--force").code == Usage.exit_code


def test_a_copy_of_a_newer_schema_is_refused(site: Site, tmp_path: Path) -> None:
    site.start()
    site.done("run-1", "run.create")
    site.cli("backup", tmp_path / "copy").ok()
    site.stop()
    path = tmp_path / "copy" / "p00.sqlite"
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", 99)
    connection.close()
    told = manifest(tmp_path / "copy")
    told["files"][0]["sha256"] = sha256(path.read_bytes()).hexdigest()
    (tmp_path / "copy" / "manifest.json").write_text(json.dumps(told))
    assert site.cli("restore", tmp_path / "copy", "--force").code == FileTooNew.exit_code


def test_a_folder_of_another_number_of_partitions_is_refused(
    site: Site, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    two = Site(tmp_path / "two", site.server, capfd, partitions=2)
    two.start()
    two.done("run-1", "run.create")
    two.cli("backup", tmp_path / "copy").ok()
    two.close()
    site.client.flushall()
    site.start()
    site.done("run-1", "run.create")
    site.stop()
    told = site.cli("restore", tmp_path / "copy", "--force")
    assert told.code == Misconfigured.exit_code


def test_without_a_file_there_is_nothing_to_back_up(site: Site, tmp_path: Path) -> None:
    assert site.cli("backup", tmp_path / "copy").code == 3
    site.data.mkdir()
    assert site.cli("backup", tmp_path / "copy").code == 3
    assert not (tmp_path / "copy").exists()
