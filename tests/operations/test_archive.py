"""The archive: how long segments stay, and what happens without one."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.operations.site import Site
from tests.operations.test_replay import some_history
from tests.support.wait import poll
from writer.cli.exits import NotFound
from writer.store.reader import StateReader
from writer.streams.archive import archive_folder, segments

HOUR_S = 3_600


def test_segments_go_when_they_are_older_than_they_have_to_be_kept(
    site: Site, tmp_path: Path
) -> None:
    """The daemon removes them, the newest never; from then on a replay does not reach back."""
    for _ in range(3):
        site.start()
        some_history(site)
        site.stop()
    folder = archive_folder(site.data, 0)
    old = [segment.path for segment in segments(folder)]
    for path in old[:2]:
        os.utime(path, (time.time() - 3 * HOUR_S,) * 2)
    site.start(archive_keep_hours=4)
    site.done("run-1", "run.annotate", {"title": "all are young enough"})
    assert all(path.exists() for path in old)
    site.stop()
    site.start(archive_keep_hours=2)
    poll(lambda: site.log.of("archive_expired"), message="old segments to go")
    site.done("run-1", "run.annotate", {"title": "and it goes on"})
    assert [path.exists() for path in old] == [False, False, True]
    (told,) = site.log.of("archive_expired")
    assert told["segments"] == 2
    refused = site.cli("replay", "--into", tmp_path / "new")
    assert refused.code == NotFound.exit_code
    assert "expired" in refused.err
    assert "expired" in site.cli("verify").ok().out


def test_without_an_archive_streams_are_trimmed_all_the_same(site: Site) -> None:
    site.start(archive=False)
    some_history(site)
    poll(
        lambda: not sum(map(site.client.xlen, site.client.keys("sw:*:run:*"))), message="no message"
    )
    site.stop()
    assert segments(archive_folder(site.data, 0)) == []
    with StateReader(site.data) as reader:
        assert reader.list_runs().runs
    assert "there is no archive" in site.cli("verify").ok().out
