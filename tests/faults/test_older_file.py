"""A partition file that is an older copy, new, damaged or another's: it catches up, or stops."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.support import checks
from tests.support.console import statewriter
from tests.support.processes import Process
from tests.support.scene import Scene, lost_of, scene

CORRUPT, TOO_NEW, BEHIND, MISCONFIGURED = 23, 24, 25, 26
MOVED, NO_DAEMON = 28, 30


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Scene]:
    """A stopped daemon, whose runs are all open."""
    with scene(tmp_path) as made:
        made.start()
        made.opens()
        made.stops()
        yield made


def keep_copy(on: Scene) -> Path:
    """Copy the file of the stopped daemon; returns the copy."""
    copy = on.folder / "copy.sqlite"
    shutil.copyfile(on.data / "p00.sqlite", copy)
    return copy


def put_back(on: Scene, copy: Path) -> None:
    """Replace the file of the stopped daemon."""
    for path in on.data.glob("p00.sqlite*"):
        path.unlink()
    shutil.copyfile(copy, on.data / "p00.sqlite")


def go_on(on: Scene, count: int = 400) -> None:
    """Let a daemon apply some more, and end it."""
    on.start()
    on.send(count)
    on.drained()
    on.stops()


def started(on: Scene, **settings: Any) -> Process:
    """A daemon that may not stay."""
    on.writer = on.started.writer(on.data, on.url, wait=False, **settings)
    return on.running


def test_an_older_copy_catches_up_from_the_archive(on: Scene) -> None:
    copy = keep_copy(on)
    go_on(on)
    digests = checks.digests_of(on.data / "p00.sqlite")
    put_back(on, copy)
    on.start()
    on.drained()
    ((caught_up, older),) = [
        (line["messages"], on.running.said("older_copy")) for line in on.running.said("caught_up")
    ]
    assert caught_up == 400
    assert older
    on.stops()
    assert checks.digests_of(on.data / "p00.sqlite") == digests
    go_on(on)
    assert not on.running.said("older_copy")
    on.start()
    on.all_is_well()


def test_a_lost_file_is_built_anew_from_the_archive(on: Scene) -> None:
    go_on(on)
    digests = checks.digests_of(on.data / "p00.sqlite")
    for path in on.data.glob("p00.sqlite*"):
        path.unlink()
    go_on(on, 0)
    assert checks.digests_of(on.data / "p00.sqlite") == digests
    go_on(on)
    on.start()
    on.all_is_well()


def test_it_dies_again_and_again_while_it_catches_up(on: Scene) -> None:
    copy = keep_copy(on)
    go_on(on, 2_000)
    digests = checks.digests_of(on.data / "p00.sqlite")
    put_back(on, copy)
    for number in range(8):
        daemon = started(on)
        time.sleep(0.03 * (number + 1))
        daemon.kill()
    go_on(on, 0)
    assert checks.digests_of(on.data / "p00.sqlite") == digests
    on.start()
    on.all_is_well()


def test_without_the_archive_it_stops_and_says_so(on: Scene) -> None:
    copy = keep_copy(on)
    go_on(on)
    put_back(on, copy)
    shutil.rmtree(on.data / "archive")
    before = checks.digests_of(on.data / "p00.sqlite")
    daemon = started(on)
    assert daemon.wait() == BEHIND
    (ended,) = daemon.said("ended")
    assert "older copy" in ended["cause"]
    assert "--accept-loss" in ended["hint"]
    assert checks.digests_of(on.data / "p00.sqlite") == before
    assert checks.rows(on.data, "SELECT epoch FROM file") == [(1,)]
    told = statewriter("status", "--check", "--redis", on.url, data=on.data)
    assert told.code == NO_DAEMON
    assert "no daemon runs; the last one ended: p00.sqlite is at commit" in told.out

    # Whoever accepts the loss goes on; what was lost is told, and that it was accepted is kept.
    on.start(accept_loss=True)
    on.send(200)
    on.drained()
    on.stops()
    lost = lost_of(on.traffic, on.data)
    assert sum(map(len, lost.values())) == 400
    checks.accounted(on.data, on.traffic, lost)
    checks.check_data(on.data)
    assert checks.rows(on.data, "SELECT act, outcome FROM acts") == [("accept_loss", "done")]
    go_on(on)
    assert not on.running.said("older_copy")


def test_a_new_folder_on_a_redis_that_was_settled_for_another(on: Scene) -> None:
    go_on(on)
    on.data = on.folder / "elsewhere"
    assert started(on).wait() == BEHIND


def test_a_second_partition_count_is_refused(on: Scene) -> None:
    assert started(on, partitions=3).wait() == MISCONFIGURED


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("idle", [False, True])
def test_a_file_that_is_moved_while_it_is_written(on: Scene, replaced: bool, idle: bool) -> None:
    """What is committed where nobody finds it is not trimmed; put back, it goes on."""
    path, moved = on.data / "p00.sqlite", on.folder / "moved"
    on.start()
    on.send(100)
    on.drained()
    if replaced:
        shutil.copyfile(path, on.folder / "other")
        path.rename(moved)
        (on.folder / "other").rename(path)
    else:
        path.rename(moved)
    if not idle:
        on.send(100)
    assert on.running.wait() == MOVED, on.running.tail()
    (ended,) = on.running.said("ended")
    assert "p00.sqlite was moved" in ended["cause"]
    assert checks.waiting(on.client) == (0 if idle else 100)
    assert path.exists() == replaced
    moved.rename(path)
    on.start()
    on.send(100)
    on.all_is_well()


def test_a_file_that_is_deleted_while_it_is_written(on: Scene) -> None:
    on.start()
    on.send(100)
    on.drained()
    digests = checks.digests_of(on.data / "p00.sqlite")
    (on.data / "p00.sqlite").unlink()
    assert on.running.wait() == MOVED, on.running.tail()
    for path in on.data.glob("p00.sqlite-*"):
        path.unlink()
    on.start()
    on.drained()
    assert checks.digests_of(on.data / "p00.sqlite") == digests
    on.send(100)
    on.all_is_well()


def _garbage(path: Path) -> None:
    path.write_bytes(b"no SQLite file at all" * 1_000)


def _torn_header(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"\0" * 100)


def _foreign(path: Path) -> None:
    path.unlink()
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("CREATE TABLE mine (x)")


def _newer(path: Path) -> None:
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("PRAGMA user_version = 999")


def _damaged(path: Path) -> None:
    """All but the first page, which still names the schema."""
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(b"\xff" * (path.stat().st_size - 8192))


@pytest.mark.parametrize(
    "damage, code",
    [
        (_garbage, CORRUPT),
        (_torn_header, CORRUPT),
        (_foreign, CORRUPT),
        (_damaged, CORRUPT),
        (_newer, TOO_NEW),
    ],
)
def test_a_file_that_it_can_not_use_is_refused_and_left_as_it_is(
    on: Scene, damage: object, code: int
) -> None:
    path = on.data / "p00.sqlite"
    assert callable(damage)
    damage(path)
    before = sha256(path.read_bytes()).digest()
    on.send(100)
    daemon = started(on)
    assert daemon.wait() == code, daemon.tail()
    (ended,) = daemon.said("ended")
    assert "p00.sqlite" in ended["cause"]
    assert ended["hint"]
    assert sha256(path.read_bytes()).digest() == before
    assert checks.waiting(on.client) == 100
    told = statewriter("status", "--check", "--redis", on.url, data=on.data)
    assert told.code == code
    assert "p00.sqlite" in told.err
