"""Steps of hosts, writers and accidents in any order: after each, the file is what a model says.

Hosts send, with gaps, repeats and stale authority; the writer settles, dies at a named point,
begins anew, or reads a stream again. The model judges each message by itself.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from producers.contract.commands import Auth
from producers.contract.envelope import encode, seal, token_sha256
from tests.properties.model import Proof, RunModel, Sent
from tests.properties.partition import Partition
from tests.properties.test_promises import word
from writer.apply import Message
from writer.store.invariants import standing, violations

START_MS = 1_700_000_000_000
RUNS = ("run-0", "run-1")
PRODUCERS = ("p", "q")
OWNERS = ("host-a", "host-b")
LEASE_MS = 40
POINTS = ("decided", "begun", "archived", "inserted", "put", "written", "committed")
KINDS = (
    *["run.update", "run.snapshot"] * 3,
    *["run.create", "lease.claim"] * 2,
    *["run.annotate", "lease.renew", "lease.release", "broken"],
)
runs, producers = st.sampled_from(RUNS), st.sampled_from(PRODUCERS)
sizes = st.sampled_from([1, 3, 50])


class Killed(Exception):
    """The writer dies here."""


class Steps(RuleBasedStateMachine):
    """A stream, the writer's file, and the model of it."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="sw-")
        self.file = Partition(Path(self.folder.name))
        self.model = {run: RunModel() for run in RUNS}
        self.stream: list[tuple[Sent, Message]] = []
        self.settled = 0
        self.ms, self.n, self.steps = START_MS, 0, 0
        self.claims = dict.fromkeys(OWNERS, 0)
        self.highest: dict[tuple[str, str], int] = {}
        self.checked = True

    def teardown(self) -> None:
        self.file.close()
        self.folder.cleanup()

    @rule(
        run=runs,
        producer=producers,
        kind=st.sampled_from(KINDS),
        owner=st.sampled_from(OWNERS),
        proof=st.sampled_from(
            ["none", "holder", "holder", "generation", "older", "newer", "token", "owner"]
        ),
        place=st.sampled_from(["next"] * 5 + ["gap", "late", "late", "known", "far"]),
        wait_ms=st.sampled_from([0, 1, 1, LEASE_MS - 1, LEASE_MS]),
    )
    def a_host_sends(
        self,
        run: str,
        producer: str,
        kind: str,
        owner: str,
        proof: str,
        place: str,
        wait_ms: int,
    ) -> None:
        self.steps += 1
        token = ""
        if kind == "lease.claim":
            self.claims[owner] += 1
            token = f"{owner}-{self.claims[owner]}"
        wants = kind in ("run.update", "run.snapshot", "lease.renew", "lease.release")
        self.put(
            Sent(
                run,
                self.next_id(wait_ms),
                producer,
                self.seq(run, producer, place),
                kind,
                self.body(kind, owner, token),
                self.proof(run, proof) if wants else None,
                token,
            )
        )

    @precondition(lambda self: self.stream)
    @rule(data=st.data())
    def a_host_sends_again(self, data: st.DataObject) -> None:
        """As a client does that got no reply."""
        sent, _ = data.draw(st.sampled_from(self.stream))
        self.put(sent._replace(message_id=self.next_id(0)))

    @rule(size=sizes)
    def the_writer_settles(self, size: int) -> None:
        batch = [message for _, message in self.stream[self.settled : self.settled + size]]
        found = {each.message.id: word(each.outcome) for each in self.file.apply(batch)}
        for message, expected in zip(batch, self.expect(len(batch)), strict=True):
            assert found[message.id].partition(" ")[0] == expected.partition(" ")[0]

    @rule(size=sizes, point=st.sampled_from(POINTS))
    def the_writer_dies_and_reads_it_again(self, size: int, point: str) -> None:
        def die(at: str) -> None:
            if at == point:
                raise Killed

        batch = [message for _, message in self.stream[self.settled : self.settled + size]]
        with suppress(Killed):
            self.file.apply(batch, hook=die)
        self.begins_anew()
        self.file.apply(batch)
        self.expect(len(batch))

    @rule()
    def begins_anew(self) -> None:
        self.file.close()
        self.file = Partition(Path(self.folder.name))

    @rule(run=runs, size=sizes)
    def a_stream_is_read_again(self, run: str, size: int) -> None:
        """From its start, as one that was replaced: all of it is known."""
        again = [message for sent, message in self.stream[: self.settled] if sent.run == run]
        self.file.apply([], restarts=[run])
        model = self.model[run]
        model.cursor = "0-0"
        for start in range(0, len(again), size):
            for each in self.file.apply(again[start : start + size]):
                assert word(each.outcome) == "duplicate"
                model.counts["duplicate"] += 1
                model.cursor = each.message.id
        self.checked = False

    @invariant()
    def the_file_is_what_the_model_says(self) -> None:
        if self.checked:
            return
        self.checked = True
        cursors = {row[0]: row[1:] for row in self.file.rows(CURSORS)}
        for run, model in self.model.items():
            counts = tuple(model.counts.values())
            assert cursors.get(run, ("0-0", 0, 0, 0)) == (model.cursor, *counts)
            events = self.rows(EVENTS, run)
            assert [row[0] for row in events] == list(range(1, len(model.events) + 1))
            assert [tuple(row[1:]) for row in events] == model.events
            assert sorted(self.rows(REJECTIONS, run)) == sorted(model.rejections)
            gaps = [
                (producer, *gap)
                for producer, each in model.producers.items()
                for gap in each.gaps()
            ]
            assert sorted(self.rows(GAPS, run)) == sorted(gaps)
            lease = model.lease
            assert self.rows(LEASES, run) == (
                [(lease.generation, lease.owner, lease.expires, int(lease.free))] if lease else []
            )
        with standing(self.file.path) as connection:
            assert list(violations(connection)) == []

    def rows(self, query: str, run: str) -> list[tuple[Any, ...]]:
        return [row[1:] for row in self.file.rows(query) if row[0] == run]

    def expect(self, count: int) -> Iterator[str]:
        """Let the model judge the next messages."""
        words = [
            self.model[sent.run].settle(sent)
            for sent, _ in self.stream[self.settled : self.settled + count]
        ]
        self.settled += count
        self.checked = False
        return iter(words)

    def put(self, sent: Sent) -> None:
        kind, auth = sent.kind, None
        if sent.proof is not None:
            owner, token, generation = sent.proof
            auth = Auth(owner_type="host", owner_id=owner, token=token, generation=generation)
        broken = kind == "broken"
        fields = encode(
            "run.annotate" if broken else kind,
            sent.body,
            producer=sent.producer,
            seq=sent.seq,
            auth=auth,
        )
        if broken:
            fields[b"body"] = b"{" + str(sent.body).encode()
        self.stream.append((sent, Message(sent.run, sent.message_id, seal(fields))))
        pair = (sent.run, sent.producer)
        if sent.seq < 2**32:
            self.highest[pair] = max(self.highest.get(pair, 0), sent.seq)

    def next_id(self, wait_ms: int) -> str:
        self.ms, self.n = self.ms + wait_ms, 0 if wait_ms else self.n + 1
        return f"{self.ms}-{self.n}"

    def seq(self, run: str, producer: str, place: str) -> int:
        top = self.highest.get((run, producer), 0)
        model = self.model[run].producers.get(producer)
        gaps = model.gaps() if model is not None else []
        if place == "late" and gaps:
            return gaps[-1][0]
        return {"gap": top + 3, "known": max(top, 1), "far": top + 2**33}.get(place, top + 1)

    def body(self, kind: str, owner: str, token: str) -> dict[str, Any]:
        number = self.steps
        bodies: dict[str, dict[str, Any]] = {
            "run.create": {"workflow": "w", "state": {"n": 0}},
            "run.annotate": {"title": f"title {number}"},
            "run.update": {"type": "note", "key": f"k{number % 2}", "data": {"n": number}},
            "run.snapshot": {"state": {"n": number, "text": "x" * 900}},
            "lease.claim": {
                "owner_type": "host",
                "owner_id": owner,
                "token_sha256": token_sha256(token),
                "lease_ms": LEASE_MS,
            },
            "lease.renew": {"lease_ms": LEASE_MS + number % 3},
            "broken": {"n": number},
        }
        return bodies.get(kind, {})

    def proof(self, run: str, how: str) -> Proof | None:
        """An authority that is right, or wrong in one of five ways, as the run stands by now."""
        lease = self.model[run].lease
        owner, token, generation = (
            (lease.owner, lease.token, lease.generation) if lease else (OWNERS[0], "none", 1)
        )
        return {
            "none": None,
            "holder": Proof(owner, token, None),
            "generation": Proof(owner, token, generation),
            "older": Proof(owner, token, max(generation - 1, 1)),
            "newer": Proof(owner, token, generation + 1),
            "token": Proof(owner, "guessed", None),
            "owner": Proof(next(each for each in OWNERS if each != owner), token, None),
        }[how]


CURSORS = "SELECT run_id, message_id, applied, duplicates, rejected FROM cursors"
EVENTS = """
SELECT run_id, revision, producer, producer_seq FROM events
JOIN producers USING (run_key, producer_no) JOIN cursors USING (run_key)
WHERE segment = 0 ORDER BY run_id, revision
"""
REJECTIONS = "SELECT run_id, r.message_id, reason FROM rejections r JOIN cursors USING (run_key)"
GAPS = """
SELECT run_id, producer, first_seq, g.last_seq FROM gaps g
JOIN producers USING (run_key, producer_no) JOIN cursors USING (run_key)
"""
LEASES = """
SELECT run_id, generation, owner_id, expires_at, released_at IS NOT NULL
FROM leases JOIN cursors USING (run_key)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "examples, steps", [(25, 40), pytest.param(1_000, 100, marks=pytest.mark.soak)]
)
def test_any_steps(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        Steps, settings=settings(max_examples=examples, stateful_step_count=steps)
    )
