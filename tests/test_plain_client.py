"""A host that has a Redis client and nothing of ours drives a run from creation to completion.

The sending side is written from `docs/wire-contract.md` alone: redis-py, JSON, CRC-32 and SHA-256.
The reading side is SQLite's own client on the public views, and StateReader for the state. In
between stand a real server and a real daemon.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
import redis

from tests.support.servers import KINDS, RealServer
from tests.support.wait import poll
from writer.daemon import Daemon
from writer.settings import WriterSettings
from writer.store.reader import StateReader

pytestmark = pytest.mark.parametrize("redis_server", KINDS, indirect=True)

RUN = "plain-1"
Row = dict[str, Any]


class PlainHost:
    """One sending instance of a host in some other language."""

    def __init__(self, client: redis.Redis) -> None:
        self.client: Any = client
        self.partitions = int(client.hget("sw:meta", "partitions") or 0)
        self.name = f"plain-{secrets.token_hex(8)}"
        self.seqs: dict[str, int] = {}
        self.sent: list[tuple[str, dict[str, str]]] = []

    def place(self, run: str) -> str:
        """What the keys of the run's partition begin with."""
        return f"sw:{{{crc32(run.encode()) % self.partitions}}}"

    def send(
        self,
        run: str,
        kind: str,
        body: Any,
        *,
        auth: Any = None,
        raw: dict[str, str] | None = None,
    ) -> int:
        """Publish a command; returns its sequence. `raw` replaces fields of the message."""
        seq = self.seqs[run] = self.seqs.get(run, 0) + 1
        fields = {
            "v": "1",
            "kind": kind,
            "producer": self.name,
            "seq": str(seq),
            "body": json.dumps(body),
            "reply": self.name,
        }
        if auth is not None:
            fields["auth"] = json.dumps(auth)
        self.publish(run, fields | (raw or {}))
        return seq

    def publish(self, run: str, fields: dict[str, str]) -> None:
        place = self.place(run)
        command: list[str] = ["XADD", f"{place}:run:{run}", "*"]
        for name, value in fields.items():
            command += [name, value]
        self.client.execute_command(*command)
        now = str(int(time.time() * 1000))
        self.client.execute_command("ZADD", f"{place}:ready", "LT", now, run)
        self.sent.append((run, fields))

    def receipts(self, run: str) -> list[dict[str, str]]:
        """What the writer told this host of the partition that holds `run`, in order."""
        reply: Any = self.client.execute_command(
            "XRANGE", f"{self.place(run)}:reply:{self.name}", "-", "+"
        )
        return [{k.decode(): v.decode() for k, v in fields.items()} for _, fields in reply]

    def await_receipts(self, run: str, count: int) -> list[dict[str, str]]:
        def all_there() -> list[dict[str, str]]:
            told = self.receipts(run)
            return told if len(told) >= count else []

        return poll(all_there, message=f"{count} receipts")


class SilentLog:
    """Takes what the daemon says, and remembers which partitions it has taken."""

    def __init__(self) -> None:
        self.taken: set[int] = set()

    def info(self, event: str, **fields: Any) -> None:
        if event in ("taken", "recovered"):
            self.taken.add(fields["partition"])

    warning = info


@pytest.fixture
def data(tmp_path: Path, redis_server: RealServer) -> Iterator[Path]:
    """The data folder of a daemon that runs on `redis_server`."""
    log = SilentLog()
    daemon = Daemon(WriterSettings(data=tmp_path), redis_server.url, log)
    daemon.start()
    try:
        # SQLite's own client finds no view in a file that is just being made.
        poll(lambda: len(log.taken) == daemon.total, message="both files to be made")
        yield tmp_path
    finally:
        daemon.stop()
        daemon.wait()


@pytest.fixture
def host(data: Path, redis_client: redis.Redis) -> PlainHost:
    poll(lambda: redis_client.hget("sw:meta", "partitions"), message="the number of partitions")
    return PlainHost(redis_client)


def read(data: Path, query: str, *bindings: Any) -> list[Row]:
    """Rows of every partition file, as any SQLite client gets them."""
    rows: list[Row] = []
    for path in sorted(data.glob("p*.sqlite")):
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            rows += [dict(row) for row in connection.execute(query, bindings)]
    return rows


def drive(host: PlainHost) -> int:
    """A whole run under a lease; returns how many commands that were."""
    token = secrets.token_urlsafe(32)
    auth = {"owner_type": "host", "owner_id": "plain", "token": token}
    host.send(
        RUN,
        "run.create",
        {"workflow": "triage", "input": {"ticket": 4711}, "state": {"status": "running"}},
    )
    host.send(
        RUN,
        "lease.claim",
        {
            "owner_type": "host",
            "owner_id": "plain",
            "token_sha256": sha256(token.encode()).hexdigest(),
            "lease_ms": 30_000,
        },
    )
    # No answer was waited for: what follows brings the token, and no generation.
    started = {"type": "node_started", "scope": "node", "node_id": "plan", "attempt_id": "plan-1"}
    host.send(
        RUN,
        "run.snapshot",
        {"state": {"status": "running", "step": "plan"}, "event": started},
        auth=auth,
    )
    for completed in (3, 10):
        data = {"completed": completed, "total": 10, "unit": "files"}
        host.send(RUN, "run.update", {"type": "progress", "key": "tests", "data": data}, auth=auth)
    host.send(RUN, "session.bind", {"session": "session-1"}, auth=auth)
    for number, text in enumerate(("Which tests fail?", "Three of ten. ünïcode 🐢"), 1):
        entry = {"id": f"entry-{number}", "role": "user", "text": text}
        host.send(RUN, "session.entry", {"entry": entry}, auth=auth)
    events = [
        {"seq": seq, "at": f"2026-01-31T12:00:0{seq}.000Z", "type": "delta", "payload": {"n": seq}}
        for seq in (1, 2, 3)
    ]
    host.send(RUN, "session.events", {"events": events}, auth=auth)
    counts = {"entry_count": 2, "event_count": 3, "last_event_seq": 3}
    host.send(RUN, "session.capture", {"status": "complete", **counts}, auth=auth)
    host.send(
        RUN,
        "run.snapshot",
        {
            "state": {"status": "completed", "step": "plan", "finalOutput": {"failing": 3}},
            "event": {"type": "run_completed"},
        },
        auth=auth,
    )
    return host.send(RUN, "lease.release", {}, auth=auth)


