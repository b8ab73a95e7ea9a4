"""What a run became, as 32 bytes: equal whenever the same messages were applied, however batched.

A run's digest is the SHA-256 of lines, each a compact JSON array in UTF-8, all but the first after
a line feed: `["run_id", id]`, then the rows of TABLES as `[table, column, ...]`, with the columns
and in the order of `sql/digest.sql`, hashes in hexadecimal. No part of it are row ids, `event_seq`,
incarnations, epochs, the cursor and its counts, closed gaps and quarantines. Of a deleted run it
covers the tombstone and what came after. A stream that left nothing but a cursor has no digest.

The digest of a partition, and of all of them, is the sum of their runs' modulo 2**256, so it does
not depend on how runs are spread over partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256

import apsw
from orjson import dumps

from writer.core.parts import PartsCorrupt
from writer.core.parts import digest as parts_digest
from writer.store.load import load_state
from writer.store.queries import named

QUERIES = named("digest.sql")
TABLES = (
    "runs",
    "tombstones",
    "leases",
    "state_parts",
    "events",
    "updates",
    "attempts",
    "work_items",
    "invocations",
    "suspensions",
    "definition_uses",
    "effects",
    "segments",
    "session_entries",
    "session_events",
    "rejections",
    "producers",
    "gaps",
)
NOTHING = bytes(32)
"""The digest of no run: what the sums begin with."""


def digest_run(connection: apsw.Connection, run_key: int) -> bytes:
    """The digest of one stream that has a cursor; NOTHING if it left nothing else."""
    (run_id,) = connection.execute(QUERIES["run_id"], (run_key,)).fetchall()[0]
    found = sha256(dumps(("run_id", run_id)))
    empty = True
    for table in TABLES:
        for row in connection.execute(QUERIES[table], (run_key,)):
            empty = False
            found.update(b"\n")
            found.update(dumps((table, *row)))
    return NOTHING if empty else found.digest()


def digests(connection: apsw.Connection) -> Iterator[tuple[str, bytes]]:
    """Run id and digest of every stream of a file that left anything, by run id.

    Wants a read transaction around it where a writer may be at work; so do the others.
    """
    for run_key, run_id in connection.execute(QUERIES["streams"]):
        found = digest_run(connection, run_key)
        if found != NOTHING:
            yield run_id, found


def combine(parts: Iterable[bytes]) -> bytes:
    """The sum of digests modulo 2**256, in any order."""
    return (sum(map(int.from_bytes, parts)) % 2**256).to_bytes(32)


def partition_digest(connection: apsw.Connection) -> bytes:
    """The digest of all runs of a file."""
    return combine(found for _, found in digests(connection))


def verify_states(connection: apsw.Connection, run_key: int) -> list[int]:
    """Revisions whose state, put together from its parts, is not the one that its event names.

    Reads the whole state once for each revision that changed it: a check, not a read.
    """
    return [
        revision
        for revision, expected in connection.execute(QUERIES["digested"], (run_key,))
        if _state_digest(connection, run_key, revision) != expected
    ]


def _state_digest(connection: apsw.Connection, run_key: int, revision: int) -> bytes | None:
    try:
        return parts_digest(load_state(connection, run_key, revision)).to_bytes(32)
    except PartsCorrupt:
        return None
