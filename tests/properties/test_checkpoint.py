"""The WAL goes back into the file while a writer is at work."""

from __future__ import annotations

from pathlib import Path

import apsw

from tests.support.wait import poll
from tests.support.world import FileWorld
from writer.store.checkpoint import WAL_BYTES_MIN, Checkpointer
from writer.store.partition import partition_path

RUN = "run-1"


def test_what_is_committed_is_moved_into_the_file(tmp_path: Path) -> None:
    world = FileWorld(tmp_path)
    # Small enough a commit that SQLite does not do it by itself at once.
    path = partition_path(tmp_path, 0)
    checkpointer = Checkpointer([path], every_ms=10)
    world.create(RUN)
    before = path.stat().st_size
    checkpointer.start()
    try:
        state = {"big": "x" * (WAL_BYTES_MIN + 1)}
        world.must("run-2", "run.create", {"state": state})
        assert path.with_name(f"{path.name}-wal").stat().st_size > WAL_BYTES_MIN
        poll(lambda: path.stat().st_size > before + WAL_BYTES_MIN, 60.0, "the file to grow")
    finally:
        checkpointer.stop()
        world.close()


def test_what_a_reader_kept_back_is_moved_once_it_has_gone(tmp_path: Path) -> None:
    """Though nobody writes any more."""
    paths = [tmp_path / name for name in ("read.sqlite", "other.sqlite")]
    writers = [apsw.Connection(str(path)) for path in paths]
    reader = apsw.Connection(str(paths[0]))
    for writer in writers:
        writer.execute("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0").fetchall()
        writer.execute("CREATE TABLE t (text)")
    reader.execute("BEGIN; SELECT count(*) FROM t").fetchall()
    for writer in writers:
        writer.execute("INSERT INTO t VALUES (randomblob(?))", (2 * WAL_BYTES_MIN,))
    checkpointer = Checkpointer(paths, every_ms=10)
    checkpointer.start()
    try:
        # It has looked at both: the one that is read comes first.
        poll(lambda: paths[1].stat().st_size > WAL_BYTES_MIN, message="the other file to grow")
        assert paths[0].stat().st_size < WAL_BYTES_MIN
        reader.execute("COMMIT")
        poll(lambda: paths[0].stat().st_size > WAL_BYTES_MIN, message="the file to grow")
    finally:
        checkpointer.stop()
        for connection in (reader, *writers):
            connection.close()
