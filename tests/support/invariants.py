"""The invariants I1 to I14 of a data folder, each a function that returns what breaks it.

They can be run on any folder, after any accident; I10 stands in `rebuilds.py`:

    assert_sound(data)                       what the files alone can tell
    lost_acked(data, acked)                  I9, from what a producer was told
    undrained(client, keys, data)            I13, from Redis
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import orjson
import redis

from producers.contract.envelope import fields_of
from producers.contract.keys import Keys
from writer.store.digest import verify_states
from writer.streams.backlog import backlog

Broken = list[str]
WAL_BYTES_MAX = 256 * 1024 * 1024
ACK = tuple[str, str, int]
"""(run, producer, sequence)."""


def order(message_id: str) -> tuple[int, int]:
    """A message id as what it is compared by."""
    ms, _, n = message_id.partition("-")
    return int(ms), int(n)


def rows(file: apsw.Connection, query: str, *bindings: Any) -> list[tuple[Any, ...]]:
    """A query's rows."""
    return file.execute(query, bindings).fetchall()


def i1_order(file: apsw.Connection) -> Broken:
    """By revision, a run's events stand in the order in which they were written."""
    return [
        f"run {run} segment {segment}: revision {revision} was written before revision {earlier}"
        for run, segment, revision, earlier in rows(
            file,
            "SELECT run_key, segment, revision, earlier FROM (SELECT run_key, segment, revision, "
            "lag(revision) OVER (PARTITION BY run_key, segment ORDER BY event_seq) AS earlier "
            "FROM events) WHERE earlier > revision",
        )
    ]


def i2_once(file: apsw.Connection) -> Broken:
    """No sequence was applied twice, or both applied and still missing, or past the last one."""
    found = rows(
        file,
        "SELECT run_key, producer_no, producer_seq, count(*) FROM events "
        "GROUP BY run_key, producer_no, producer_seq HAVING count(*) > 1",
    )
    found += rows(
        file,
        "SELECT e.run_key, e.producer_no, e.producer_seq, 'missing' FROM events e JOIN gaps g "
        "ON g.run_key = e.run_key AND g.producer_no = e.producer_no "
        "AND e.producer_seq BETWEEN g.first_seq AND g.last_seq",
    )
    found += rows(
        file,
        "SELECT e.run_key, e.producer_no, e.producer_seq, 'past the last' FROM events e "
        "LEFT JOIN producers p USING (run_key, producer_no) "
        "WHERE p.last_seq IS NULL OR e.producer_seq > p.last_seq",
    )
    return [f"sequence {row}" for row in found]


def i3_contiguous(file: apsw.Connection) -> Broken:
    """Revisions are 1 to n: of runs, of segments (whose first is their row), of updates' runs."""
    broken = []
    buried = dict(rows(file, "SELECT run_key, revision FROM tombstones"))
    heads = dict(rows(file, "SELECT run_key, revision FROM runs"))
    segments = {
        (key, no): last
        for key, no, last in rows(file, "SELECT run_key, segment, revision FROM segments")
    }
    found: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for key, segment, revision in rows(
        file, "SELECT run_key, segment, revision FROM events ORDER BY run_key, segment, revision"
    ):
        found[key, segment].append(revision)
    for key, last in heads.items():
        if found[key, 0] != list(range(1, last + 1)):
            broken.append(f"run {key} at {last} has revisions {found[key, 0]}")
    for key, last in buried.items():
        if found[key, 0] != [last] or key in heads:
            broken.append(f"deleted run {key} at {last} has revisions {found[key, 0]}")
    for (key, no), last in segments.items():
        if found[key, no] != list(range(2, last + 1)):
            broken.append(f"segment {no} of run {key} at {last} has revisions {found[key, no]}")
    known = {(key, 0) for key in (*heads, *buried)} | set(segments)
    broken += [f"revisions of nothing: {place}" for place in found if place not in known]
    return broken


def i4_cursor(file: apsw.Connection) -> Broken:
    """In a stream's first incarnation no row is past its cursor."""
    cursors = dict(rows(file, "SELECT run_key, message_id FROM cursors WHERE incarnation = 1"))
    return [
        f"run {key}: {message_id} is past the cursor {cursors[key]}"
        for table in ("events", "rejections")
        for key, message_id in rows(file, f"SELECT run_key, message_id FROM {table}")
        if key in cursors and order(message_id) > order(cursors[key])
    ]


