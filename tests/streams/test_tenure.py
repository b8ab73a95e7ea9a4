"""Taking a partition, and giving it back when something else is in the way."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from shutil import copyfile
from typing import Any

import apsw
import pytest

from producers.contract.envelope import encode
from tests.streams.conftest import KEYS, Streams
from tests.support import checks
from tests.support.silence import SilentLog
from writer.clock import SYSTEM, Clock, now_ms
from writer.errors import FileBehind, FileTooNew, PartitionTaken
from writer.loop import PartitionLoop
from writer.settings import WriterSettings
from writer.store.partition import partition_path
from writer.streams.archive import archive_folder, segments
from writer.streams.control import ask
from writer.streams.link import connect
from writer.streams.reach import expire
from writer.tenure import Outside, Tenure


def tenure(
    streams: Streams,
    data: Path,
    *,
    accept_loss: bool = False,
    clock: Clock = SYSTEM,
    connecting: Callable[[], Any] | None = None,
    **settings: Any,
) -> Tenure:
    made = WriterSettings(
        data=data, prefix="t", redis=streams.url, lease_ttl_ms=600_000, **settings
    )
    outside = Outside(connecting or (lambda: connect(streams.url)), clock)
    return Tenure(made, outside, SilentLog(), 0, 1, accept_loss=accept_loss)


def test_a_lease_is_given_back_when_the_file_can_not_be_used(
    streams: Streams, tmp_path: Path
) -> None:
    with tenure(streams, tmp_path) as loop:
        loop.step_down()
    file = apsw.Connection(str(partition_path(tmp_path, 0)))
    file.pragma("user_version", 99)
    file.close()
    with pytest.raises(FileTooNew), tenure(streams, tmp_path):
        pass
    assert not streams.client.exists(KEYS.owner(0))


def test_the_lease_of_another_is_left_alone(streams: Streams, tmp_path: Path) -> None:
    with (
        tenure(streams, tmp_path),
        pytest.raises(PartitionTaken),
        tenure(streams, tmp_path / "other"),
    ):
        pass
    assert streams.client.exists(KEYS.owner(0))


def test_a_skip_that_was_not_archived_goes_before_its_message_in_the_archive(
    streams: Streams, tmp_path: Path
) -> None:
    """Carried out while archiving was off, by a writer that died before it read on."""
    newer: Any = {**encode("run.create", {}, producer="p", seq=1), b"v": b"2"}
    message_id = streams.client.xadd(KEYS.run(0, "a"), newer).decode()

    def read_on(loop: PartitionLoop) -> None:
        streams.client.zadd(KEYS.ready(0), {"a": 0})
        loop.step()
        loop.step_down()

    def dies(point: str) -> None:
        if point == "committed":
            raise KeyboardInterrupt

    with tenure(streams, tmp_path) as loop:
        read_on(loop)
    with tenure(streams, tmp_path, archive=False) as loop:
        loop.hook = dies
        ask(streams.client, KEYS, 0, "skip", "a", (1, message_id), "someone@here")
        with pytest.raises(KeyboardInterrupt):
            loop.step()
        loop.step_down()
    with tenure(streams, tmp_path) as loop:
        read_on(loop)
    for path in tmp_path.glob("p00.sqlite*"):
        path.unlink()
    with tenure(streams, tmp_path, accept_loss=True):
        pass
    assert checks.rows(tmp_path, "SELECT reason FROM rejections") == [("skipped",)]


def test_an_act_is_carried_out_once_though_its_stream_comes_back_older(
    streams: Streams, tmp_path: Path
) -> None:
    newer: Any = {**encode("run.create", {}, producer="p", seq=1), b"v": b"2"}
    message_id = streams.client.xadd(KEYS.run(0, "a"), newer).decode()
    streams.client.zadd(KEYS.ready(0), {"a": 0})
    older: Any = None
    ticks = count()
    with tenure(streams, tmp_path, clock=Clock(now_ms, lambda: float(next(ticks)))) as loop:
        loop.step()
        for act in ("resume", "break"):
            ask(streams.client, KEYS, 0, act, "a", (1, message_id), "someone@here")
            older = older or streams.client.dump(KEYS.control(0))
            loop.step()
        acts = "SELECT act, outcome FROM acts ORDER BY act_seq"
        assert checks.rows(tmp_path, acts) == [("resume", "done"), ("break", "refused")]
        assert loop.quarantined == {"a"}
        streams.client.restore(KEYS.control(0), 0, older, replace=True)
        before = loop.file.commit_seq
        loop.step()
        assert loop.file.commit_seq == before
        assert loop.quarantined == {"a"}
        loop.step_down()


def test_nobody_accepts_the_loss_of_what_expires_while_an_older_file_is_taken(
    streams: Streams, tmp_path: Path
) -> None:
    """Its archive is there at the first look, before anybody is kept out, and not at the second."""

    def connect_and_expire() -> Any:
        client: Any = connect(streams.url)
        looks, look = count(1), client.hgetall

        def hgetall(name: str) -> Any:
            if next(looks) == 2:
                expire(archive_folder(tmp_path, 0), 2**62)
            return look(name)

        client.hgetall = hgetall
        return client

    for number in range(3):
        with tenure(streams, tmp_path) as loop:
            fields: dict[Any, Any] = encode("run.create", {}, producer="p", seq=1)
            streams.client.xadd(KEYS.run(0, f"run-{number}"), fields)
            streams.client.zadd(KEYS.ready(0), {f"run-{number}": 0})
            assert loop.step() == 1
            loop.step_down()
        if number == 0:
            copyfile(partition_path(tmp_path, 0), tmp_path / "older")
    for path in tmp_path.glob("p00.sqlite*"):
        path.unlink()
    copyfile(tmp_path / "older", partition_path(tmp_path, 0))
    with pytest.raises(FileBehind), tenure(streams, tmp_path, connecting=connect_and_expire):
        pass
    assert len(segments(archive_folder(tmp_path, 0))) == 1
    assert checks.rows(tmp_path, "SELECT count(*) FROM acts") == [(0,)]
