"""Retention carried out: runs that are due are deleted, abandoned ones interrupted, by commands.

Each run is claimed first, for the system. The claim is granted only if nobody holds the run, and
its revision tells whether the run is still as it was judged: then, and only then, it is deleted.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from producers.contract.commands import Auth
from producers.contract.envelope import encode, token_sha256
from writer.clock import monotonic, sleep
from writer.store.reader import StateReader
from writer.streams.publish import Outgoing, Publisher

BATCH_RUNS = 100
"""Runs whose commands are on their way at once."""
LEASE_MS = 60_000
SETTLE_S = 60.0
POLL_S = 0.02
OWNER_ID = "retention"
ABANDONED = "Nothing was heard of the run for too long."

Record = dict[str, Any]


class Pruned(NamedTuple):
    """What became of runs, by id: gone, interrupted, or left alone with the cause."""

    deleted: list[str]
    interrupted: list[str]
    left: dict[str, str]


class Unanswered(Exception):
    """The writer did not settle in time what was sent; it is not lost."""


class Pruner:
    """Sends as one producer of its own. `check` is called while it waits, and may raise."""

    def __init__(
        self,
        reader: StateReader,
        publisher: Publisher,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._reader = reader
        self._publisher = publisher
        self._check = check
        self._producer = f"retention-{secrets.token_hex(8)}"
        token = secrets.token_urlsafe(24)
        self._auth = Auth(owner_type="system", owner_id=OWNER_ID, token=token)
        self._claim = {
            "owner_type": "system",
            "owner_id": OWNER_ID,
            "token_sha256": token_sha256(token),
            "lease_ms": LEASE_MS,
        }

    def prune(self, due: Sequence[Record], abandoned: Sequence[Record] = ()) -> Pruned:
        """Delete runs as `prune_candidates` tells of them, interrupt runs as `silent_runs` does.

        In batches of 100. Raises Unanswered, RedisUnavailable, StoreUnavailable.
        """
        pruned = Pruned([], [], {})
        for batch in _batches(abandoned):
            ours = self._claimed(batch, pruned)
            self._send(2, [(run, "run.interrupt", {"reason": ABANDONED}) for run in ours])
            self._send(3, [(run, "lease.release", {}) for run in ours])
            pruned.interrupted.extend(ours)
        for batch in _batches(due):
            ours = self._claimed(batch, pruned)
            self._send(2, [(run, "run.delete", {"reason": "retention"}) for run in ours])
            pruned.deleted.extend(ours)
        return pruned

    def _claimed(self, batch: Sequence[Record], pruned: Pruned) -> list[str]:
        """Claim runs; returns those that are ours, and as they were judged.

        Nobody else can change them from then on, so what follows applies.
        """
        outcomes = self._send(1, [(run["run_id"], "lease.claim", self._claim) for run in batch])
        ours, changed = [], []
        for run in batch:
            name = run["run_id"]
            outcome = outcomes[name]
            if outcome["outcome"] != "applied":
                pruned.left[name] = str(outcome.get("reason") or outcome["outcome"])
            elif outcome["revision"] == run["revision"] + 1:
                ours.append(name)
            else:
                pruned.left[name] = "changed"
                changed.append(name)
        self._send(2, [(name, "lease.release", {}) for name in changed])
        return ours

    def _send(
        self, seq: int, commands: Sequence[tuple[str, str, Mapping[str, Any]]]
    ) -> dict[str, Record]:
        """Send a command to each run, and wait for their outcomes."""
        items = [
            Outgoing(
                run,
                encode(
                    kind,
                    body,
                    producer=self._producer,
                    seq=seq,
                    auth=None if kind == "lease.claim" else self._auth,
                ),
            )
            for run, kind, body in commands
        ]
        ids = self._publisher.publish(items) if items else []
        waiting = {run: message for (run, _, _), message in zip(commands, ids, strict=True)}
        outcomes: dict[str, Record] = {}
        deadline = monotonic() + SETTLE_S
        while waiting:
            for run, message in list(waiting.items()):
                outcome = self._reader.outcome(run, message, self._producer, seq)
                if outcome is not None:
                    outcomes[run] = outcome
                    del waiting[run]
            if waiting:
                if monotonic() > deadline:
                    raise Unanswered(f"{len(waiting)} commands are not settled")
                self._check()
                sleep(POLL_S)
        return outcomes


def _batches(runs: Sequence[Record]) -> Iterator[Sequence[Record]]:
    for first in range(0, len(runs), BATCH_RUNS):
        yield runs[first : first + BATCH_RUNS]
