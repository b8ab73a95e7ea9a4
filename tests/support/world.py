"""A world in which tests read as specifications: send commands as a host would, see how each ended.

There are three, and a test runs in all of them unless it says otherwise:

    core    `decide` alone, on aggregates in memory, with all facts in memory; it can not be read
    file    the applier over a real SQLite file; aggregates are loaded anew for every batch
    daemon  a real server and a real daemon (`DaemonWorld`)

    def test_an_update_is_applied(world: World) -> None:
        world.create("run-1")
        assert world.apply("run-1", "run.update", {...}).kind == "applied"

`world` gives each; `stored` gives those that can be read, through `reader` and `rows`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import apsw
import pytest

from producers.contract.commands import Auth
from producers.contract.envelope import decode, encode, seal, token_sha256
from writer.apply import Aggregates, Applier, Message, arrival_ms
from writer.core import outcome as core
from writer.core.decide import RULES_VERSION, decide
from writer.core.facts import Facts
from writer.core.run import Run
from writer.dialects import DIALECTS
from writer.store.partition import PartitionFile, partition_path

START_MS = 1_700_000_000_000
"""When every world begins; `at` counts from here."""

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


def applied(revision: int, segment: int = 0) -> Outcome:
    """What an applied command ends as."""
    return Outcome("applied", revision, segment)


def rejected(reason: str) -> Outcome:
    """What a refused command ends as, its detail aside: compare with `Outcome.bare`."""
    return Outcome("rejected", reason=reason)


DUPLICATE = Outcome("duplicate")


def bare(outcome: Outcome) -> Outcome:
    """The outcome without its detail."""
    return outcome._replace(detail="")


class Host:
    """A host that claims runs: its owner id outlives a restart, its tokens do not."""

    def __init__(self, owner: str, owner_type: str = "host") -> None:
        self.owner = owner
        self.owner_type = owner_type
        self._claims = 0

    def claim(self, lease_ms: int = 10_000) -> dict[str, Any]:
        """The body of its next claim, under a new token."""
        self._claims += 1
        return {
            "owner_type": self.owner_type,
            "owner_id": self.owner,
            "token_sha256": token_sha256(self.token()),
            "lease_ms": lease_ms,
        }

    def token(self, claim: int | None = None) -> str:
        """The token of its last claim, or of an earlier one (1, 2, ...)."""
        return f"token-{self.owner}-{self._claims if claim is None else claim}"

    def auth(self, generation: int | None = None, *, claim: int | None = None) -> Auth:
        """Its authority; without a generation, as a host that pipelines behind its own claim."""
        return Auth.model_validate(
            {
                "owner_type": self.owner_type,
                "owner_id": self.owner,
                "token": self.token(claim),
                "generation": generation,
            }
        )


class World(ABC):
    """Sends messages and tells how each ended. Times (`at`) are ms after `START_MS`."""

    name: str

    def __init__(self) -> None:
        self._now = 0
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

    def _next_id(self, run: str, at: int | None) -> str:
        self._now = self._now + 1 if at is None else at
        ms, n = self._ids.get(run, (-1, 0))
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
    """A world whose data lies in SQLite files."""

    data: Path
    partitions: int

    def rows(self, query: str, *bindings: Any) -> list[dict[str, Any]]:
        """Rows of the (first) partition file, as a reader of SQLite would get them."""
        connection = apsw.Connection(
            str(partition_path(self.data, 0)), flags=apsw.SQLITE_OPEN_READONLY
        )
        try:
            found = connection.execute(query, bindings)
            rows = found.fetchall()
            names = [column[0] for column in found.description] if rows else []
            return [dict(zip(names, row, strict=True)) for row in rows]
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
        super().__init__()
        self.data = data
        self.partitions = 1
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
        """Close the file."""
        self.file.close()


HELD = Outcome("held")


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


@pytest.fixture(params=["core", "file"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Each of the worlds."""
    yield from _made(request.param, tmp_path)


@pytest.fixture(params=["file"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Each of the worlds that can be read."""
    yield from _made(request.param, tmp_path)


def _made(name: str, data: Path) -> Iterator[World]:
    if name == "core":
        yield CoreWorld()
        return
    world = FileWorld(data)
    try:
        yield world
    finally:
        world.close()


def in_order(outcomes: Sequence[Outcome]) -> list[int]:
    """The revisions of outcomes that must all be applied."""
    assert all(outcome.kind == "applied" for outcome in outcomes), outcomes
    return [outcome.revision for outcome in outcomes]
