"""A simulated agent: it reports a few runs as a real one would, and remembers what it said.

What it says is a function of the seed, but for the times. On purpose, in each run it sends one
command twice and one too late, so that duplicates and rejections are to be seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import pairwise
from random import Random
from typing import Any

from producers import Producer, Run, Sent, Session
from producers.contract.jsontext import sorted_json
from writer.clock import iso, now_ms, sleep

TASKS = ("plan", "build", "review")
"""An agent's runs, each below the one before."""
NODES = ("read", "think", "edit", "test")
EVENTS_PER_STEP = 6
RENEW_EVERY = 4
LEASE_MS = 30_000
TALK = (
    "the build fails on the second step because a fixture is missing so I will read the test first "
    "then change the parser run everything again and write down what I found before going on"
)
STAMPED = ("traceSeq", "updatedAt", "updates")
"""What the writer puts into states of the pi dialect."""

Document = dict[str, Any]


@dataclass(slots=True)
class Told:
    """What an agent said about one run, to be compared with what is stored."""

    run: str
    state: Document = field(default_factory=dict)
    states: list[str] = field(default_factory=list)
    """SHA-256 of each state that it sent, in order."""
    updates: dict[str, Document] = field(default_factory=dict)
    entries: list[Document] = field(default_factory=list)
    events: list[Document] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)
    """How many of its commands it expects to end how: applied, duplicates, rejected."""


