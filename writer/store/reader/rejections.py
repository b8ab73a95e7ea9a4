"""The dead letters: which messages were refused, and one of them with its bytes."""

from __future__ import annotations

from typing import NamedTuple

from pydantic import TypeAdapter

from writer.store.reader import tokens
from writer.store.reader.files import Files
from writer.store.reader.query import QUERIES, Record, check_limit, decode, each, records

PLACE: TypeAdapter[dict[str, int]] = TypeAdapter(dict[str, int])
"""Where a list goes on: the last rejection shown of each partition."""

_CONDITIONS = {
    "run_id": "run_id = :run_id",
    "reason": "reason = :reason",
    # Older ones hardly lie behind newer ones, so the first tells where to stop.
    "since": "recorded_at >= :since AND rejection_seq >= "
    "(SELECT min(rejection_seq) FROM rejections WHERE recorded_at >= :since)",
    "before": "rejection_seq < :before",
}


class RejectionPage(NamedTuple):
    """Some rejections, the newest first. `next` (None: these were the last) leads on as `after`."""

    rejections: list[Record]
    next: str | None


class Filters(NamedTuple):
    """Which rejections a list shows; None: whichever. `since` in ms."""

    run_id: str | None = None
    reason: str | None = None
    since: int | None = None


def list_query(filters: Filters, before: int | None) -> tuple[str, Record]:
    """The query of a list and its bindings but `limit`: only conditions that are asked for."""
    asked = {**filters._asdict(), "before": before}
    bindings: Record = {name: value for name, value in asked.items() if value is not None}
    where = "".join(f" AND {_CONDITIONS[name]}" for name in bindings)
    return QUERIES["list_rejections"].replace("/* where */", where), bindings


def newest_rejections(
    files: Files, filters: Filters, after: str | None, limit: int
) -> RejectionPage:
    """Rejections of all partitions without their bytes, the newest first."""
    place = {} if after is None else tokens.decode(after, PLACE)
    found: dict[int, list[Record]] = {}
    for identity, file in files.all():
        query, bindings = list_query(filters, place.get(str(identity.partition)))
        bindings["limit"] = check_limit(limit) + 1
        with file.read() as connection:
            rows = each(connection, query, bindings)
            found[identity.partition] = [_with_id(row, identity.partition) for row in rows]
    shown = _merge(found, limit)
    if sum(map(len, found.values())) <= limit:
        return RejectionPage(shown, None)
    return RejectionPage(shown, tokens.encode(_place_after(place, shown)))


def _merge(lists: dict[int, list[Record]], limit: int) -> list[Record]:
    """The newest of several partitions' lists, each of which keeps its order."""
    queues = {partition: rows[::-1] for partition, rows in lists.items() if rows}
    merged: list[Record] = []
    while queues and len(merged) < limit:
        partition = max(queues, key=lambda each: (queues[each][-1]["recorded_at"], each))
        merged.append(queues[partition].pop())
        if not queues[partition]:
            del queues[partition]
    return merged


def _place_after(place: dict[str, int], shown: list[Record]) -> dict[str, int]:
    """Where the list goes on after the rejections shown."""
    moved = dict(place)
    for row in shown:
        partition, _, seq = row["id"].partition(":")
        moved[partition] = int(seq)
    return moved


def whole_rejection(files: Files, rejection_id: str) -> Record | None:
    """One rejection with the stream fields that it keeps; None if there is none of this id."""
    partition, _, seq = rejection_id.partition(":")
    if not (partition.isdecimal() and seq.isdecimal() and len(seq) < 19):
        return None
    for identity, file in files.all():
        if identity.partition == int(partition):
            with file.read() as connection:
                rows = records(connection, "rejection", rejection_seq=int(seq))
            return _with_id(decode(rows[0], "fields", "head"), int(partition)) if rows else None
    return None


def _with_id(row: Record, partition: int) -> Record:
    return {"id": f"{partition}:{row.pop('rejection_seq')}", **row}
