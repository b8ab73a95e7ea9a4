"""How the partition files stand, in numbers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import apsw

from writer.store.reader.files import Files
from writer.store.reader.query import Record, identity_of, one, records

_SUMS = (
    "bytes",
    "wal_bytes",
    "streams",
    "applied",
    "duplicates",
    "rejected",
    "open_gaps",
    "missing",
    "quarantined",
)


def _partition(connection: apsw.Connection, path: Path) -> Record:
    identity = identity_of(connection)
    assert identity is not None
    streams, applied, duplicates, rejected = one(connection, "status_streams") or (0,) * 4
    open_gaps, missing = one(connection, "status_gaps") or (0, 0)
    (quarantined,) = one(connection, "status_quarantined") or (0,)
    last_event = one(connection, "status_last_event")
    return {
        "partition": identity.partition,
        "file": path.name,
        "bytes": _size(path),
        "wal_bytes": _size(path.with_name(f"{path.name}-wal")),
        "epoch": identity.epoch,
        "commit_seq": identity.commit_seq,
        "lineage": identity.lineage,
        "runs": {row["status"]: row["runs"] for row in records(connection, "status_runs")},
        "streams": streams,
        "applied": applied,
        "duplicates": duplicates,
        "rejected": rejected,
        "open_gaps": open_gaps,
        "missing": missing,
        "quarantined": quarantined,
        "last_event_at": None if last_event is None else last_event[0],
    }


def status_of(files: Files) -> Record:
    """Every partition and their sums."""
    found = []
    for _, file in files.all():
        with file.read() as connection:
            found.append(_partition(connection, file.path))
    return {"partitions": found, "totals": _totals(found)}


def _totals(found: list[Record]) -> Record:
    runs: Counter[str] = Counter()
    for each in found:
        runs.update(each["runs"])
    latest = [each["last_event_at"] for each in found if each["last_event_at"] is not None]
    return {
        "runs": dict(sorted(runs.items())),
        **{name: sum(each[name] for each in found) for name in _SUMS},
        "last_event_at": max(latest, default=None),
    }


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
