"""A world in which tests read as specifications: send commands as a host would, see how each ended.

There are three, and a test runs in all of them unless it says otherwise:

    core    `decide` alone, on aggregates in memory, with all facts in memory; it can not be read
    file    the applier over a real SQLite file; aggregates are loaded anew for every batch
    daemon  a real Redis server and a real daemon, reached by plain XADD and ZADD

    def test_an_update_is_applied(world: World) -> None:
        world.create("run-1")
        assert world.apply("run-1", "run.update", {...}).kind == "applied"

`world` gives each; `stored` gives those that can be read, through `reader` and `rows`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import apsw
import pytest

from producers.contract.commands import Auth
from producers.contract.envelope import decode, encode, seal
from producers.contract.keys import Keys
from tests.support.host import Host  # noqa: F401 - tests take it from here
from tests.support.servers import RealServer
from tests.support.wait import poll
from tests.support.workload import base_state, workflow
from writer.apply import Aggregates, Applier, Message, arrival_ms, order_of
from writer.core import outcome as core
from writer.core.decide import RULES_VERSION, decide
from writer.core.facts import Facts
from writer.core.run import Run
from writer.daemon import Daemon
from writer.dialects import DIALECTS
from writer.settings import WriterSettings
from writer.store.partition import PartitionFile, partition_path
from writer.store.reader import StateReader

START_MS = 1_700_000_000_000
"""What `at` counts from. A world begins a second before, so that a test may well say `at=0`."""

Kind = Literal["applied", "rejected", "duplicate", "held"]
Fields = Mapping[bytes, bytes]


class Outcome(NamedTuple):
    """How a message ended. `revision` is the run's, or the segment's where `segment` is not 0."""

    kind: Kind
    revision: int = 0
    segment: int = 0
    reason: str | None = None
    detail: str = ""


class Sent(NamedTuple):
    """A message that a world has taken: where it stands, and what it carries (token and all)."""

    run: str
    id: str
    producer: str
    seq: int
    fields: Fields


DUPLICATE = Outcome("duplicate")
HELD = Outcome("held")


class World(ABC):
    """Sends messages and tells how each ended. Times (`at`) are ms after `START_MS`."""

    name: str
    _besides: Fields = MappingProxyType({})
    """Fields of every message, beside those of its command."""

    def __init__(self) -> None:
        self._now = -1_000
        self._ids: dict[str, tuple[int, int]] = {}
        self._seqs: dict[tuple[str, str], int] = {}

    @abstractmethod
    def _deliver(self, message: Sent) -> None:
        """Put a message at the end of its run's stream."""

    @abstractmethod
    def settle(self) -> list[Outcome]:
        """Settle what was sent since the last time, in the order in which it was sent."""

    def send(
        self,
        run: str,
        kind: str,
        body: Mapping[str, Any] | None = None,
        *,
        auth: Auth | None = None,
        producer: str = "p",
        seq: int | None = None,
        at: int | None = None,
        raw: Mapping[bytes, bytes | None] | None = None,
    ) -> Sent:
        """Send a command; `raw` replaces fields of its message (None takes one away).

        Without `seq` it is the producer's next; without `at`, 1 ms after the message before.
        """
        number = self._seqs.get((run, producer), 0) + 1 if seq is None else seq
        self._seqs[run, producer] = max(number, self._seqs.get((run, producer), 0))
        fields = encode(kind, body or {}, producer=producer, seq=number, auth=auth)
        fields.update(self._besides)
        for name, value in (raw or {}).items():
            fields.pop(name, None)
            if value is not None:
                fields[name] = value
        sent = Sent(run, self._next_id(run, at), producer, number, fields)
        self._deliver(sent)
        return sent

    def resend(self, sent: Sent, *, at: int | None = None) -> Sent:
        """Send the same fields once more, as a client does that got no reply."""
        again = sent._replace(id=self._next_id(sent.run, at))
        self._deliver(again)
        return again

    def apply(
        self, run: str, kind: str, body: Mapping[str, Any] | None = None, **how: Any
    ) -> Outcome:
        """Send one command, settle, and return its outcome (the last one, if more were waiting)."""
        self.send(run, kind, body, **how)
        return self.settle()[-1]

    def must(
        self, run: str, kind: str, body: Mapping[str, Any] | None = None, **how: Any
    ) -> Outcome:
        """Like `apply`, for what only prepares a test: it has to be applied."""
        outcome = self.apply(run, kind, body, **how)
        assert outcome.kind == "applied", f"{kind}: {outcome}"
        return outcome

    def time(self) -> int:
        """When the last message came, as `at` counts it."""
        return self._now

    def create(self, run: str, **body: Any) -> Outcome:
        """Create a run of the pi dialect that has just started; `body` replaces its fields."""
        usual = {"dialect": "pi_workflows", "definition": workflow(), "state": base_state(run)}
        return self.must(run, "run.create", usual | body)

    def _next_id(self, run: str, at: int | None) -> str:
        self._now = self._now + 1 if at is None else at
        ms, n = self._ids.get(run, (0, 0))
        place = (START_MS + self._now, n + 1 if START_MS + self._now == ms else 0)
        assert place > (ms, n), "a stream's ids only rise: take a later `at`"
        self._ids[run] = place
        return f"{place[0]}-{place[1]}"


