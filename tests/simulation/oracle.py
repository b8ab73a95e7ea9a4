"""What must become of every message, from its raw fields alone. Shares no code with the core.

The oracle is told what the writer settled, message by message, in its order; it says how each must
have ended and what the run must look like. Its log is all that it knows: an older file is modelled
by a shorter log.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

from tests.simulation.rules import perform
from tests.simulation.story import LEASE, NOTHING_TO_DO, STATE, Event, No, Story, Told, text

FAR = 2**32
LATEST = 2**53 - 1
REQUIRED = (b"v", b"kind", b"producer", b"seq", b"body")
KNOWN = {*REQUIRED, b"auth", b"reply"}
KINDS = frozenset(
    (*STATE, *LEASE, "run.create", "run.update", "run.annotate", "run.delete", "session.bind")
) | {"session.entry", "session.events", "session.capture"}

Fields = Mapping[bytes, bytes]
Place = tuple[int, str]
"""(incarnation, message id)."""


class Settled(NamedTuple):
    """A message of the log; `fields` as the host sent them."""

    run: str
    incarnation: int
    id: str
    fields: Fields


class Restart(NamedTuple):
    """The stream was found to be another one."""

    run: str
    incarnation: int


class Acted(NamedTuple):
    """An operator's act that was carried out."""

    act: str
    run: str
    incarnation: int
    id: str
    control: str


Entry = Settled | Restart | Acted


@dataclass
class Sender:
    """One producer of one run."""

    no: int
    last: int = 0
    missing: set[int] = field(default_factory=set)
    state: int = 0
    lease: int = 0
    updates: dict[tuple[str | None, str, str], int] = field(default_factory=dict)


@dataclass
class Account:
    """All that is known of one stream."""

    run: str
    incarnation: int = 1
    cursor: str = "0-0"
    ended: dict[str, int] = field(
        default_factory=lambda: {"applied": 0, "duplicate": 0, "rejected": 0}
    )
    senders: dict[str, Sender] = field(default_factory=dict)
    content: dict[tuple[str, int], bytes] = field(default_factory=dict)
    refused: dict[str, bytes] = field(default_factory=dict)
    rejections: list[tuple[str, str]] = field(default_factory=list)
    story: Story = field(default_factory=Story)

    def knows(self, fields: Fields) -> bool:
        """Whether a message's sequence has been used up."""
        parsed = parse(self.run, fields)
        sender = self.senders.get(parsed.producer or "")
        if sender is None or parsed.seq is None:
            return False
        return parsed.seq <= sender.last and parsed.seq not in sender.missing


class Parsed(NamedTuple):
    """A message as its envelope reads."""

    producer: str | None
    seq: int | None
    kind: str
    body: Any
    auth: dict[str, Any] | None
    content: bytes
    reason: str | None
    newer: bool


def order(message_id: str) -> tuple[int, int]:
    """An id as two numbers."""
    ms, _, n = message_id.partition("-")
    return int(ms), int(n)


def parse(run: str, fields: Fields) -> Parsed:
    """Read an envelope. What it returns is shared: nobody changes it."""
    return _parse(run, tuple(fields.items()))


@lru_cache(maxsize=1024)
def _parse(run: str, pairs: tuple[tuple[bytes, bytes], ...]) -> Parsed:  # noqa: C901
    fields = dict(pairs)
    producer = fields.get(b"producer", b"").decode()
    sender = producer if producer.isalnum() else None
    digits = fields.get(b"seq", b"")
    seq = int(digits) if digits.isdigit() and not digits.startswith(b"0") else None
    raw_kind, raw = fields.get(b"kind", b""), fields.get(b"body", b"")
    reason, newer, body = None, False, None
    version = fields.get(b"v", b"")
    if run.startswith("-"):
        reason = "run_id_invalid"
    elif b"v" not in fields:
        reason = "field_missing"
    elif not version.isdigit():
        reason = "version_invalid"
    elif int(version) > 1:
        newer = True
    elif not fields.keys() >= set(REQUIRED):
        reason = "field_missing"
    elif not fields.keys() <= KNOWN:
        reason = "field_unknown"
    elif sender is None or seq is None:
        reason = "field_invalid"
    elif raw_kind.decode() not in KINDS:
        reason = "kind_unknown"
    else:
        try:
            body = json.loads(raw)
        except ValueError:
            reason = "body_not_json"
        else:
            if raw_kind == b"run.snapshot" and "state" not in body:
                reason = "field_missing"
    if reason != "run_id_invalid" and zlib.crc32(run.encode()) % 2 != 0:
        reason, newer = "partition_wrong", False
    content = raw_kind + b"\0" + (raw if body is None else text(body).encode())
    auth = None
    if b"auth" in fields:
        auth = json.loads(fields[b"auth"])
        auth["token_sha256"] = sha256(auth.pop("token").encode()).hexdigest()
    return Parsed(sender, seq, raw_kind.decode(), body, auth, content, reason, newer)


