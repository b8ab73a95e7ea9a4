"""`verify`: a folder judged by its own rules and by its archive, at rest and at work."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread

import pytest

from tests.operations.site import Site
from tests.operations.test_replay import damaged, some_history
from tests.support.wait import poll
from writer.cli.exits import NotFound, Unsound
from writer.errors import FileBehind
from writer.streams.archive import archive_folder, segments


def test_a_sound_folder_passes(running: Site) -> None:
    some_history(running)
    told = running.cli("verify").ok()
    assert "every rule holds; equal to its archive" in told.out
    assert running.cli("verify", "--no-rebuild").ok().out.count("not asked for") == 1
    (verdict,) = running.cli("verify", "--json").ok().lines()
    assert (verdict["sound"], verdict["compared"], verdict["messages"]) == (True, True, 54)
    running.stop()
    running.cli("verify").ok()


def test_a_folder_that_is_being_written_passes(running: Site) -> None:
    some_history(running)
    ended = Event()

    def go_on() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            kind = "run.create" if number <= 5 else "run.annotate"
            running.send(f"busy-{number % 5}", kind, {"title": f"{number}"})

    thread = Thread(target=go_on)
    thread.start()
    try:
        counts: list[int] = []
        for _ in range(4):
            # There is something new for each of them, however slow the writer is.
            poll(lambda: settled(running) > max(counts, default=0), message="a message")
            counts.append(running.cli("verify", "--json").ok().lines()[0]["messages"])
    finally:
        ended.set()
        thread.join()
    assert counts == sorted(set(counts))


def settled(site: Site) -> int:
    """How many messages have ended."""
    (row,) = site.rows("SELECT sum(applied + duplicates + rejected) AS n FROM cursors")
    return int(row["n"])


CHANGES = {
    "runs": "UPDATE runs SET title = 'forged' WHERE run_id = 'run-1'",
    "leases": "UPDATE leases SET owner_id = 'forged'",
    "events": "UPDATE events SET node_id = 'forged' WHERE revision = 2 AND segment = 0",
    "segments": "UPDATE segments SET session = 'forged'",
    "session_entries": "UPDATE session_entries SET entry = '{}'",
    "rejections": "UPDATE rejections SET detail = 'forged' WHERE rejection_seq = 1",
    "gaps": "DELETE FROM gaps",
    "tombstones": "UPDATE tombstones SET reason = 'forged'",
    "cursors": "UPDATE cursors SET duplicates = 9 WHERE run_id = 'run-1'",
}
"""Lies that break no rule: only the archive knows."""


def test_a_lie_is_found_and_its_row_is_named(site: Site) -> None:
    site.start()
    some_history(site)
    site.stop()
    path = site.data / "p00.sqlite"
    honest = path.read_bytes()
    for table, lie in CHANGES.items():
        path.write_bytes(honest)
        site.edit(lie)
        told = site.cli("verify", "--json")
        (verdict,) = told.lines()
        assert told.code == Unsound.exit_code, table
        assert verdict["violations"] == [], table
        assert [each["table"] for each in verdict["differences"]][:1] == [table]
        first = verdict["differences"][0]
        assert first["here"] != first["there"]
        assert first["run"] in told.out
    path.write_bytes(honest)
    site.edit(CHANGES["runs"])
    shown = site.cli("verify").out
    assert "run run-1 differs first in runs, row 1" in shown
    assert "forged" in shown


def test_a_run_that_the_archive_does_not_have_is_found(site: Site) -> None:
    site.start()
    some_history(site)
    site.stop()
    site.edit("INSERT INTO cursors VALUES (99, 'forged', 1, '9-0', 0, 1, 0)")
    (verdict,) = site.cli("verify", "--json").lines()
    assert verdict["differences"][0]["run"] == "forged"
    assert verdict["differences"][0]["there"] is None


def test_a_broken_rule_is_named_with_its_run(site: Site) -> None:
    site.start()
    some_history(site)
    site.stop()
    site.edit("UPDATE runs SET revision = 99 WHERE run_id = 'run-2'")
    told = site.cli("verify", "--no-rebuild")
    assert told.code == Unsound.exit_code
    assert "A run is not at the revision of its last event. (run_revision) run run-2" in told.out


def test_a_damaged_file_does_not_hide_the_others(
    tmp_path: Path, site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    two = Site(site.data, site.server, capfd, partitions=2)
    two.start()
    for number in range(6):
        two.send(f"run-{number}", "run.create")
    two.settle()
    two.stop()
    two.edit("PRAGMA wal_checkpoint(TRUNCATE)")
    path = two.data / "p00.sqlite"
    content = bytearray(path.read_bytes())
    content[3 * 8192 :] = b"\xff" * (len(content) - 3 * 8192)
    path.write_bytes(content)
    told = two.cli("verify", "--json")
    assert told.code == Unsound.exit_code
    first, second = told.lines()
    assert {each["rule"] for each in first["violations"]} == {"integrity"}
    assert (second["file"], second["sound"], second["compared"]) == ("p01.sqlite", True, True)
    path.write_bytes(b"no database at all " * 1000)
    assert two.cli("verify").code == Unsound.exit_code
    two.close()


def test_a_file_that_is_gone_or_is_another_is_found(
    site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    two = Site(site.data, site.server, capfd, partitions=2)
    two.start()
    for number in range(6):
        two.send(f"run-{number}", "run.create")
    two.settle()
    two.stop()
    (two.data / "p01.sqlite").rename(two.data / "aside")
    gone, other = two.cli("verify", "--json").lines()
    assert (gone["file"], gone["violations"][0]["rule"]) == ("p01.sqlite", "file")
    assert other["sound"] is True
    (two.data / "p00.sqlite").rename(two.data / "p01.sqlite")
    assert "it says that it is partition 0" in two.cli("verify").out
    two.close()


def test_a_lost_or_damaged_segment_is_found(site: Site) -> None:
    for _ in range(2):
        site.start()
        some_history(site)
        site.stop()
    folder = archive_folder(site.data, 0)
    last = segments(folder)[-1]
    content = last.path.read_bytes()
    last.path.unlink()
    (verdict,) = site.cli("verify", "--json").lines()
    assert [each["rule"] for each in verdict["violations"]] == ["archive"]
    assert f"e{last.epoch:08d}" in verdict["violations"][0]["place"]
    last.path.write_bytes(content)
    site.cli("verify").ok()


def test_a_damaged_segment_is_found(site: Site) -> None:
    site.start()
    some_history(site)
    site.stop()
    segment = damaged(site)
    told = site.cli("verify")
    assert told.code == Unsound.exit_code
    assert segment.path.name in told.out


def test_without_an_archive_only_the_rules_are_checked(site: Site) -> None:
    site.start(archive=False)
    some_history(site)
    told = site.cli("verify").ok()
    assert "every rule holds; not compared with its archive: there is no archive" in told.out


def test_archiving_that_was_off_for_a_while_is_said(site: Site) -> None:
    site.start()
    some_history(site)
    site.stop()
    site.start(archive=False)
    site.done("run-1", "run.annotate", {"title": "unarchived"})
    site.stop()
    site.start()
    site.done("run-1", "run.annotate", {"title": "archived"})
    assert "1 messages were settled while archiving was off" in site.cli("verify").ok().out


def test_an_archive_that_expired_is_said(site: Site) -> None:
    for _ in range(2):
        site.start()
        some_history(site)
        site.stop()
    first = segments(archive_folder(site.data, 0))[0]
    (first.path.parent / "expired").write_text(f"{first.epoch}:{first.number}:0\n")
    first.path.unlink()
    assert "expired" in site.cli("verify").ok().out


def test_a_loss_that_was_accepted_is_on_record(site: Site) -> None:
    site.start(archive=False)
    some_history(site)
    site.stop()
    (site.data / "p00.sqlite").unlink()
    site.start()
    with pytest.raises(FileBehind):
        site.stop()
    poll(lambda: not site.client.exists(site.keys.owner(0)), message="its lease to end")
    site.start(accept_loss=True)
    site.forget()
    site.done("run-9", "run.create")
    (act,) = site.rows("SELECT * FROM acts")
    assert (act["act"], act["outcome"]) == ("accept_loss", "done")
    assert "a loss was accepted once" in site.cli("verify").ok().out


def test_a_new_folder_passes(site: Site) -> None:
    assert site.cli("verify").code == NotFound.exit_code
    site.start()
    assert "0 streams, 0 messages: every rule holds; equal" in site.cli("verify").ok().out


def test_a_run_whose_first_message_waits_passes(running: Site) -> None:
    """It has a cursor, and no archive knows of it: nothing of it is settled."""
    running.done("run-1", "run.create")
    running.send("run-2", "run.create", raw={b"v": b"2"})
    poll(lambda: running.rows("SELECT * FROM quarantines"), message="the quarantine")
    assert "2 streams, 1 message: every rule holds; equal" in running.cli("verify").ok().out


def test_writers_that_die_leave_a_folder_that_passes(site: Site) -> None:
    """Each start takes an epoch; what was archived and not committed is caught up with."""
    for turn in range(4):
        site.start()
        site.done(f"run-{turn}", "run.create")
        site.stop()
        site.client.delete(site.keys.run(0, "run-0"))
        site.send("run-0", "run.annotate", {"title": f"{turn}"})
    site.start()
    poll(lambda: site.run("run-0")["title"] == "3", message="the last one")
    site.cli("verify").ok()
