"""The change feed: what happened in all files since a token, and whether the token still holds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import apsw
from pydantic import TypeAdapter

from writer.store.partition import Identity
from writer.store.reader import tokens
from writer.store.reader.files import Files, OpenFile
from writer.store.reader.query import Record, check_limit, identity_of, one, records

Marks = dict[str, tuple[str, int]]
"""Of each partition: the lineage of its file, and the `event_seq` up to which it was followed."""

PLACE: TypeAdapter[Marks] = TypeAdapter(Marks)


class Changes(NamedTuple):
    """Events in the order of each partition; `token` leads on from here.

    `reset`: what the token named is not this history any more (a restored or rebuilt file), so the
    events start over from the beginning.
    """

    events: list[Record]
    token: str
    reset: bool


def changes_since(files: Files, since: str | None, limit: int) -> Changes:
    """Events after a token; None: from the beginning."""
    marks = {} if since is None else tokens.decode(since, PLACE)
    opened = files.all()
    share = max(1, check_limit(limit) // max(1, len(opened)))
    followed = _follow(opened, marks, share)
    reset = followed is None
    if followed is None:
        followed = _follow(opened, {}, share)
    assert followed is not None, "without marks there is nothing to contradict"
    events, moved = followed
    return Changes(events, tokens.encode(moved), reset)


def _follow(
    files: Iterable[tuple[Identity, OpenFile]], marks: Marks, limit: int
) -> tuple[list[Record], Marks] | None:
    """Up to `limit` events of each file past its mark, and the marks then.

    None if a mark names another history than its file has now, or a file that is gone.
    """
    events: list[Record] = []
    moved: Marks = {}
    for identity, file in files:
        name = str(identity.partition)
        with file.read() as connection:
            lineage, last = _history(connection)
            known, after = marks.get(name, (lineage, 0))
            if known != lineage or after > last:
                return None
            rows = records(connection, "changes", after=after, limit=limit)
        events += [{"partition": identity.partition, **row} for row in rows]
        moved[name] = (lineage, rows[-1]["event_seq"] if len(rows) == limit else last)
    return (events, moved) if marks.keys() <= moved.keys() else None


def _history(connection: apsw.Connection) -> tuple[str, int]:
    identity, last = identity_of(connection), one(connection, "last_event_seq")
    assert identity is not None
    assert last is not None
    return identity.lineage, last[0]
