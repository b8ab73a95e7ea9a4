"""What must become of a run, judged message by message. Shares no code with the core.

It knows a part of the contract: creates, annotations, updates, snapshots, claims, renewals and
releases of runs in the generic dialect, with or without authority, and bodies that do not decode.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

JUMP_MAX = 4_294_967_296


class Proof(NamedTuple):
    """An authority as it is sent: the generation may be left out."""

    owner: str
    token: str
    generation: int | None


class Sent(NamedTuple):
    """One message, as its sender meant it."""

    run: str
    message_id: str
    producer: str
    seq: int
    kind: str
    body: dict[str, Any]
    proof: Proof | None = None
    token: str = ""
    """A claim's own."""

    @property
    def arrival(self) -> int:
        """Its id's milliseconds."""
        return int(self.message_id.partition("-")[0])

    @property
    def content(self) -> tuple[str, str]:
        """What makes it another command than one of the same sequence."""
        return self.kind, repr(sorted(self.body.items()))


@dataclass
class Numbers:
    """A producer's sequences within a run."""

    content: dict[int, tuple[str, str] | None] = field(default_factory=dict)
    """Of each sequence that was used up; None where no row keeps it."""
    newest: dict[Any, int] = field(default_factory=dict)
    """The last that was applied, by what a late one would undo."""

    @property
    def last(self) -> int:
        """The highest."""
        return max(self.content, default=0)

    def gaps(self) -> list[tuple[int, int]]:
        """What is missing below the highest."""
        found: list[tuple[int, int]] = []
        for seq in range(1, self.last):
            if seq in self.content:
                continue
            if found and found[-1][1] == seq - 1:
                found[-1] = (found[-1][0], seq)
            else:
                found.append((seq, seq))
        return found


@dataclass
class Held:
    """A run's last lease."""

    owner: str
    token: str
    generation: int
    length: int
    expires: int
    free: bool = False


@dataclass
class RunModel:
    """A run, as far as this model knows one."""

    exists: bool = False
    cursor: str = "0-0"
    counts: dict[str, int] = field(
        default_factory=lambda: {"applied": 0, "duplicate": 0, "rejected": 0}
    )
    events: list[tuple[str, int]] = field(default_factory=list)
    rejections: list[tuple[str, str]] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)
    lease: Held | None = None
    producers: dict[str, Numbers] = field(default_factory=dict)
    _refused: dict[str, tuple[str, str]] = field(default_factory=dict)

    def settle(self, sent: Sent) -> str:
        """How a message ends: `applied`, `duplicate`, or `rejected` and the reason."""
        word = self._judge(sent)
        self.cursor = sent.message_id
        self.counts[word.partition(" ")[0]] += 1
        if word.startswith("rejected"):
            self.rejections.append((sent.message_id, word.partition(" ")[2]))
            self._refused[sent.message_id] = sent.content
        return word

    def _judge(self, sent: Sent) -> str:
        numbers = self.producers.get(sent.producer, Numbers())
        if self._refused.get(sent.message_id) == sent.content:
            return "duplicate"
        if sent.seq in numbers.content:
            known = numbers.content[sent.seq]
            if known is None or known == sent.content:
                return "duplicate"
            return "rejected body_not_json" if sent.kind == "broken" else "rejected sequence_reused"
        if sent.seq > numbers.last + JUMP_MAX:
            return "rejected body_not_json" if sent.kind == "broken" else "rejected sequence_jump"
        self.producers[sent.producer] = numbers
        word = self._apply(sent, numbers)
        kept = word.startswith("rejected") or (word == "applied" and sent.kind != "lease.renew")
        numbers.content[sent.seq] = sent.content if kept else None
        if word == "applied" and sent.kind != "lease.renew":
            self.events.append((sent.producer, sent.seq))
        return word

    def _apply(self, sent: Sent, numbers: Numbers) -> str:
        if sent.kind == "broken":
            return "rejected body_not_json"
        group = _group(sent)
        if group is not None and numbers.newest.get(group, 0) > sent.seq:
            return "rejected superseded"
        if sent.kind == "run.create":
            if self.exists:
                return "duplicate"
            self.exists = True
        elif not self.exists:
            return "rejected run_unknown"
        word = self._change(sent)
        if word == "applied" and group is not None:
            numbers.newest[group] = max(numbers.newest.get(group, 0), sent.seq)
        return word

    def _change(self, sent: Sent) -> str:
        if sent.kind == "lease.claim":
            return self._claim(sent)
        if sent.kind in ("lease.renew", "lease.release"):
            return self._own(sent)
        if sent.kind in ("run.update", "run.snapshot") and (wrong := self._writes(sent)):
            return wrong
        if sent.kind == "run.snapshot":
            self.state = sent.body["state"]
        return "applied"

    def _own(self, sent: Sent) -> str:
        lease = self.lease
        if lease is None or lease.free or sent.proof is None:
            return "rejected lease_missing"
        if wrong := _wrong(lease, sent.proof):
            return wrong
        if sent.kind == "lease.release":
            lease.free = True
        else:
            lease.length = sent.body["lease_ms"]
            lease.expires = max(lease.expires, sent.arrival + lease.length)
        return "applied"

    def _writes(self, sent: Sent) -> str | None:
        """Why its sender may not write the run; whoever may moves the expiry."""
        lease = self.lease
        if sent.proof is None:
            return "rejected lease_missing" if lease is not None and not lease.free else None
        if lease is None:
            return "rejected lease_missing"
        wrong = _wrong(lease, sent.proof)
        if wrong is None and not lease.free:
            lease.expires = max(lease.expires, sent.arrival + lease.length)
        return wrong

    def _claim(self, sent: Sent) -> str:
        lease, owner = self.lease, sent.body["owner_id"]
        if (
            lease is not None
            and not lease.free
            and lease.owner != owner
            and sent.arrival < lease.expires
        ):
            return "rejected lease_held"
        generation = 1 if lease is None else lease.generation + 1
        length = sent.body["lease_ms"]
        self.lease = Held(owner, sent.token, generation, length, sent.arrival + length)
        return "applied"


def _group(sent: Sent) -> Any:
    if sent.kind.startswith("lease."):
        return "lease"
    if sent.kind == "run.snapshot":
        return "state"
    return ("update", sent.body["key"]) if sent.kind == "run.update" else None


def _wrong(lease: Held, proof: Proof) -> str | None:
    if proof.owner != lease.owner:
        return "rejected lease_owner_changed"
    if proof.token != lease.token:
        return "rejected lease_token_changed"
    if proof.generation not in (None, lease.generation):
        return "rejected lease_generation_changed"
    return None
