"""LangGraph's SQLite saver, as shipped: `put` is a transaction of its own, in WAL mode, with
SQLite's default `synchronous` (FULL)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver

Put = Callable[[int, Mapping[str, Any]], None]
FULL = 2


@contextmanager
def saver(path: Path) -> Iterator[Put]:
    """A function that puts the n-th checkpoint of one thread, with these channel values."""
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        made = SqliteSaver(connection)
        made.setup()
        assert connection.execute("PRAGMA synchronous").fetchone() == (FULL,)

        def put(number: int, values: Mapping[str, Any]) -> None:
            config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
            if number:
                config["configurable"]["checkpoint_id"] = f"{number - 1:032}"
            checkpoint: Any = empty_checkpoint()
            checkpoint["id"] = f"{number:032}"
            checkpoint["channel_values"] = values
            made.put(config, checkpoint, {"source": "loop", "step": number}, {})

        yield put