def test_a_run_from_creation_to_completion(host: PlainHost, data: Path) -> None:
    commands = drive(host)
    told = host.await_receipts(RUN, commands)

    assert [receipt["outcome"] for receipt in told] == ["applied"] * commands
    assert [int(receipt["seq"]) for receipt in told] == list(range(1, commands + 1))
    assert {receipt["segment"] for receipt in told} == {"0", "1"}

    (run,) = read(data, "SELECT * FROM v_runs")
    assert run["run_id"] == RUN
    assert run["workflow"] == "triage"
    assert run["status"] == "completed"
    assert run["finished_at"] is not None
    assert run["lease_owner_id"] is None
    assert (run["entries"], run["session_events"]) == (2, 3)
    with closing(StateReader(data)) as reader:
        state = reader.state(RUN)
    assert state == {
        "status": "completed",
        "step": "plan",
        "finalOutput": {"failing": 3},
    }

    trace = read(data, "SELECT * FROM v_trace WHERE run_id = ? ORDER BY revision", RUN)
    assert [(row["revision"], row["type"]) for row in trace] == [
        (1, "run.create"),
        (2, "lease.claim"),
        (3, "node_started"),
        (4, "run.update"),
        (5, "run.update"),
        (6, "session.bind"),
        (7, "run_completed"),
        (8, "lease.release"),
    ]
    assert json.loads(trace[4]["payload"])["data"]["completed"] == 10

    transcript = read(data, "SELECT * FROM v_transcript WHERE run_id = ? ORDER BY seq", RUN)
    assert [json.loads(row["entry"])["text"] for row in transcript] == [
        "Which tests fail?",
        "Three of ten. ünïcode 🐢",
    ]
    recorded = read(data, "SELECT * FROM v_session_events WHERE run_id = ? ORDER BY seq", RUN)
    assert [json.loads(row["payload"])["n"] for row in recorded] == [1, 2, 3]

    (lag,) = read(data, "SELECT * FROM v_lag WHERE run_id = ?", RUN)
    assert (lag["applied"], lag["duplicates"], lag["rejected"]) == (commands, 0, 0)
    assert lag["missing"] == 0


def test_all_of_it_sent_again_changes_nothing(host: PlainHost, data: Path) -> None:
    commands = drive(host)
    host.await_receipts(RUN, commands)
    before = read(data, "SELECT * FROM v_trace") + read(data, "SELECT * FROM v_runs")

    for run, fields in list(host.sent):
        host.publish(run, fields)
    told = host.await_receipts(RUN, 2 * commands)

    assert [receipt["outcome"] for receipt in told[commands:]] == ["duplicate"] * commands
    assert read(data, "SELECT * FROM v_trace") + read(data, "SELECT * FROM v_runs") == before


def test_a_refusal_is_told_and_kept_and_disturbs_nobody(host: PlainHost, data: Path) -> None:
    commands = drive(host)
    stale = {"owner_type": "host", "owner_id": "other", "token": "the-token-of-a-stale-host"}
    host.send(RUN, "run.snapshot", {"state": {"status": "running"}}, auth=stale)
    host.send(RUN, "run.snapshot", {"state": {"status": "running"}})
    host.send(RUN, "run.annotate", {"title": "Done"})
    told = host.await_receipts(RUN, commands + 3)[commands:]

    assert [receipt.get("reason") for receipt in told] == [
        "lease_owner_changed",
        "run_terminal",
        None,
    ]
    refused = read(data, "SELECT * FROM v_rejections WHERE run_id = ? ORDER BY rejection_seq", RUN)
    assert [row["reason"] for row in refused] == ["lease_owner_changed", "run_terminal"]
    kept = read(data, "SELECT fields FROM rejections WHERE reason = 'lease_owner_changed'")
    assert json.loads(json.loads(kept[0]["fields"])["auth"]) == {
        "owner_type": "host",
        "owner_id": "other",
        "token_sha256": sha256(b"the-token-of-a-stale-host").hexdigest(),
    }
    assert read(data, "SELECT title, status FROM v_runs") == [
        {"title": "Done", "status": "completed"}
    ]


def test_a_broken_message_is_kept_and_uses_up_its_sequence(host: PlainHost, data: Path) -> None:
    host.send(RUN, "run.create", {})
    host.send(RUN, "run.snapshot", {}, raw={"body": "{torn"})
    host.send(RUN, "run.snapshot", {"state": {}}, raw={"surprise": "field"})
    host.send(RUN, "run.rename", {"title": "x"})
    last = host.send(RUN, "run.annotate", {"title": "still here"})
    poll(lambda: any(receipt["seq"] == str(last) for receipt in host.receipts(RUN)))

    (lag,) = read(data, "SELECT * FROM v_lag")
    assert (lag["applied"], lag["rejected"], lag["missing"]) == (2, 3, 0)
    refused = read(data, "SELECT * FROM v_rejections ORDER BY producer_seq")
    assert [(row["producer_seq"], row["reason"]) for row in refused] == [
        (2, "body_not_json"),
        (3, "field_unknown"),
        (4, "kind_unknown"),
    ]
