"""Hosts that send to a few runs: honest ones, stale ones, and some that send rubbish."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from hashlib import sha256
from itertools import islice
from random import Random
from typing import Any

from tests.simulation.server import Fields

Body = dict[str, Any]

OWNERS = ("a", "b")
LEASE_MS = (50, 2_000, 60_000)
STATES = ("run.create", "run.snapshot", "run.patch")
LARGE = "x" * 700
FAR = 2**33
WRONG_PARTITION = next(f"wrong-{n}" for n in range(99) if zlib.crc32(f"wrong-{n}".encode()) % 2)
INVALID_RUN = "-not-a-run"


def run_ids(count: int) -> list[str]:
    """Runs of partition 0 of 2."""
    names = (f"run-{n}" for n in range(999))
    return list(islice((name for name in names if zlib.crc32(name.encode()) % 2 == 0), count))


def encoded(body: Body) -> bytes:
    """A body as hosts send it."""
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


class Hosts:
    """Makes messages. Sequences are per run and producer; tokens per run and owner."""

    def __init__(
        self, random: Random, weights: dict[str, int], damage: float, newer: float
    ) -> None:
        self._random = random
        self._kinds = [kind for kind, weight in weights.items() for _ in range(weight)]
        self._damage = damage
        self._newer = newer
        self._seqs: dict[tuple[str, str], int] = {}
        self._tokens: dict[tuple[str, str], list[str]] = {}
        self._stated: dict[tuple[str, str], tuple[int, int]] = {}
        """The sequence of a producer's last state of a run, and how many items its log has."""
        self._sent: set[tuple[str, str]] = set()
        self._count = 0

    def message(self, run: str) -> Fields:
        """The next message that somebody sends to a run."""
        random = self._random
        producer = random.choice(["p", "q"])
        kind = random.choice(self._kinds)
        if random.random() < 0.7:
            # Mostly hosts know what has to come first, and that there is work left to do.
            needed = "session.bind" if kind.startswith("session.") else "run.create"
            needed = needed if (run, "run.create") in self._sent else "run.create"
            if (run, needed) not in self._sent or kind == "run.delete":
                kind = needed
        self._sent.add((run, kind))
        return self.command(run, producer, kind)

    def command(self, run: str, producer: str, kind: str) -> Fields:
        """A command under the producer's next sequence, or an odd one."""
        random = self._random
        seq = self._seqs.get((run, producer), 0) + 1
        self._seqs[run, producer] = seq
        if random.random() < self._damage / 4:
            # An honest producer never does this: a jump too far, or a sequence used before.
            seq = random.choice([seq + FAR, max(seq - 1, 1), max(seq - 3, 1)])
        self._count += 1
        self._producer = producer
        body = getattr(self, kind.replace(".", "_"))(run)
        if kind in STATES and random.random() < 0.97:
            log = self._logged(run, body)
            self._stated[run, producer] = (seq, log)
        fields = {
            b"v": b"1",
            b"kind": kind.encode(),
            b"producer": producer.encode(),
            b"seq": b"%d" % seq,
            b"body": encoded(body),
        }
        auth = self._auth(run, kind)
        if auth is not None:
            fields[b"auth"] = json.dumps(auth).encode()
        if random.random() < 0.2:
            fields[b"reply"] = producer.encode()
        if random.random() < self._newer:
            return {**fields, b"v": b"2", b"color": b"red"}
        if random.random() < self._damage:
            return random.choice(DAMAGES)(fields)
        return fields

    def _auth(self, run: str, kind: str) -> Body | None:
        random = self._random
        tokens = [(owner, self._tokens.get((run, owner), [])) for owner in OWNERS]
        known = [(owner, given) for owner, given in tokens if given]
        if kind == "lease.claim" or not known or random.random() < 0.15:
            return None
        owner, given = random.choice(known)
        auth: Body = {"owner_type": "host", "owner_id": owner, "token": given[-1]}
        odd = random.random()
        if odd < (0.4 if kind.startswith("session.") else 0.1):
            auth["token"] = random.choice(given)
        elif odd < 0.5:
            auth["generation"] = random.randint(1, 4)
        return auth

    # --- bodies --------------------------------------------------------------------------------

    def _state(self) -> Body:
        random = self._random
        state: Body = {"n": self._count}
        if random.random() < 0.6:
            # Most work goes on; some of it ends, and then only a reset leads on.
            state["status"] = random.choice(["running"] * 8 + ["waiting", "completed", "failed"])
        if random.random() < 0.1:
            state["title"] = random.choice(["t", "u"])
        if random.random() < 0.7:
            state["log"] = [self._item() for _ in range(random.randint(0, 3))]
        return state

    def _item(self) -> str:
        return self._random.choice(["short", LARGE]) + str(self._count)

    def _logged(self, run: str, body: Body) -> int:
        """How many items the log has after a state was sent."""
        if "base" not in body:
            return len(body.get("state", {}).get("log", ()))
        _, before = self._stated.get((run, self._producer), (0, 0))
        return before + sum(len(each["items"]) - each["delete"] for each in body["splice"])

    def run_patch(self, run: str) -> Body:
        random = self._random
        base, log = self._stated.get((run, self._producer), (1, 0))
        if random.random() < 0.05:
            base = max(base - 1, 1)
        body: Body = {"base": base, "remove": [], "set": [], "splice": []}
        if random.random() < 0.2:
            body["remove"].append(["title"])
        if random.random() < 0.6:
            body["set"].append({"path": ["n"], "value": self._count})
        if random.random() < 0.3:
            status = random.choice(["running"] * 8 + ["waiting", "completed"])
            body["set"].append({"path": ["status"], "value": status})
        if log and random.random() < 0.7:
            first = random.choice([0, log, random.randint(0, log)])
            gone = random.randint(0, min(1, log - first))
            new = [self._item() for _ in range(random.randint(0, 2))]
            where = {"path": ["log"], "length": log, "start": first, "delete": gone}
            body["splice"].append({**where, "items": new})
        if random.random() < 0.3:
            body["event"] = {"type": random.choice(["node_started", "node_finished"])}
        return body

    def run_create(self, run: str) -> Body:
        body: Body = {"state": {"status": "running", "n": 0}}
        odd = self._random.random()
        if odd < 0.1:
            body["status"] = "queued"
        elif odd < 0.2:
            body["definition"] = {"n": self._random.randint(1, 2)}
        elif odd < 0.25:
            del body["state"]
        return body

    def run_snapshot(self, run: str) -> Body:
        random = self._random
        body: Body = {"state": self._state()}
        if random.random() < 0.3:
            body["event"] = {"type": random.choice(["node_started", "node_finished"])}
        if random.random() < 0.15:
            body["expected_revision"] = random.randint(1, 12)
        if random.random() < 0.1:
            body["event"] = {"type": "note", "payload": {"x": LARGE}}
        return body

    def run_update(self, run: str) -> Body:
        return {
            "type": "note",
            "key": self._random.choice(["k", "l"]),
            "data": {"n": self._count},
        }

    def run_annotate(self, run: str) -> Body:
        return {"title": self._random.choice(["t", "u", "v"])}

    def run_interrupt(self, run: str) -> Body:
        return {"reason": "gone"}

    def _nothing(self, run: str) -> Body:
        return {}

    run_resume = run_reset = run_delete = lease_release = _nothing

    def session_bind(self, run: str) -> Body:
        return {"session": self._random.choice(["s", "s", "t"]), **self._key()}

    def session_entry(self, run: str) -> Body:
        entry: Body = {"text": self._random.choice("xy")}
        if self._random.random() < 0.7:
            entry["id"] = f"e{self._random.randint(1, 9)}"
        return {"entry": entry, **self._key()}

    def session_events(self, run: str) -> Body:
        first = self._random.randint(1, 3)
        events = [
            {"seq": first + n, "at": "t", "type": "turn", "payload": {}}
            for n in range(self._random.randint(1, 3))
        ]
        return {"events": events, **self._key()}

    def session_capture(self, run: str) -> Body:
        body: Body = {"status": self._random.choice(["recording", "recording", "complete"])}
        if self._random.random() < 0.3:
            body["entry_count"] = self._random.randint(0, 3)
        return {**body, **self._key()}

    def _key(self) -> Body:
        return {"capture_key": "k"} if self._random.random() < 0.3 else {}

    def lease_claim(self, run: str) -> Body:
        owner = self._random.choice(OWNERS)
        tokens = self._tokens.setdefault((run, owner), [])
        tokens.append(f"{owner}-{len(tokens)}-{self._count}")
        return {
            "owner_type": "host",
            "owner_id": owner,
            "token_sha256": sha256(tokens[-1].encode()).hexdigest(),
            "lease_ms": self._random.choice(LEASE_MS),
        }

    def lease_renew(self, run: str) -> Body:
        return {"lease_ms": self._random.choice(LEASE_MS)}


def _without(name: bytes) -> Callable[[Fields], Fields]:
    return lambda fields: {key: value for key, value in fields.items() if key != name}


DAMAGES: tuple[Callable[[Fields], Fields], ...] = (
    _without(b"body"),
    _without(b"v"),
    _without(b"producer"),
    lambda fields: fields | {b"seq": b"1.5"},
    lambda fields: fields | {b"seq": b"0"},
    lambda fields: fields | {b"v": b"one"},
    lambda fields: fields | {b"color": b"red"},
    lambda fields: fields | {b"kind": b"run.paint"},
    lambda fields: fields | {b"body": fields[b"body"][:-1]},
    lambda fields: fields | {b"kind": b"run.snapshot", b"body": b"{}"},
)