class Oracle:
    """Knows what must be in the file."""

    def __init__(self) -> None:
        self.log: list[Entry] = []
        self.runs: dict[str, Account] = {}
        self.skips: set[tuple[str, Place]] = set()
        self.breaks: set[tuple[str, Place]] = set()
        self.verdicts: dict[tuple[str, Place], str] = {}
        self.settled: dict[str, dict[str, set[bytes]]] = {}
        """The bodies that were settled, by run and id."""

    def account(self, run: str) -> Account:
        """The run's account, new if nothing of it was settled."""
        return self.runs.setdefault(run, Account(run))

    def roll_back(self, length: int) -> list[Entry]:
        """Know only the first entries of the log; returns those that are forgotten."""
        kept, lost = self.log[:length], self.log[length:]
        self.__init__()
        for entry in kept:
            self.note(entry)
        return lost

    def note(self, entry: Entry) -> None:
        """Something more happened."""
        self.log.append(entry)
        account = self.account(entry.run)
        match entry:
            case Settled():
                self._settle(account, entry)
            case Restart():
                account.incarnation, account.cursor = entry.incarnation, "0-0"
                if (entry.run, (entry.incarnation, "0-0")) in self.breaks:
                    account.story.break_lease(0)
            case Acted("skip"):
                self.skips.add((entry.run, (entry.incarnation, entry.id)))
            case Acted("break"):
                place = (entry.incarnation, entry.id)
                self.breaks.add((entry.run, place))
                if (account.incarnation, account.cursor) == place:
                    account.story.break_lease(min(order(entry.id)[0], LATEST))

    def told(self, entry: Entry) -> str:
        """An entry of the log and how it must have ended, in one line."""
        if not isinstance(entry, Settled):
            return str(entry)
        fields = {name.decode(): value.decode() for name, value in entry.fields.items()}
        verdict = self.verdicts[entry.run, (entry.incarnation, entry.id)]
        return f"{entry.run} {entry.incarnation} {entry.id}: {verdict}: {fields}"

    def _settle(self, account: Account, message: Settled) -> None:
        assert account.incarnation == message.incarnation, (account, message)
        assert order(account.cursor) < order(message.id), (account, message)
        place = (message.incarnation, message.id)
        parsed = parse(message.run, message.fields)
        if (message.run, place) in self.skips:
            parsed = parsed._replace(newer=False, reason="skipped")
        assert not parsed.newer, f"{message} is of a version that this writer can not know"
        at = min(order(message.id)[0], LATEST)
        verdict = self._judge(account, message.id, parsed, at)
        word, _, reason = verdict.partition(" ")
        if word == "rejected":
            account.rejections.append((message.id, reason))
            account.refused[message.id] = parsed.content
        account.ended[word] += 1
        of_run = self.settled.setdefault(message.run, {})
        of_run.setdefault(message.id, set()).add(message.fields.get(b"body", b""))
        account.cursor = message.id
        self.verdicts[message.run, place] = verdict
        if (message.run, place) in self.breaks:
            account.story.break_lease(at)

    def _judge(self, account: Account, message_id: str, parsed: Parsed, at: int) -> str:
        sender = account.senders.get(parsed.producer or "")
        seq = parsed.seq
        last = sender.last if sender is not None else 0
        if parsed.producer is None or seq is None:
            return self._unsequenced(account, message_id, parsed, parsed.reason or "")
        if seq > last + FAR:
            return self._unsequenced(account, message_id, parsed, parsed.reason or "sequence_jump")
        if sender is not None and seq <= last and seq not in sender.missing:
            known = account.content.get((parsed.producer, seq))
            if known in (None, parsed.content):
                return "duplicate"
            return self._unsequenced(
                account, message_id, parsed, parsed.reason or "sequence_reused"
            )
        if sender is None:
            sender = account.senders[parsed.producer] = Sender(len(account.senders) + 1)
        verdict = self._new(account, sender, message_id, parsed, at)
        late = seq in sender.missing
        sender.missing.discard(seq)
        if not late:
            sender.missing.update(range(sender.last + 1, seq))
            sender.last = seq
        if verdict.startswith("rejected") or "." in verdict:
            account.content[parsed.producer, seq] = parsed.content
        return verdict

    def _unsequenced(self, account: Account, message_id: str, parsed: Parsed, reason: str) -> str:
        if account.refused.get(message_id) == parsed.content:
            return "duplicate"
        return f"rejected {reason}"

    def _new(
        self, account: Account, sender: Sender, message_id: str, parsed: Parsed, at: int
    ) -> str:
        assert parsed.seq is not None
        assert parsed.producer is not None
        if parsed.reason is not None:
            return f"rejected {parsed.reason}"
        if parsed.seq in sender.missing and _newest(sender, parsed) > parsed.seq:
            return "rejected superseded"
        told = Told(
            parsed.kind, parsed.body, parsed.auth, parsed.producer, parsed.seq, message_id, at
        )
        try:
            made = perform(account.story, told)
        except No as no:
            return f"rejected {no}"
        if made == NOTHING_TO_DO:
            return "duplicate"
        if parsed.kind == "run.delete":
            account.content.clear()
            account.refused.clear()
            account.rejections.clear()
            for each in account.senders.values():
                each.updates.clear()
        _note(sender, parsed)
        return f"applied {made.segment}.{made.revision}" if isinstance(made, Event) else "applied"


def _group(parsed: Parsed) -> tuple[str | None, str, str]:
    return parsed.body.get("attempt_id"), parsed.body["type"], parsed.body["key"]


def _newest(sender: Sender, parsed: Parsed) -> int:
    """The newest sequence that the sender had applied of the group that a command is of."""
    if parsed.kind in STATE:
        return sender.state
    if parsed.kind in LEASE:
        return sender.lease
    return sender.updates.get(_group(parsed), 0) if parsed.kind == "run.update" else 0


def _note(sender: Sender, parsed: Parsed) -> None:
    assert parsed.seq is not None
    if parsed.kind in STATE:
        sender.state = max(sender.state, parsed.seq)
    elif parsed.kind in LEASE:
        sender.lease = max(sender.lease, parsed.seq)
    elif parsed.kind == "run.update":
        sender.updates[_group(parsed)] = max(sender.updates.get(_group(parsed), 0), parsed.seq)