def i5_fence(file: apsw.Connection) -> Broken:
    """Epochs' events lie one after the other, and the file's epoch is the last."""
    broken = []
    (epoch,) = rows(file, "SELECT epoch FROM file")[0]
    taken = rows(file, "SELECT epoch, first_event_seq, last_event_seq FROM commits ORDER BY epoch")
    if taken and taken[-1][0] != epoch:
        broken.append(f"the file's epoch is {epoch}, the last one taken {taken[-1][0]}")
    end = 0
    for number, first, last in taken:
        if first is not None:
            if not end < first <= last:
                broken.append(f"epoch {number} wrote events {first} to {last}, after {end}")
            end = last
    for key, seq in rows(
        file,
        "SELECT run_key, event_seq FROM events e WHERE NOT EXISTS (SELECT 1 FROM commits c "
        "WHERE e.event_seq BETWEEN c.first_event_seq AND c.last_event_seq)",
    ):
        broken.append(f"event {seq} of run {key} was written in no epoch")
    return broken


def i6_authority(file: apsw.Connection) -> Broken:
    """Lease generations never fall, and none is above the run's lease."""
    return [
        f"run {key}: generation {generation} at event {seq}, before {earlier}, lease {last}"
        for key, seq, generation, earlier, last in rows(
            file,
            "SELECT e.run_key, event_seq, e.lease_generation, "
            "lag(e.lease_generation, 1, 0) OVER (PARTITION BY e.run_key ORDER BY event_seq) AS p, "
            "coalesce(l.generation, 0) AS l FROM events e LEFT JOIN leases l USING (run_key) "
            "WHERE NOT EXISTS (SELECT 1 FROM tombstones t WHERE t.run_key = e.run_key)",
        )
        if generation < earlier or generation > last
    ]


def i7_accounted(file: apsw.Connection) -> Broken:
    """Each run's counts cover its rows: an applied command has at most one event, a refused one a
    rejection, unless the run was deleted.
    """
    return [
        f"run {key}: {applied} applied and {rejected} rejected, {events} events, {refused} letters"
        for key, applied, rejected, events, refused, buried in rows(
            file,
            "SELECT c.run_key, applied, rejected, "
            "(SELECT count(*) FROM events e WHERE e.run_key = c.run_key), "
            "(SELECT count(*) FROM rejections r WHERE r.run_key = c.run_key), "
            "EXISTS (SELECT 1 FROM tombstones t WHERE t.run_key = c.run_key) FROM cursors c",
        )
        if events > applied or (refused > rejected if buried else refused != rejected)
    ]


def i8_gaps(file: apsw.Connection) -> Broken:
    """A producer's gaps are apart, and below its last sequence."""
    broken = []
    end: dict[tuple[int, int], int] = {}
    for key, no, first, last, top in rows(
        file,
        "SELECT run_key, producer_no, first_seq, g.last_seq, p.last_seq FROM gaps g "
        "LEFT JOIN producers p USING (run_key, producer_no) "
        "ORDER BY run_key, producer_no, first_seq",
    ):
        before = end.get((key, no))
        if before is not None and first <= before + 1:
            broken.append(f"run {key} producer {no}: gap {first} to {last} touches the one before")
        if top is None or last >= top:
            broken.append(f"run {key} producer {no}: gap {first} to {last}, last sequence {top}")
        end[key, no] = last
    return broken


def i11_sound(file: apsw.Connection) -> Broken:
    """SQLite finds nothing wrong, states sum up to their digests, rejections to their hashes."""
    broken = [f"integrity: {row[0]}" for row in rows(file, "PRAGMA integrity_check")]
    broken = [] if broken == ["integrity: ok"] else broken
    broken += [f"foreign key: {row}" for row in rows(file, "PRAGMA foreign_key_check")]
    for (key,) in rows(file, "SELECT run_key FROM runs"):
        broken += [f"state of run {key} at {revision}" for revision in verify_states(file, key)]
    for seq, text, size, digest in rows(
        file, "SELECT rejection_seq, fields, fields_bytes, fields_sha256 FROM rejections"
    ):
        if text is not None and (size, digest) != _measured(text):
            broken.append(f"rejection {seq} is not the message that it was made of")
    return broken


def _measured(text: str) -> tuple[int, bytes]:
    fields = fields_of(orjson.loads(text))
    digest = sha256()
    for name, value in sorted(fields.items()):
        digest.update(b"%d:%b%d:%b" % (len(name), name, len(value), value))
    return sum(len(name) + len(value) for name, value in fields.items()), digest.digest()