def commands_of(steps: int) -> int:
    """How many commands an agent sends."""
    around = (
        "create",
        "claim",
        "bind",
        "task",
        "twice",
        "again",
        "capture",
        "end",
        "late",
        "release",
    )
    each = ("events", "entry", "update", "snapshot")
    return len(TASKS) * (len(around) + steps * len(each) + steps // RENEW_EVERY)


def state_digest(state: Document) -> str:
    """SHA-256 (hex) of a state without what the writer stamps."""
    kept = {name: value for name, value in state.items() if name not in STAMPED}
    return sha256(sorted_json(kept)).hexdigest()


@dataclass(slots=True)
class Agent:
    """One agent. `pace_s` is how long it seems to think per step; `said` counts its commands."""

    number: int
    seed: int
    steps: int
    pace_s: float
    said: Callable[[int], None]

    def work(self, producer: Producer) -> list[Told]:
        """Report all runs; returns what was said of each."""
        told: list[Told] = []
        for task in TASKS:
            parent = told[-1].run if told else None
            told.append(_Telling(self, producer, task, parent).tell())
        return told


class _Telling:
    """One run, from its creation to its end."""

    def __init__(self, agent: Agent, producer: Producer, task: str, parent: str | None) -> None:
        self._agent = agent
        self._producer = producer
        self._task = task
        self._parent = parent
        # Not for secrets: the same seed has to say the same.
        self._random = Random(f"{agent.seed}/{agent.number}/{task}")  # noqa: S311
        self._pi = agent.number % 2 == 1
        self._told = Told(f"demo-{agent.seed}-a{agent.number:02d}-{task}")
        self._at = now_ms()

    def tell(self) -> Told:
        run = self._create()
        lease = run.claim(f"agent-{self._agent.number}", lease_ms=LEASE_MS)
        self._count(lease.sent)
        binding = self._binding()
        session = run.session(f"{self._told.run}-session", binding=binding)
        self._count(session.bind())
        self._entry(session, "user", f"{self._task}: {self._words(8)}")
        for number in range(self._agent.steps):
            self._step(run, session, number)
        self._count(
            session.capture(
                "complete", entry_count=session.entry_count, event_count=session.last_seq
            )
        )
        self._finish(run)
        return self._told

    def _create(self) -> Run:
        workflow = f"{self._task}-workflow"
        nodes = {name: {"nodeType": "agent"} for name in NODES}
        edges = [{"from": a, "to": b} for a, b in pairwise(NODES)]
        state: Document = {"status": "running", "task": self._words(6), "steps": [], "outputs": {}}
        if self._pi:
            state |= {
                "schema": "pi-workflows.run-state.v1",
                "runId": self._told.run,
                "workflowName": workflow,
                "startedAt": iso(self._at),
                "results": {},
            }
        run = self._producer.create_run(
            workflow,
            run_id=self._told.run,
            definition={"name": workflow, "startAt": NODES[0], "nodes": nodes, "edges": edges},
            input={"task": state["task"]},
            state=state,
            title=f"Agent {self._agent.number}: {self._task}",
            tags={"agent": str(self._agent.number)},
            parent=self._parent,
            dialect="pi_workflows" if self._pi else "generic",
        )
        self._told.ends["applied"] += 1
        self._agent.said(1)
        self._remember(state)
        return run

    def _binding(self) -> Document:
        binding: Document = {"cwd": "project", "boundAt": iso(self._at)}
        if self._pi:
            binding |= {
                "schema": "pi-workflows.session-binding.v1",
                "runId": self._told.run,
                "piSessionId": f"{self._told.run}-session",
            }
        return binding

    def _step(self, run: Run, session: Session, number: int) -> None:
        node = NODES[number % len(NODES)]
        attempt = f"{node}-{number + 1}"
        started = self._at = now_ms()
        self._events(session, node, attempt)
        self._entry(session, "assistant", self._words(30))
        self._update(run, number, node, attempt)
        if number % RENEW_EVERY == RENEW_EVERY - 1:
            self._count(run.renew())
        sleep(self._agent.pace_s * self._random.uniform(0.5, 1.5))
        self._at = now_ms()
        output = {"reply": self._words(20), "index": number}
        step = {
            "attemptId": attempt,
            "nodeId": node,
            "nodeType": "agent",
            "outcome": "ok",
            "startedAt": iso(started),
            "finishedAt": iso(self._at),
            "output": output,
        }
        state = self._told.state
        grown = {
            **state,
            "steps": [*state["steps"], step],
            "outputs": {**state["outputs"], node: output},
        }
        self._snapshot(run, grown, "node_finished", node, attempt)
        if number == self._agent.steps // 2:
            self._entry(session, "user", self._words(5), twice=True)

    def _finish(self, run: Run) -> None:
        ended = {"status": "completed", "finishedAt": iso(self._at), "finalOutput": {"ok": True}}
        self._snapshot(run, {**self._told.state, **ended}, "run_completed", None, None)
        # Too late: the run has ended, so this one is refused, and changes nothing.
        late = run.update("progress", "late", self._progress(0))
        self._count(late, "rejected")
        self._count(run.release())

    def _snapshot(
        self, run: Run, state: Document, event: str, node: str | None, attempt: str | None
    ) -> None:
        self._count(run.snapshot(state, event, node=node, attempt=attempt))
        self._remember(state)

    def _remember(self, state: Document) -> None:
        self._told.state = state
        self._told.states.append(state_digest(state))

    def _update(self, run: Run, number: int, node: str, attempt: str) -> None:
        key = f"worker-{number % 3}"
        data = self._progress(number + 1)
        # In the pi dialect an update has to name an attempt that has not finished.
        where = (node, attempt) if self._pi else (None, None)
        self._count(run.update("progress", key, data, node=where[0], attempt=where[1]))
        self._told.updates[f"progress {key}"] = data

    def _progress(self, done: int) -> Document:
        return {
            "schema": "pi-workflows.progress.v1",
            "status": "running",
            "label": self._words(2),
            "completed": done,
            "total": self._agent.steps,
            "unit": "steps",
        }

    def _entry(self, session: Session, role: str, text: str, *, twice: bool = False) -> None:
        number = len(self._told.entries)
        entry = {
            "id": f"entry-{number}",
            "parentId": f"entry-{number - 1}" if number else None,
            "type": "message",
            "timestamp": iso(self._at),
            "message": {"role": role, "content": [{"type": "text", "text": text}]},
        }
        sent = session.entry(entry)
        self._count(sent)
        self._told.entries.append(entry)
        if twice:
            # As a host does that got no answer: the same sequence again changes nothing.
            again = self._producer.send(
                sent.run,
                sent.kind,
                {"entry": entry},
                producer=sent.producer,
                seq=sent.seq,
            )
            self._count(again, "duplicates")

    def _events(self, session: Session, node: str, attempt: str) -> None:
        first = session.last_seq + 1
        events = [
            {
                "seq": first + place,
                "at": iso(self._at + place),
                "type": "assistant_event",
                "nodeId": node,
                "attemptId": attempt,
                "payload": {"type": "text_delta", "delta": self._words(6)},
            }
            for place in range(EVENTS_PER_STEP)
        ]
        self._count(session.events(events))
        self._told.events += events

    def _count(self, _: Sent, end: str = "applied") -> None:
        self._told.ends[end] += 1
        self._agent.said(1)

    def _words(self, count: int) -> str:
        return " ".join(self._random.choices(TALK.split(), k=count))