class CoreWorld(World):
    """`decide` and nothing else: one batch that never ends."""

    name = "core"

    def __init__(self) -> None:
        super().__init__()
        self._pending: list[Sent] = []
        self._runs: dict[str, tuple[Run, Facts]] = {}

    def run(self, run_id: str) -> Run:
        """The aggregate of a run."""
        return self._runs[run_id][0]

    def _deliver(self, message: Sent) -> None:
        self._pending.append(message)

    def settle(self) -> list[Outcome]:
        pending, self._pending = self._pending, []
        return [self._decide(message) for message in pending]

    def _decide(self, message: Sent) -> Outcome:
        run, facts = self._runs.setdefault(
            message.run, (Run(len(self._runs) + 1, message.run), Facts())
        )
        decoded = decode(message.run, message.id, seal(message.fields))
        return told(decide(run, decoded, arrival_ms(message.id), facts, DIALECTS))


class StoredWorld(World):
    """A world whose data lies in the SQLite file of its only partition."""

    def __init__(self, data: Path) -> None:
        super().__init__()
        self.data = data
        self.reader = StateReader(data)

    def close(self) -> None:
        """End it; its data stays."""
        self.reader.close()

    def state(self, run: str, revision: int | None = None) -> Any:
        """The run's state document; it must exist."""
        state = self.reader.state(run, revision)
        assert state is not None, f"{run} has no revision {revision}"
        return state

    def types(self, run: str) -> list[str]:
        """Types of the run's trace, by revision."""
        return [event["type"] for event in self.events(run)]

    def rows(self, query: str, *bindings: Any) -> list[dict[str, Any]]:
        """Rows of the partition file, as a reader of SQLite would get them."""
        connection = apsw.Connection(
            str(partition_path(self.data, 0)), flags=apsw.SQLITE_OPEN_READONLY
        )
        try:
            found = connection.execute(query, bindings)
            return [
                {column[0]: value for column, value in zip(found.description, row, strict=True)}
                for row in found
            ]
        finally:
            connection.close()

    def events(self, run: str, segment: int = 0) -> list[dict[str, Any]]:
        """The run's trace, or a segment's: its rows in `events` by revision."""
        return self.rows(
            "SELECT e.* FROM events e JOIN cursors USING (run_key) "
            "WHERE run_id = ? AND segment = ? ORDER BY revision",
            run,
            segment,
        )

    def only(self, table: str, run: str) -> dict[str, Any]:
        """The run's single row in a table."""
        (row,) = self.all(table, run)
        return row

    def all(self, table: str, run: str) -> list[dict[str, Any]]:
        """The run's rows in a table, in the order in which they were written."""
        return self.rows(
            f"SELECT t.*, c.run_id FROM {table} t JOIN cursors c USING (run_key) "
            "WHERE c.run_id = ?",
            run,
        )


class FileWorld(StoredWorld):
    """The applier over one partition file; what it knows of a run it loads anew for every batch."""

    name = "file"

    def __init__(self, data: Path, *, synchronous: str = "NORMAL") -> None:
        super().__init__(data)
        self.file = PartitionFile.open(
            partition_path(data, 0),
            partition=0,
            partitions=1,
            lineage="test",
            now=START_MS,
            synchronous=synchronous,
        )
        self.file.take("test", rules_version=RULES_VERSION, now=START_MS)
        self.applier = Applier(self.file, 0, 1, Aggregates(self.file))
        self._pending: list[Message] = []

    def _deliver(self, message: Sent) -> None:
        self._pending.append(Message(message.run, message.id, seal(message.fields)))

    def settle(self) -> list[Outcome]:
        batch, self._pending = self._pending, []
        settled, _ = self.applier.apply(batch, now=START_MS)
        self.applier.aggregates.drop({message.run for message in batch})
        ended = {(each.message.run, each.message.id): told(each.outcome) for each in settled}
        # Behind a message that waits for an upgrade all others of its run wait, too.
        self._pending = [
            message
            for message in batch
            if ended.get((message.run, message.id), HELD).kind == "held"
        ]
        return [ended.get((message.run, message.id), HELD) for message in batch]

    def close(self) -> None:
        self.file.close()
        super().close()


