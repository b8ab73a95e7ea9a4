"""State documents: put together from their parts, with what the dialect stamps, at any revision."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import apsw
import orjson

from writer.core.dialect import Moment
from writer.core.parts import PartsCorrupt, build, document
from writer.dialects import DIALECTS
from writer.dialects.instant import iso
from writer.dialects.pi_workflows import update_id
from writer.errors import FileCorrupt
from writer.store.reader.query import Record, one, records


class Head(NamedTuple):
    """What reads of an existing run begin with."""

    run_key: int
    run_id: str
    dialect: str
    revision: int
    status: str
    terminal: bool
    created_at: int
    updated_at: int
    finished_at: int | None


def head_of(connection: apsw.Connection, run_id: str) -> Head | None:
    """A run's head; None if it does not exist."""
    row = one(connection, "head", run_id=run_id)
    return None if row is None else Head(*row)._replace(terminal=bool(row[5]))


def state_at(connection: apsw.Connection, head: Head, revision: int) -> Any:
    """The state as of a revision from 1 to the head's. Raises FileCorrupt if it is damaged."""
    parts = records(connection, "state_parts", run_key=head.run_key, revision=revision)
    revised = one(connection, "revised_at", run_key=head.run_key, revision=revision)
    try:
        state = build((part["pointer"], part["shape"], part["value"]) for part in parts)
    except PartsCorrupt as error:
        raise FileCorrupt(
            f"run {head.run_id}: its state at revision {revision} does not fit together: {error}",
            hint="keep a copy of the file, then restore a backup or rebuild it by replay",
        ) from error
    assert revised is not None, "revisions have no hole"
    updates = [_in_state(head.run_id, row) for row in updates_at(connection, head, revision)]
    definition = partial(definition_at, connection)
    moment = Moment(head.run_id, revision, revised[0], updates, definition)
    return DIALECTS[head.dialect].leave(document(state), moment)


def definition_at(connection: apsw.Connection, digest: bytes) -> Any:
    """A definition by its digest; None if it is not there."""
    row = one(connection, "definition_at", digest=digest)
    return None if row is None else orjson.loads(row[0])


def updates_at(connection: apsw.Connection, head: Head, revision: int) -> list[Record]:
    """The newest update of each (type, key) as of a revision, by the revisions that they made."""
    found = records(connection, "updates", run_key=head.run_key, revision=revision)
    for row in found:
        row["data"] = orjson.loads(row["data"])
        row["update_id"] = update_id(head.run_id, row["revision"])
    return found


def _in_state(run_id: str, row: Record) -> Record:
    where = {"nodeId": row["node_id"], "attemptId": row["attempt_id"]}
    return {
        "updateId": row["update_id"],
        "seq": row["revision"],
        "at": iso(row["recorded_at"]),
        "runId": run_id,
        **{name: value for name, value in where.items() if value is not None},
        "type": row["type"],
        "key": row["key"],
        "data": row["data"],
    }