def i12_readers(file: apsw.Connection) -> Broken:
    """One read sees one moment: no table is ahead of the run's revision, or behind its event."""
    broken = []
    for table in ("state_parts", "updates", "attempts", "effects"):
        broken += [
            f"run {key}: {table} at revision {revision} is ahead of the run"
            for key, revision in rows(
                file,
                f"SELECT t.run_key, t.revision FROM {table} t LEFT JOIN runs r USING (run_key) "
                "WHERE r.revision IS NULL OR t.revision > r.revision",
            )
        ]
    broken += [
        f"run {key}: update of revision {revision} has no event"
        for key, revision in rows(
            file,
            "SELECT run_key, revision FROM updates u WHERE NOT EXISTS (SELECT 1 FROM events e "
            "WHERE e.run_key = u.run_key AND e.segment = 0 AND e.revision = u.revision)",
        )
    ]
    for key, no, entries, events in rows(
        file, "SELECT run_key, segment, entry_count, event_count FROM segments"
    ):
        for table, count in (("session_entries", entries), ("session_events", events)):
            where = "WHERE run_key = ? AND segment = ?"
            query = f"SELECT count(*), coalesce(max(seq), 0) FROM {table} {where}"
            if rows(file, query, key, no) != [(count, count)]:
                broken.append(f"segment {no} of run {key} does not have {count} {table}")
    return broken


def i14_bounds(path: Path) -> Broken:
    """The WAL stays small."""
    wal = path.with_name(f"{path.name}-wal")
    size = wal.stat().st_size if wal.exists() else 0
    return [f"the WAL has {size} bytes"] if size > WAL_BYTES_MAX else []


OF_A_FILE = (
    i1_order,
    i2_once,
    i3_contiguous,
    i4_cursor,
    i5_fence,
    i6_authority,
    i7_accounted,
    i8_gaps,
    i11_sound,
    i12_readers,
)


def files(data: Path) -> Iterator[tuple[int, Path]]:
    """The partitions of a data folder."""
    for path in sorted(data.glob("p[0-9]*.sqlite")):
        yield int(path.stem[1:]), path


def broken_in(data: Path) -> Broken:
    """All that the files alone can tell."""
    broken = []
    for _, path in files(data):
        with closing(reading(path)) as file:
            broken += [
                f"{path.name} {rule.__name__}: {what}" for rule in OF_A_FILE for what in rule(file)
            ]
        broken += [f"{path.name} i14_bounds: {what}" for what in i14_bounds(path)]
    return broken


def assert_sound(data: Path) -> None:
    """Raise AssertionError with everything that is wrong with a data folder."""
    broken = broken_in(data)
    assert not broken, "\n".join(broken)


def reading(path: Path) -> apsw.Connection:
    """A connection that only reads."""
    return apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)


def lost_acked(data: Path, acked: Iterable[ACK]) -> list[ACK]:
    """I9: acknowledged commands of which the files know nothing."""
    last: dict[tuple[str, str], int] = {}
    missing: defaultdict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for _, path in files(data):
        with closing(reading(path)) as file:
            for run, producer, seq in rows(
                file,
                "SELECT run_id, producer, last_seq FROM producers JOIN cursors USING (run_key)",
            ):
                last[run, producer] = seq
            for run, producer, *gap in rows(
                file,
                "SELECT run_id, producer, first_seq, g.last_seq FROM gaps g "
                "JOIN producers USING (run_key, producer_no) JOIN cursors USING (run_key)",
            ):
                missing[run, producer].append((gap[0], gap[1]))
    return [
        (run, producer, seq)
        for run, producer, seq in acked
        if seq > last.get((run, producer), 0)
        or any(first <= seq <= end for first, end in missing[run, producer])
    ]


def _settled(file: apsw.Connection, runs: Sequence[str]) -> dict[str, str]:
    query = "SELECT message_id FROM cursors WHERE run_id = ?"
    found = {run: file.execute(query, (run,)).fetchone() for run in runs}
    return {run: row[0] for run, row in found.items() if row is not None}


def undrained(client: redis.Redis, keys: Keys, data: Path) -> Broken:
    """I13: partitions whose streams still hold what is not settled."""
    broken = []
    for partition, path in files(data):
        with closing(reading(path)) as file:
            left = backlog(client, keys, partition, partial(_settled, file))
        if left.messages:
            broken.append(f"{path.name}: {left.messages} messages wait in {left.streams} streams")
    return broken