class DaemonWorld(StoredWorld):
    """A real server and a real daemon. Messages bring their ids, so lease times are exact, too."""

    name = "daemon"
    _besides = MappingProxyType({b"reply": b"world"})

    def __init__(self, data: Path, server: RealServer) -> None:
        super().__init__(data)
        self.lines: list[str] = []
        self.keys = Keys("world")
        self.client = server.client()
        settings = WriterSettings(
            data=data, redis=server.url, prefix="world", partitions=1, synchronous="NORMAL"
        )
        self.daemon = Daemon(settings, server.url, self)
        self.daemon.start()
        self._unsettled: list[Sent] = []
        try:
            # While it makes its file, a disk that is slow to sync keeps readers out of it.
            poll(self._has_begun, 60.0, "the daemon to take its partition")
        except BaseException:
            self.close()
            raise

    def info(self, event: str, **fields: Any) -> None:
        """The daemon's log."""
        self.lines.append(f"{event} {fields}")

    warning = info

    def _has_begun(self) -> bool:
        return any(line.startswith(("taken ", "recovered ")) for line in self.lines)

    def _deliver(self, message: Sent) -> None:
        fields: Any = dict(message.fields)
        stream = self.keys.run(0, message.run)
        self.client.xadd(stream, fields, id=message.id)
        self.client.zadd(self.keys.ready(0), {message.run: 0}, lt=True)
        self._unsettled.append(message)

    def settle(self) -> list[Outcome]:
        batch = self._unsettled
        ended = poll(lambda: self._ended(batch), 60.0, f"{len(batch)} messages to be settled")
        self._unsettled = [
            message for message, outcome in zip(batch, ended, strict=True) if outcome == HELD
        ]
        return ended

    def _ended(self, batch: Sequence[Sent]) -> list[Outcome]:
        """How each ended; nothing before all have."""
        receipts = self._receipts()
        found = []
        for message in batch:
            outcome = receipts.get((message.run, message.id)) or self._found(message)
            if outcome is None:
                return []
            found.append(outcome)
        return found

    def _receipts(self) -> dict[tuple[str, str], Outcome]:
        reply: Any = self.client.xrange(self.keys.reply(0, "world"))
        receipts = {}
        for _, pairs in reply:
            receipt = {name.decode(): value.decode() for name, value in pairs.items()}
            # A duplicate's receipt tells what became of the original.
            known = receipt["outcome"] == "duplicate"
            receipts[receipt["run"], receipt["message_id"]] = (
                DUPLICATE
                if known
                else Outcome(
                    receipt["outcome"],
                    int(receipt.get("revision", 0)),
                    int(receipt.get("segment", 0)),
                    receipt.get("reason"),
                    receipt.get("detail", ""),
                )
            )
        return receipts

    def _found(self, message: Sent) -> Outcome | None:
        """How a message ended that gets no receipt: its envelope is broken, or its run waits."""
        run = self.reader.run(message.run)
        if run is None:
            return None
        waits = run["quarantine"]
        if waits and order_of(message.id) >= order_of(waits["message_id"]):
            return HELD
        told = self.reader.outcome(message.run, message.id)
        if told is None or told["outcome"] != "rejected":
            return None
        return Outcome("rejected", reason=told["reason"], detail=told["detail"])

    def close(self) -> None:
        self.daemon.stop()
        # A mark ends the loop's sleep.
        self.client.zadd(self.keys.ready(0), {"wake-up": 0})
        self.daemon.wait()
        self.client.close()
        super().close()


def told(outcome: core.Outcome) -> Outcome:
    """An outcome of the core as worlds tell it."""
    match outcome:
        case core.Applied(_, revision, segment):
            return Outcome("applied", revision, segment)
        case core.Rejected(reason, detail):
            return Outcome("rejected", reason=reason.value, detail=detail)
        case core.Duplicate():
            return DUPLICATE
        case core.Held():
            return HELD
    raise AssertionError(outcome)


CORE, FILE = "core", "file"
DAEMON = pytest.param("daemon", marks=pytest.mark.server)


@pytest.fixture(params=[CORE, FILE, DAEMON])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Each of the three worlds."""
    yield from _made(request, tmp_path)


@pytest.fixture(params=[FILE, DAEMON])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Each of the two worlds that can be read."""
    yield from _made(request, tmp_path)


def _made(request: pytest.FixtureRequest, data: Path) -> Iterator[World]:
    if request.param == CORE:
        yield CoreWorld()
        return
    world: StoredWorld
    if request.param == FILE:
        world = FileWorld(data)
    else:
        world = DaemonWorld(data, request.getfixturevalue("redis_server"))
    try:
        yield world
    finally:
        world.close()
