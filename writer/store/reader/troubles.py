"""Runs that need someone to look at them: quarantined ones, and those with open gaps."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from writer.store.queries import named
from writer.store.reader.files import Files
from writer.store.reader.query import Record, each

QUERIES = named("troubles.sql")
ROWS_MAX = 1_000
"""How many of each a partition tells; its status has all their numbers."""


def troubles_of(data: Path) -> Record:
    """`{quarantined: [{run_id, message_id, cause, detail, version, since}], gaps: [{run_id,
    producer, first_seq, last_seq}]}` over all partitions, the first 1,000 of each and partition.
    """
    found: Record = {name: [] for name in QUERIES}
    with closing(Files(data)) as files:
        for _, file in files.all():
            with file.read() as connection:
                for name, query in QUERIES.items():
                    found[name] += each(connection, query, {"limit": ROWS_MAX})
    return found
