"""Runs as lists show them, and one run with what stands around it."""

from __future__ import annotations

from typing import Any, NamedTuple

import apsw
from pydantic import TypeAdapter

from writer.store.reader import tokens
from writer.store.reader.files import Files
from writer.store.reader.query import QUERIES, Record, check_limit, decode, each, one, records

SIDE_ROWS_MAX = 1_000
"""How many producers, segments, effects or gaps the detail of one run shows of each."""

PLACE: TypeAdapter[tuple[int, str]] = TypeAdapter(tuple[int, str])
"""Where a list goes on: (created_at, run_id) of its last run."""

_CONDITIONS = {
    "status": "status = :status",
    "workflow": "workflow = :workflow",
    "dialect": "dialect = :dialect",
    "parent": "parent_run = :parent",
}
_BEFORE = "(created_at, run_id) < (:created_at, :run_id)"


class RunPage(NamedTuple):
    """Some runs, the newest first. `next` (None: these were the last) leads on as `after`."""

    runs: list[Record]
    next: str | None


class Filters(NamedTuple):
    """Which runs a list shows; None: whichever."""

    status: str | None = None
    workflow: str | None = None
    dialect: str | None = None
    parent: str | None = None


def list_query(filters: Filters, place: tuple[int, str] | None) -> tuple[str, Record]:
    """The query of a list and its bindings but `limit`: only conditions that are asked for."""
    bindings: Record = {
        name: value for name, value in filters._asdict().items() if value is not None
    }
    conditions = [_CONDITIONS[name] for name in bindings]
    if len(conditions) > 1 and filters.dialect is not None:
        # There are few: whatever else is asked for leads to fewer runs. `+`: not by its index.
        conditions[conditions.index(_CONDITIONS["dialect"])] = "+dialect = :dialect"
    if place is not None:
        conditions.append(_BEFORE)
        bindings["created_at"], bindings["run_id"] = place
    where = "".join(f" AND {condition}" for condition in conditions)
    return QUERIES["list_runs"].replace("/* where */", where), bindings


def newest_runs(files: Files, filters: Filters, after: str | None, limit: int) -> RunPage:
    """Light rows of all partitions by (created_at, run_id), the newest first."""
    place = None if after is None else tokens.decode(after, PLACE)
    query, bindings = list_query(filters, place)
    bindings["limit"] = check_limit(limit) + 1
    found: list[Record] = []
    for _, file in files.all():
        with file.read() as connection:
            found += [decode(row, "tags") for row in each(connection, query, bindings)]
    found.sort(key=lambda run: (run["created_at"], run["run_id"]), reverse=True)
    if len(found) <= limit:
        return RunPage(found, None)
    last = found[limit - 1]
    return RunPage(found[:limit], tokens.encode([last["created_at"], last["run_id"]]))


def run_detail(connection: apsw.Connection, run_id: str) -> Record | None:
    """One stream and its run; the keys are described at `StateReader.run`."""
    found = one(connection, "run_key", run_id=run_id)
    if found is None:
        return None
    key = found[0]
    light = records(connection, "run", run_id=run_id)
    grave = records(connection, "tombstone", run_key=key)
    detail: Record = decode(light[0], "tags") if light else {"run_id": run_id, "status": None}
    if grave:
        detail["deleted"] = grave[0]
    detail["cursor"] = records(connection, "cursor", run_key=key)[0]
    quarantine = records(connection, "quarantine", run_key=key)
    detail["quarantine"] = quarantine[0] if quarantine else None
    side = _Side(connection, key)
    detail["producers"] = _producers(side)
    if light:
        lease = records(connection, "lease", run_key=key)
        detail["lease"] = lease[0] if lease else None
        detail["segments"] = [decode(row, "failure") for row in side.rows("segments")]
        detail["effects"] = [decode(row, "result") for row in side.rows("effects")]
        for name in ("work_items", "invocations", "suspensions"):
            detail[name] = side.rows(name)
    detail["truncated"] = side.truncated
    return detail


class _Side:
    """Rows beside a run, cut to SIDE_ROWS_MAX; `truncated` names what was cut."""

    def __init__(self, connection: apsw.Connection, run_key: int) -> None:
        self._connection = connection
        self._run_key = run_key
        self.truncated: list[str] = []

    def rows(self, query: str) -> list[Record]:
        found = records(self._connection, query, run_key=self._run_key, limit=SIDE_ROWS_MAX + 1)
        if len(found) > SIDE_ROWS_MAX:
            self.truncated.append(query)
        return found[:SIDE_ROWS_MAX]


def _producers(side: _Side) -> list[Record]:
    producers = {
        row["producer_no"]: {"producer": row["producer"], "last_seq": row["last_seq"], "gaps": []}
        for row in side.rows("producers")
    }
    for gap in side.rows("gaps"):
        shown: Any = producers.get(gap["producer_no"])
        if shown is not None:
            shown["gaps"].append([gap["first_seq"], gap["last_seq"]])
    return list(producers.values())
