"""The WAL goes back into the file while a writer is at work."""

from __future__ import annotations

from pathlib import Path

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
