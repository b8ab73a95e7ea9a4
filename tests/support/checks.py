"""What must hold of any data folder, in plain SQL that shares nothing with the writer's own.

`check_data` looks at the files; `check_replay` rebuilds them from the archive and compares digests;
`drained` and `accounted` compare with what was sent.
"""

from __future__ import annotations

import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import redis

from tests.support.traffic import Traffic
from tests.support.wait import poll
from writer.apply import Aggregates, Applier
from writer.core.decide import RULES_VERSION
from writer.replay import catch_up
from writer.store.digest import digests
from writer.store.partition import PartitionFile, partition_path
from writer.streams.archive import archive_folder

# Each must find nothing. What it finds is what is wrong.
WRONG = {
    "revisions of a run or segment have a hole, or do not begin where they should": """
        SELECT run_key, segment, min(revision), max(revision), count(*) FROM events
        WHERE run_key NOT IN (SELECT run_key FROM tombstones)
        GROUP BY run_key, segment
        HAVING count(*) <> max(revision) - min(revision) + 1
          OR min(revision) <> iif(segment = 0, 1, 2)""",
    "a run is not at the revision of its last event": """
        SELECT run_id, r.revision, max(e.revision) FROM runs r
        LEFT JOIN events e ON e.run_key = r.run_key AND e.segment = 0
        GROUP BY r.run_key HAVING r.revision IS NOT max(e.revision)""",
    "a segment is not at the revision of its last event": """
        SELECT s.run_key, s.segment, s.revision, max(e.revision) FROM segments s
        LEFT JOIN events e USING (run_key, segment)
        GROUP BY s.run_key, s.segment HAVING s.revision <> coalesce(max(e.revision), 1)""",
    "a producer's sequence made two events": """
        SELECT run_key, producer_no, producer_seq, count(*) FROM events
        GROUP BY 1, 2, 3 HAVING count(*) > 1""",
    "a command was both applied and refused": """
        SELECT e.run_key, p.producer, e.producer_seq, r.reason FROM events e
        JOIN producers p USING (run_key, producer_no)
        JOIN rejections r ON r.run_key = e.run_key AND r.producer = p.producer
          AND r.producer_seq = e.producer_seq AND r.body_hash = e.body_hash""",
    "a run has more events than applied commands": """
        SELECT run_id, applied, count(event_seq) FROM cursors JOIN events USING (run_key)
        WHERE run_key NOT IN (SELECT run_key FROM tombstones)
        GROUP BY run_key HAVING count(event_seq) > applied""",
    "a run has not as many rejections as its cursor counts": """
        SELECT run_id, rejected, count(rejection_seq) FROM cursors
        LEFT JOIN rejections USING (run_key)
        WHERE run_key NOT IN (SELECT run_key FROM tombstones)
        GROUP BY run_key HAVING rejected <> count(rejection_seq)""",
    "a sequence beyond the producer's last was used": """
        SELECT e.run_key, p.producer, e.producer_seq, p.last_seq FROM events e
        JOIN producers p USING (run_key, producer_no) WHERE e.producer_seq > p.last_seq""",
    "a missing sequence was applied": """
        SELECT e.run_key, e.producer_no, e.producer_seq FROM events e
        JOIN gaps g USING (run_key, producer_no)
        WHERE e.producer_seq BETWEEN g.first_seq AND g.last_seq""",
    "a gap ends at or past the producer's last sequence": """
        SELECT g.* FROM gaps g JOIN producers USING (run_key, producer_no)
        WHERE g.last_seq >= producers.last_seq""",
    "entries of a transcript have a hole": """
        SELECT run_key, segment, count(*), max(seq) FROM session_entries
        GROUP BY 1, 2 HAVING count(*) <> max(seq)""",
    "events of a session have a hole": """
        SELECT run_key, segment, count(*), max(seq) FROM session_events
        GROUP BY 1, 2 HAVING count(*) <> max(seq)""",
    "a segment's counts are not what is stored": """
        SELECT s.run_key, s.segment, entry_count, event_count FROM segments s
        WHERE entry_count <> (SELECT count(*) FROM session_entries e
            WHERE (e.run_key, e.segment) = (s.run_key, s.segment))
          OR event_count <> (SELECT count(*) FROM session_events e
            WHERE (e.run_key, e.segment) = (s.run_key, s.segment))""",
    "an update is not its event's": """
        SELECT u.run_key, u.revision, u.data, e.producer_seq FROM updates u
        LEFT JOIN events e ON e.run_key = u.run_key AND e.segment = 0 AND e.revision = u.revision
        WHERE e.event_seq IS NULL OR u.data ->> 'n' <> e.producer_seq""",
    "an older epoch wrote after a newer one, or an event has no epoch": """
        SELECT e.event_seq, c.epoch FROM events e LEFT JOIN commits c
          ON e.event_seq BETWEEN c.first_event_seq AND c.last_event_seq
        GROUP BY e.event_seq HAVING count(c.epoch) <> 1""",
    "the range of an epoch lies below that of an older one": """
        SELECT a.epoch, b.epoch FROM commits a JOIN commits b
          ON a.epoch < b.epoch AND a.last_event_seq >= b.first_event_seq""",
    "an epoch is past the file's": """
        SELECT epoch FROM commits WHERE epoch > (SELECT epoch FROM file)""",
    "messages were counted that no commit has": """
        SELECT * FROM (SELECT sum(applied + duplicates + rejected) AS ended FROM cursors)
        JOIN (SELECT sum(messages) AS committed FROM commits) WHERE ended <> committed""",
}


