"""A partition file with a crowd of open runs, made in minutes where messages would take hours.

One run is applied by the writer, message by message. The others are its rows once more, with
another key, name, and all times and message ids moved on: what the writer would have written for
the same bodies at those moments. `check` proves it of some of them, by digest. Rows lie as they
would have come in: blocks of runs that were busy together, their events in turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import apsw
import redis

from producers.contract.envelope import encode, seal
from producers.contract.keys import Keys
from tests.bench.room import Room
from tests.support.host import Host
from tests.support.workload import entry, event, text
from writer.apply import Aggregates, Applier, Message
from writer.core.decide import RULES_VERSION
from writer.store.database import open_reader, transaction
from writer.store.digest import digest_run
from writer.store.partition import PartitionFile, partition_path

Body = dict[str, Any]
Command = tuple[str, Body]

START_MS = 1_750_000_000_000
APART_MS = 10
"""Between two messages of a run, and between the beginnings of two runs."""
BLOCK = 500
"""Runs that were busy at the same time."""
PRODUCER = "crowd"
TIMES = ("recorded_at", "created_at", "updated_at", "acquired_at", "renewed_at", "expires_at")
TABLES = (
    "cursors",
    "producers",
    "runs",
    "leases",
    "segments",
    "events",
    "state_parts",
    "updates",
    "session_entries",
    "session_events",
)
"""Where an open run of the generic dialect leaves rows."""


def name_of(number: int) -> str:
    """The id of a run, from 0."""
    return f"crowd-{number:06d}"


def conversation(events: int) -> list[Command]:
    """The commands of one open run that make so many events, of all usual kinds. At least 4."""
    commands: list[Command] = [
        ("run.create", {"workflow": "crowd", "state": state_at(0)}),
        ("lease.claim", Host("crowd").claim(3_600_000)),
        ("session.bind", {"session": "session-1"}),
    ]
    for number in range(events - 3):
        match number % 10:
            case 0:
                draft = {"type": "node_finished", "payload": {"outcome": "ok"}}
                commands.append(("run.snapshot", {"state": state_at(number), "event": draft}))
            case 1 | 6:
                data = {"completed": number, "total": events, "label": text(number, 40)}
                commands.append(
                    (
                        "run.update",
                        {"type": "progress", "key": f"worker-{number % 3}", "data": data},
                    )
                )
            case 5:
                commands.append(("session.entry", {"entry": entry("", number)}))
            case _:
                seq = 1 + sum(each[0] == "session.events" for each in commands)
                commands.append(("session.events", {"events": [event(seq, "attempt-1")]}))
    return commands


def state_at(number: int) -> Body:
    """A state of about 1 KB of which a fifth changes with each number."""
    kept = {f"part-{place}": text(place, 200) for place in range(4)}
    return {"status": "running", "step": number, "output": text(1_000 + number, 200), **kept}


def messages(commands: Sequence[Command], number: int) -> Iterator[Message]:
    """The commands as messages to one run."""
    host = Host("crowd")
    host.claim()
    auth = None
    for place, (kind, body) in enumerate(commands):
        fields = seal(encode(kind, body, producer=PRODUCER, seq=place + 1, auth=auth))
        if kind == "lease.claim":
            auth = host.auth()
        at = START_MS + (number + place) * APART_MS
        yield Message(name_of(number), f"{at}-0", fields)


@dataclass(frozen=True, slots=True)
class Crowd:
    """What was made: a folder of one partition, its runs and the events of each."""

    data: Path
    runs: int
    commands: list[Command]

    @property
    def path(self) -> Path:
        """The partition's file."""
        return partition_path(self.data, 0)


def crowd_of(room: Room, runs: int, events: int) -> Crowd:
    """The crowd of this size, made when it is first asked for; later figures go on with it."""
    data = room.place / f"crowd-{runs}-{events}"
    if partition_path(data, 0).exists():
        return Crowd(data, runs, conversation(events))
    room.log(f"making {runs:,} runs of {events} events")
    return make_crowd(data, runs, events)


