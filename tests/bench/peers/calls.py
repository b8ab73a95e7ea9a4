"""What a host could call instead: an insert of its own, LangGraph's saver, an RQ enqueue."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from tests.bench.peers.saver import saver
from tests.support.servers import RealServer

Call = Callable[[int], object]


def insert(stack: ExitStack, folder: Path, synchronous: str, text: str) -> Call:
    """A row with COMMIT, in WAL mode, on a connection that stays open."""
    path = folder / f"insert-{synchronous}.sqlite"
    connection = stack.enter_context(closing(sqlite3.connect(path, isolation_level=None)))
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={synchronous}")
    connection.execute("CREATE TABLE entries (id INTEGER PRIMARY KEY, entry TEXT)")
    return lambda _: connection.execute("INSERT INTO entries (entry) VALUES (?)", (text,))


def put(stack: ExitStack, folder: Path, state: dict[str, Any]) -> Call:
    """`put` of the saver."""
    made = stack.enter_context(saver(folder / f"saver-{len(state)}.sqlite"))
    return lambda number: made(number, {**state, "n": number})


def enqueue(server: RealServer) -> Call:
    """A job on RQ's queue."""
    from rq import Queue

    queue = Queue(connection=server.client(retry=None))
    return lambda number: queue.enqueue("time.sleep", number)