def open_file(path: Path) -> apsw.Connection:
    """A partition file, read-only."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(60_000)
    return connection


def rows(data: Path, query: str, *bindings: Any) -> list[tuple[Any, ...]]:
    """Rows of all partition files of a folder; one that its writer is about to make has none."""
    found: list[tuple[Any, ...]] = []
    for path in sorted(data.glob("p*.sqlite")):
        with closing(open_file(path)) as connection:
            if connection.pragma("user_version"):
                found += connection.execute(query, bindings).fetchall()
    return found


def check_data(data: Path) -> None:
    """Every file is sound, and nothing of `WRONG` is in it."""
    for path in sorted(data.glob("p*.sqlite")):
        check_file(path)


def check_file(path: Path) -> None:
    """One file is sound, and nothing of `WRONG` is in it."""
    with closing(open_file(path)) as connection:
        connection.execute("BEGIN")
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        for what, query in WRONG.items():
            found = connection.execute(query).fetchall()[:5]
            assert not found, f"{path.name}: {what}: {found}"
        _check_order(connection)


def _check_order(connection: apsw.Connection) -> None:
    """By revision, message ids rise, but where a stream was replaced; none passes the cursor."""
    replaced = {
        key for (key,) in connection.execute("SELECT run_key FROM cursors WHERE incarnation > 1")
    }
    cursors = dict(connection.execute("SELECT run_key, message_id FROM cursors"))
    last: dict[int, tuple[int, int]] = {}
    for key, message_id in connection.execute(
        "SELECT run_key, message_id FROM events ORDER BY event_seq"
    ):
        if key in replaced:
            continue
        place = order(message_id)
        assert place > last.get(key, (-1, 0)), f"run {key}: {message_id} was applied out of order"
        assert place <= order(cursors[key]), f"run {key}: {message_id} is past the cursor"
        last[key] = place


def order(message_id: str) -> tuple[int, int]:
    """What message ids are compared by."""
    ms, n = message_id.split("-")
    return int(ms), int(n)


def sequences(data: Path, table: str = "events") -> dict[tuple[str, str], set[int]]:
    """Sequences that were applied (`events`) or refused (`rejections`), by run and producer."""
    query = {
        "events": "SELECT run_id, producer, producer_seq FROM events "
        "JOIN producers USING (run_key, producer_no) JOIN cursors USING (run_key)",
        "rejections": "SELECT run_id, producer, producer_seq FROM rejections "
        "JOIN cursors USING (run_key)",
    }[table]
    found: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for run, producer, seq in rows(data, query):
        found[run, producer].add(seq)
    return found


def gaps(data: Path, producer: str = "%") -> dict[tuple[str, str], list[tuple[int, int]]]:
    """Ranges of sequences that the files say are missing, by run and producer (a LIKE pattern)."""
    found: defaultdict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for run, name, first, last in rows(
        data,
        "SELECT run_id, producer, first_seq, g.last_seq FROM gaps g "
        "JOIN producers USING (run_key, producer_no) JOIN cursors USING (run_key) "
        "WHERE producer LIKE ? ORDER BY first_seq",
        producer,
    ):
        found[run, name].append((first, last))
    return found


def settled(data: Path) -> int:
    """How many messages have ended."""
    return sum(
        count
        for (count,) in rows(
            data, "SELECT coalesce(sum(applied + duplicates + rejected), 0) FROM cursors"
        )
    )


def waiting(client: redis.Redis, prefix: str = "sw") -> int:
    """Messages that streams of runs still hold."""
    total = 0
    for name in client.scan_iter(match=f"{prefix}:*:run:*", _type="STREAM"):
        total += client.xlen(name)
    return total


def drained(client: redis.Redis, data: Path, traffic: Traffic, timeout_s: float = 240.0) -> None:
    """Wait until the last confirmed command of each run has ended and Redis holds none any more.

    What Redis lost before is not waited for.
    """
    last = {run: order(acked[max(acked)]) for run, acked in traffic.acked.items()}

    def behind() -> list[str]:
        cursors = dict(rows(data, "SELECT run_id, message_id FROM cursors"))
        return [run for run, place in last.items() if order(cursors.get(run, "0-0")) < place]

    try:
        poll(lambda: not behind() and waiting(client, traffic.keys.prefix) == 0, timeout_s)
    except AssertionError:
        raise AssertionError(
            f"{len(behind())} runs are behind, {waiting(client, traffic.keys.prefix)} messages "
            f"wait in Redis after {timeout_s} s"
        ) from None


def accounted(data: Path, traffic: Traffic, lost: Mapping[str, set[int]] | None = None) -> None:
    """Each confirmed command was applied once, but those that are known to be lost: these are
    gaps, to the number.
    """
    applied = sequences(data)
    told = gaps(data, traffic.producer)
    for run, acked in traffic.acked.items():
        gone = (lost or {}).get(run, set())
        have = applied[run, traffic.producer]
        absent = set(acked) - gone - have
        assert not absent, f"{run}: confirmed and not applied: {sorted(absent)[:20]}"
        assert max(have, default=0) <= traffic.attempted[run]
        last = max(have, default=0)
        holes = {seq for seq in range(1, last) if seq not in have}
        refused = sequences(data, "rejections")[run, traffic.producer] if holes else set()
        assert told[run, traffic.producer] == ranges(holes - refused), run


def ranges(numbers: set[int]) -> list[tuple[int, int]]:
    """The same numbers as (first, last) of each run without a hole."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def digests_of(path: Path) -> dict[str, str]:
    """Digest by run."""
    with closing(open_file(path)) as connection:
        return {run: found.hex() for run, found in digests(connection)}