def make_crowd(data: Path, runs: int, events: int) -> Crowd:
    """Make a folder of one partition with `runs` open runs of `events` events each.

    Raises AssertionError if a copied run is not what the writer would have made of it.
    """
    data.mkdir(parents=True, exist_ok=True)
    crowd = Crowd(data, runs, conversation(events))
    _apply(crowd.path, crowd.commands, 0)
    with closing(apsw.Connection(str(crowd.path))) as connection:
        for pragma in ("synchronous = OFF", "journal_mode = OFF", "cache_size = -262144"):
            connection.execute(f"PRAGMA {pragma}").fetchall()
        _copy(connection, runs)
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
    check(crowd, sorted({1, runs // 2, runs - 1} - {0}))
    return crowd


def _apply(path: Path, commands: Sequence[Command], number: int) -> None:
    """Apply one run's commands to a new file, as the writer does."""
    with closing(
        PartitionFile.open(path, partition=0, partitions=1, lineage="crowd", now=START_MS)
    ) as file:
        file.take("crowd", rules_version=RULES_VERSION, now=START_MS)
        applier = Applier(file, 0, 1, Aggregates(file))
        settled, _ = applier.apply(messages(commands, number), now=START_MS)
    refused = [each for each in settled if type(each.outcome).__name__ != "Applied"]
    assert not refused, f"the crowd's own commands must apply: {refused[0]}"


def _copy(connection: apsw.Connection, runs: int) -> None:
    indexes = connection.execute(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL "
        "AND tbl_name IN (SELECT value FROM json_each(?))",
        ('["events", "state_parts", "updates", "session_entries", "session_events", "runs"]',),
    ).fetchall()
    with transaction(connection):
        for name, _ in indexes:
            connection.execute(f"DROP INDEX {name}")
        copies = {table: _copy_query(connection, table) for table in TABLES}
        for first in range(1, runs, BLOCK):
            span = (first, min(first + BLOCK, runs) - 1)
            for query in copies.values():
                connection.execute(query, span)
        for _, sql in indexes:
            connection.execute(sql)
        connection.execute(
            "UPDATE commits SET first_event_seq = 1, last_event_seq = (SELECT max(event_seq) FROM "
            "events), messages = (SELECT sum(applied) FROM cursors), unarchived = messages"
        )


def _copy_query(connection: apsw.Connection, table: str) -> str:
    """Inserts the rows of the first run again for the runs ?1 to ?2, in the order of its own."""
    columns: list[Any] = connection.execute(f"PRAGMA table_xinfo({table})").fetchall()
    key = [name for _, name, kind, _, _, place, _ in columns if kind == "INTEGER" and place == 1]
    names = [name for _, name, *_ in columns if name not in key or name == "run_key"]
    values = ", ".join(_moved(name) for name in names)
    return (
        "WITH RECURSIVE n (n) AS (SELECT ?1 UNION ALL SELECT n + 1 FROM n WHERE n < ?2) "
        f"INSERT INTO {table} ({', '.join(names)}) SELECT {values} FROM "
        f"(SELECT * FROM {table} WHERE run_key = 1) t CROSS JOIN n"
    )


def _moved(column: str) -> str:
    if column == "run_key":
        return "1 + n"
    if column == "run_id":
        return "printf('crowd-%06d', n)"
    if column == "message_id":
        return f"(CAST(substr(message_id, 1, 13) AS INTEGER) + n * {APART_MS}) || '-0'"
    if column == "payload":
        later = f"(payload ->> '$.expires_at') + n * {APART_MS}"
        claimed = f"json_set(payload, '$.expires_at', {later})"
        return f"CASE type WHEN 'lease.claim' THEN {claimed} ELSE payload END"
    if column in TIMES:
        return f"{column} + n * {APART_MS}"
    return f"t.{column}"


def check(crowd: Crowd, numbers: Sequence[int]) -> None:
    """Compare copied runs with what the writer makes of their messages."""
    for number in numbers:
        alone = crowd.data / f"check-{number}.sqlite"
        _apply(alone, crowd.commands, number)
        with closing(open_reader(alone)) as made, closing(open_reader(crowd.path)) as copied:
            assert digest_run(made, 1) == digest_run(copied, 1 + number), name_of(number)
        for path in crowd.data.glob(f"{alone.name}*"):
            path.unlink()


def make_streams(client: redis.Redis, crowd: Crowd) -> None:
    """Give Redis the streams as a writer leaves them: known, and all of them read and trimmed."""
    keys = Keys()
    with closing(open_reader(crowd.path)) as file:
        cursors = file.execute("SELECT run_id, message_id FROM cursors")
        while block := list(islice(cursors, BLOCK)):
            pipeline: Any = client.pipeline(transaction=False)
            for run, last in block:
                stream = keys.run(0, str(run))
                pipeline.xadd(stream, {"v": "1"}, id=last)
                pipeline.xtrim(stream, maxlen=0, approximate=False)
            pipeline.execute()


class Sender:
    """Sends more commands to runs of a crowd, under the lease that they have."""

    def __init__(self, client: redis.Redis, producer: str) -> None:
        host = Host("crowd")
        host.claim()
        self._auth = host.auth()
        self._client = client
        self._producer = producer
        self._sent: Counter[int] = Counter()
        self._entries: Counter[int] = Counter()

    def send(self, commands: Iterable[tuple[int, Command]], *, mark: bool = True) -> int:
        """Send commands to numbered runs, in pipelines; returns how many. Without `mark` no writer
        is told.
        """
        sent = 0
        waiting = iter(commands)
        while block := list(islice(waiting, BLOCK)):
            pipeline = self._client.pipeline(transaction=False)
            for number, (kind, body) in block:
                self._sent[number] += 1
                fields: Any = encode(
                    kind,
                    body,
                    producer=self._producer,
                    seq=self._sent[number],
                    auth=self._auth,
                )
                pipeline.xadd(Keys().run(0, name_of(number)), fields)
            if mark:
                pipeline.zadd(Keys().ready(0), _marks(number for number, _ in block), lt=True)
            pipeline.execute()
            sent += len(block)
        return sent

    def mark(self) -> None:
        """Mark every run that this one ever sent to."""
        self._client.zadd(Keys().ready(0), _marks(self._sent), lt=True)

    def entry(self, number: int) -> tuple[int, Command]:
        """One more transcript entry of 1 KB for a run."""
        self._entries[number] += 1
        document = LATER[self._entries[number] % len(LATER)]
        named = {**document, "id": f"{self._producer}-{self._entries[number]}"}
        return number, ("session.entry", {"entry": named})


def _marks(numbers: Iterable[int]) -> dict[str | bytes, float]:
    return {name_of(number): 0.0 for number in numbers}


LATER = [entry("later-", number) for number in range(100)]


def small_update(number: int) -> tuple[int, Command]:
    """A progress update for a run."""
    data = {"completed": number, "label": text(number % 100, 40)}
    return number, ("run.update", {"type": "progress", "key": "worker-0", "data": data})
