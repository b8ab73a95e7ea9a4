"""One installation, as an operator sees it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest

from producers.contract.commands import Auth
from producers.contract.envelope import encode, token_sha256
from producers.contract.keys import Keys, partition_of
from tests.support.servers import RealServer
from tests.support.wait import poll
from writer.apply import order_of
from writer.cli import run as run_command
from writer.daemon import Daemon
from writer.settings import WriterSettings
from writer.store.partition import partition_path
from writer.store.reader import StateReader

TOKEN = "open sesame"


class Ran(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    def ok(self) -> Ran:
        """Itself, if it ended well."""
        assert self.code == 0, self
        return self

    def json(self) -> Any:
        """What it printed, as one JSON value."""
        return json.loads(self.out)

    def lines(self) -> list[Any]:
        """What it printed, a JSON value a line."""
        return [json.loads(line) for line in self.out.splitlines()]


class Log(NamedTuple):
    """What a daemon said."""

    lines: list[tuple[str, dict[str, Any]]]

    def info(self, event: str, **fields: Any) -> None:
        """One line."""
        self.lines.append((event, fields))

    def warning(self, event: str, **fields: Any) -> None:
        """One line that someone should know."""
        self.lines.append((event, {"warning": True, **fields}))

    def of(self, event: str) -> list[dict[str, Any]]:
        """The lines of one kind."""
        return [fields for name, fields in self.lines if name == event]


class Site:
    """A data folder, its Redis, its daemon, and who sends to it."""

    def __init__(
        self,
        data: Path,
        server: RealServer,
        capture: pytest.CaptureFixture[str],
        partitions: int = 1,
    ) -> None:
        self.data = data
        self.server = server
        self.log = Log([])
        self.client = server.client()
        self.keys = Keys()
        self.partitions = partitions
        self.daemon: Daemon | None = None
        self._capture = capture
        self._seqs: dict[tuple[str, str], int] = {}
        self._last: dict[str, str] = {}

    def start(self, **settings: Any) -> Daemon:
        """Start a daemon, and wait until it writes every partition."""
        before = len(self.log.lines)
        options = {"sweep_ms": 100, "synchronous": "FULL", "lease_ttl_ms": 1_000, **settings}
        accept_loss = options.pop("accept_loss", False)
        made = WriterSettings(
            data=self.data, redis=self.server.url, partitions=self.partitions, **options
        )
        self.daemon = Daemon(made, self.server.url, self.log, accept_loss=accept_loss)
        self.daemon.start()
        daemon = self.daemon
        poll(
            lambda: daemon.error is not None or len(self._taken(before)) == self.partitions,
            message="the daemon to run",
        )
        return daemon

    def _taken(self, before: int) -> set[int]:
        """Partitions that a daemon took; one that had to wait for something is `recovered`."""
        return {
            fields["partition"]
            for event, fields in self.log.lines[before:]
            if event in ("taken", "recovered")
        }

    def stop(self) -> None:
        """Stop the daemon; raises what ended it, if something did."""
        daemon, self.daemon = self.daemon, None
        if daemon is not None:
            daemon.stop()
            for partition in range(self.partitions):
                # Ends the loop's sleep.
                self.client.zadd(self.keys.ready(partition), {"wake-up": 0})
            try:
                daemon.wait()
            finally:
                # One that took too long to stop could not give its lease back, and as its process
                # lives on, the next one would find the partition taken until that has run out.
                owners = [self.keys.owner(partition) for partition in range(self.partitions)]
                poll(lambda: not self.client.exists(*owners), message="the leases to end")

    def close(self) -> None:
        """End it all."""
        self.stop()
        self.client.close()

    def send(
        self,
        run: str,
        kind: str,
        body: Mapping[str, Any] | None = None,
        *,
        auth: Auth | None = None,
        producer: str = "p",
        raw: Mapping[bytes, bytes] | None = None,
    ) -> str:
        """Send a command as any host does; returns its message id."""
        number = self._seqs[run, producer] = self._seqs.get((run, producer), 0) + 1
        fields: Any = {
            **encode(kind, body or {}, producer=producer, seq=number, auth=auth),
            **(raw or {}),
        }
        partition = partition_of(run, self.partitions)
        message_id = self.client.xadd(self.keys.run(partition, run), fields)
        assert isinstance(message_id, bytes)
        self.client.zadd(self.keys.ready(partition), {run: 0}, lt=True)
        self._last[run] = message_id.decode()
        return self._last[run]

    def settle(self) -> None:
        """Until all that was sent is settled."""
        poll(self._is_settled, message=f"{self._last} to be settled")

    def _is_settled(self) -> bool:
        with StateReader(self.data) as reader:
            known = reader.settled(self._last)
        return all(
            run in known
            and (
                order_of(known[run][1]) >= order_of(last)
                # The stream of an ended run was removed. It may have been before this message.
                or (known[run][1] == "0-0" and not self._waits_in_redis(run))
            )
            for run, last in self._last.items()
        )

    def _waits_in_redis(self, run: str) -> bool:
        return bool(self.client.xlen(self.keys.run(partition_of(run, self.partitions), run)))

    def forget(self) -> None:
        """What was sent so far is lost: nobody waits for it."""
        self._last.clear()

    def done(self, run: str, kind: str, body: Mapping[str, Any] | None = None, **how: Any) -> str:
        """Send a command and wait until it is settled; returns its message id."""
        message_id = self.send(run, kind, body, **how)
        self.settle()
        return message_id

    def cli(self, *arguments: str | Path, redis: str | None = None) -> Ran:
        """Run one of the program's commands on this installation; `redis` is another URL."""
        url = self.server.url if redis is None else redis
        where = ["--data", str(self.data), "--redis", url]
        self._capture.readouterr()
        code = run_command([*map(str, arguments), *where])
        return Ran(code, *self._capture.readouterr())

    def digest(self, data: Path | None = None) -> dict[str, str]:
        """The digest of every run."""
        with StateReader(data or self.data) as reader:
            found: dict[str, str] = reader.digest()["runs"]
        return found

    def rejections(self, **filters: Any) -> list[dict[str, Any]]:
        """Rejections, the oldest first."""
        with StateReader(self.data) as reader:
            return reader.rejections(**filters).rejections[::-1]

    def run(self, run: str) -> dict[str, Any]:
        """One run, which exists."""
        with StateReader(self.data) as reader:
            found = reader.run(run)
        assert found is not None
        return found

    def rows(self, query: str, *bindings: Any, data: Path | None = None) -> list[dict[str, Any]]:
        """Rows of the first partition's file."""
        path = partition_path(data or self.data, 0)
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        connection.set_busy_timeout(5_000)
        try:
            found = connection.execute(query, bindings)
            return [
                {column[0]: value for column, value in zip(found.description, row, strict=True)}
                for row in found
            ]
        finally:
            connection.close()

    def edit(self, statement: str, *bindings: Any) -> None:
        """Change the first partition's file behind its writer's back; no daemon runs."""
        assert self.daemon is None
        connection = apsw.Connection(str(partition_path(self.data, 0)))
        try:
            connection.execute(statement, bindings).fetchall()
        finally:
            connection.close()


def claim(owner: str = "host-1", lease_ms: int = 3_600_000) -> dict[str, Any]:
    """The body of a claim."""
    return {
        "owner_type": "host",
        "owner_id": owner,
        "token_sha256": token_sha256(TOKEN),
        "lease_ms": lease_ms,
    }


def auth(owner: str = "host-1") -> Auth:
    """The authority that goes with it."""
    return Auth(owner_type="host", owner_id=owner, token=TOKEN)