def check_replay(data: Path) -> None:
    """The archive alone gives the same digests, run by run. The daemon must have ended."""
    for path in sorted(data.glob("p*.sqlite")):
        with tempfile.TemporaryDirectory(prefix="sw-replay-") as folder:
            rebuilt = rebuild(data, path, Path(folder))
            assert digests_of(rebuilt) == digests_of(path), f"{path.name} differs from its replay"


def rebuild(data: Path, path: Path, into: Path) -> Path:
    """A partition file made anew from the archive of one."""
    ((partition, partitions),) = rows_of(path, "SELECT partition, partitions FROM file")
    rebuilt = partition_path(into, partition)
    file = PartitionFile.open(
        rebuilt,
        partition=partition,
        partitions=partitions,
        lineage="replay",
        now=0,
        synchronous="OFF",
    )
    try:
        file.take("replay", rules_version=RULES_VERSION, now=0)
        applier = Applier(file, partition, partitions, Aggregates(file))
        catch_up(applier, archive_folder(data, partition), now=0)
    finally:
        file.close()
    return rebuilt


def rows_of(path: Path, query: str) -> list[tuple[Any, ...]]:
    """Rows of one file."""
    with closing(open_file(path)) as connection:
        return connection.execute(query).fetchall()


def check_all(data: Path) -> None:
    """What must hold once a daemon has ended."""
    check_data(data)
    check_replay(data)


def no_token_in(data: Path, token: str) -> None:
    """A token is in no file of the data folder."""
    pattern = re.compile(re.escape(token.encode()))
    for path in _files(data):
        assert not pattern.search(path.read_bytes()), f"{path} holds a token"


def _files(folder: Path) -> Iterator[Path]:
    yield from (path for path in folder.rglob("*") if path.is_file())
