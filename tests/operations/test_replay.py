"""`replay`: a folder built anew, from the archive and from what Redis still holds."""

from __future__ import annotations

import shutil
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from tests.operations.site import Site, auth, claim
from tests.support.wait import poll
from writer.cli.exits import NotFound
from writer.errors import FileCorrupt, RedisUnavailable, Usage
from writer.store.invariants import standing, violations
from writer.store.partition import partition_path
from writer.streams.archive import (
    Archive,
    Position,
    Record,
    Segment,
    archive_folder,
    segments,
)


def some_history(site: Site) -> list[str]:
    """Runs of every end; returns the ids of the messages."""
    ids = []
    for number in range(5):
        run = f"run-{number}"
        ids.append(site.send(run, "run.create", {"title": f"{number}", "input": {"n": number}}))
        ids.append(site.send(run, "lease.claim", claim()))
        for step in range(6):
            state = {"step": step, "log": ["line"] * 200 * step}
            ids.append(site.send(run, "run.snapshot", {"state": state}, auth=auth()))
        ids.append(site.send(run, "session.bind", {"session": "s"}, auth=auth()))
        ids.append(site.send(run, "session.entry", {"entry": {"id": "e", "n": 1}}, auth=auth()))
    ids.append(site.send("run-3", "run.delete", auth=auth()))
    ids.append(site.send("run-3", "run.annotate", {"title": "late"}))
    ids.append(site.send("run-4", "run.annotate", raw={b"body": b"\xff{"}))
    ids.append(site.send("run-4", "run.annotate", {"title": "gap"}, raw={b"seq": b"40"}))
    site.settle()
    return ids


