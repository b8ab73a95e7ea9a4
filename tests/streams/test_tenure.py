"""Taking a partition, and giving it back when something else is in the way."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from tests.streams.conftest import KEYS, Streams
from tests.support.silence import SilentLog
from writer.errors import FileTooNew, PartitionTaken
from writer.settings import WriterSettings
from writer.store.partition import partition_path
from writer.streams.link import connect
from writer.tenure import Outside, Tenure


def tenure(streams: Streams, data: Path) -> Tenure:
    settings = WriterSettings(data=data, prefix="t", redis=streams.url)
    return Tenure(settings, Outside(lambda: connect(streams.url)), SilentLog(), 0, 1)


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