def damaged(site: Site) -> Segment:
    """The only segment of the archive, one bit of it flipped."""
    (segment,) = segments(archive_folder(site.data, 0))
    content = bytearray(segment.path.read_bytes())
    content[len(content) // 2] ^= 1
    segment.path.write_bytes(content)
    return segment


def in_redis(site: Site) -> Any:
    """All keys that a replay must leave alone."""
    keys = sorted(key for key in site.client.keys("sw:*") if b":owner" not in key)
    return [(key, site.client.dump(key)) for key in keys]


def test_a_rebuilt_folder_has_the_live_digest(running: Site, tmp_path: Path) -> None:
    some_history(running)
    told = running.cli("replay", "--into", tmp_path / "new", "--json").ok().json()
    assert running.digest(tmp_path / "new") == running.digest()
    assert told["messages"] == 54
    assert (told["partitions"], told["from_redis"], told["held"]) == (1, 0, {})
    live = running.cli("digest", "--json").ok().json()
    assert told["digest"] == live["digest"]
    with standing(partition_path(tmp_path / "new", 0)) as connection:
        assert list(violations(connection)) == []


def test_what_waits_in_redis_comes_too_and_stays_there(site: Site, tmp_path: Path) -> None:
    site.start()
    some_history(site)
    site.stop()
    for number in range(1200):
        site.send("run-1", "run.annotate", {"title": f"{number}"})
    site.send("run-new", "run.create")
    before = in_redis(site)

    only = site.cli("replay", "--into", tmp_path / "a", "--archive-only", "--json").ok().json()
    both = site.cli("replay", "--into", tmp_path / "b", "--json").ok().json()
    assert in_redis(site) == before
    assert (only["from_redis"], both["from_redis"]) == (0, 1201)
    assert site.digest(tmp_path / "a") == site.digest()

    site.start()
    site.settle()
    assert site.digest(tmp_path / "b") == site.digest()


def test_a_stream_that_was_replaced_is_read_from_its_start(site: Site, tmp_path: Path) -> None:
    """Redis came back empty and its clock behind: the ids run behind the cursor."""
    site.start()
    site.done("run-1", "run.create")
    site.stop()
    site.client.delete(site.keys.run(0, "run-1"))
    fields: Any = {b"v": b"1", b"kind": b"run.annotate", b"producer": b"z", b"seq": b"1",
                   b"body": b'{"title":"again"}'}  # fmt: skip
    site.client.xadd(site.keys.run(0, "run-1"), fields, id="5-0")
    told = site.cli("replay", "--into", tmp_path / "new", "--json").ok().json()
    assert told["from_redis"] == 1
    site.client.zadd(site.keys.ready(0), {"run-1": 0})
    site.start()
    poll(lambda: site.run("run-1")["title"] == "again", message="the new stream to be read")
    assert site.digest(tmp_path / "new") == site.digest()


def test_until_a_message_or_a_time(running: Site, tmp_path: Path) -> None:
    ids = [running.done("run-1", "run.create")]
    ids += [running.done("run-1", "run.annotate", {"title": f"{n}"}) for n in range(10)]
    running.cli("replay", "--into", tmp_path / "a", "--until", ids[4]).ok()
    (row,) = running.rows("SELECT title, revision FROM runs", data=tmp_path / "a")
    assert row == {"title": "3", "revision": 5}

    running.cli("replay", "--into", tmp_path / "b", "--until", "2000-01-01").ok()
    assert running.rows("SELECT * FROM runs", data=tmp_path / "b") == []
    running.cli("replay", "--into", tmp_path / "c", "--until", "2999-01-01T00:00:00Z").ok()
    assert running.digest(tmp_path / "c") == running.digest()
    assert running.cli("replay", "--into", tmp_path / "d", "--until", "soon").code == (
        Usage.exit_code
    )


def test_while_a_daemon_is_at_work(running: Site, tmp_path: Path) -> None:
    """What was settled before is there whole; of the rest, a prefix of each stream."""
    some_history(running)
    before = running.digest()
    ended = Event()

    def go_on() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            run = f"busy-{number % 7}"
            running.send(run, "run.create" if number <= 7 else "run.annotate",
                         {"title": f"{number}"})  # fmt: skip

    thread = Thread(target=go_on)
    thread.start()
    try:
        for turn in range(3):
            running.cli("replay", "--into", tmp_path / str(turn)).ok()
    finally:
        ended.set()
        thread.join()
    for turn in range(3):
        rebuilt = running.digest(tmp_path / str(turn))
        assert {run: rebuilt[run] for run in before} == before
        with standing(partition_path(tmp_path / str(turn), 0)) as connection:
            assert list(violations(connection)) == []
        assert running.rows("SELECT * FROM gaps WHERE run_key > 5", data=tmp_path / str(turn)) == []


def test_a_run_that_can_not_go_on_is_named(site: Site, tmp_path: Path) -> None:
    site.start()
    site.done("run-1", "run.create")
    site.stop()
    waits_at = site.send("run-1", "run.annotate", {}, raw={b"v": b"2"})
    site.send("run-1", "run.annotate", {"title": "behind"})
    site.send("run-2", "run.create")
    told = site.cli("replay", "--into", tmp_path / "new", "--json").ok()
    assert "contract version 2" in told.json()["held"]["run-1"]
    assert f"run run-1 stopped: message {waits_at}" in told.err
    assert set(site.digest(tmp_path / "new")) == {"run-1", "run-2"}


def test_a_message_that_can_not_be_applied_holds_its_run_alone(site: Site, tmp_path: Path) -> None:
    """No writer archives such a record; a replay must not stumble over it all the same."""
    site.start()
    some_history(site)
    site.stop()
    (identity,) = site.rows("SELECT archived FROM file")
    fields = {b"v": b"1", b"kind": b"run.annotate", b"producer": b"z", b"seq": b"1",
              b"body": b'{"title":"late"}'}  # fmt: skip
    about = {"partition": 0, "partitions": 1, "rules": 1}
    archive = Archive(
        archive_folder(site.data, 0), 99, about, after=Position.parse(identity["archived"])
    )
    archive.append(
        [
            Record("run-0", 1, "9999999999990-0", fields),
            Record("run-1", 1, "no id", fields),
            Record("run-1", 1, "9999999999991-0", fields),
            Record("run-2", 1, "9999999999992-0", fields),
        ]
    )
    archive.close()
    told = site.cli("replay", "--into", tmp_path / "new", "--archive-only", "--json").ok().json()
    assert set(told["held"]) == {"run-1"}
    titles = site.rows("SELECT run_id, title FROM runs", data=tmp_path / "new")
    assert {row["run_id"]: row["title"] for row in titles} == {
        "run-0": "late",
        "run-1": "1",
        "run-2": "late",
        "run-4": "gap",
    }


def test_a_lost_file_is_rebuilt(site: Site, tmp_path: Path) -> None:
    """By the daemon itself: an empty file is the oldest copy that there can be."""
    site.start()
    some_history(site)
    before = site.digest()
    site.stop()
    for path in site.data.glob("p00.sqlite*"):
        path.unlink()
    site.cli("replay", "--into", tmp_path / "new").ok()
    assert site.digest(tmp_path / "new") == before
    site.start()
    assert site.digest() == before
    site.cli("verify").ok()


def test_a_redis_that_is_away_is_said_before_anything_is_made(site: Site, tmp_path: Path) -> None:
    site.start()
    site.done("run-1", "run.create")
    site.stop()
    away = f"unix://{tmp_path}/nowhere"
    told = site.cli("replay", "--into", tmp_path / "new", redis=away)
    assert told.code == RedisUnavailable.exit_code
    assert not (tmp_path / "new").exists()
    site.cli("replay", "--into", tmp_path / "new", "--archive-only", redis=away).ok()
    told = site.cli("replay", "--into", tmp_path / "other", redis="")
    assert "what waits there is left out" in told.ok().err


def test_a_folder_in_use_is_refused(running: Site, tmp_path: Path) -> None:
    running.done("run-1", "run.create")
    (tmp_path / "file").write_text("x")
    for into in (running.data, tmp_path, tmp_path / "file"):
        assert running.cli("replay", "--into", into).code == Usage.exit_code
    (tmp_path / "empty").mkdir()
    running.cli("replay", "--into", tmp_path / "empty").ok()


def test_without_an_archive_there_is_nothing_to_replay(site: Site, tmp_path: Path) -> None:
    site.start(archive=False)
    site.done("run-1", "run.create")
    told = site.cli("replay", "--into", tmp_path / "new", "--archive-only")
    assert told.code == NotFound.exit_code
    assert "no archive" in told.err
    assert not (tmp_path / "new").exists()


def test_an_archive_that_has_lost_its_beginning_is_refused(site: Site, tmp_path: Path) -> None:
    for _ in range(2):
        site.start()
        site.done("run-1", "run.create")
        site.stop()
    first = segments(archive_folder(site.data, 0))[0]
    (first.path.parent / "expired").write_text(f"{first.epoch}:{first.number}:0\n")
    first.path.unlink()
    told = site.cli("replay", "--into", tmp_path / "new")
    assert told.code == NotFound.exit_code
    assert "expired" in told.err


def test_a_damaged_segment_is_named(site: Site, tmp_path: Path) -> None:
    site.start()
    some_history(site)
    site.stop()
    segment = damaged(site)
    told = site.cli("replay", "--into", tmp_path / "new")
    assert told.code == FileCorrupt.exit_code
    assert segment.path.name in told.err


def test_a_damaged_archive_stops_the_daemon_that_needs_it(site: Site) -> None:
    site.start()
    some_history(site)
    site.stop()
    segment = damaged(site)
    for path in site.data.glob("p00.sqlite*"):
        path.unlink()
    site.start()
    with pytest.raises(FileCorrupt, match=segment.path.name):
        site.stop()


def test_another_folder_is_replayed(site: Site, tmp_path: Path) -> None:
    site.start()
    some_history(site)
    site.stop()
    before = site.digest()
    shutil.copytree(site.data, tmp_path / "copy")
    told = site.cli("replay", "--from", tmp_path / "copy", "--into", tmp_path / "new",
                    "--archive-only", "--json").ok()  # fmt: skip
    assert site.digest(tmp_path / "new") == before
    assert told.json()["messages"] == 54
