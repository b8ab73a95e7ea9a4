"""What a decision needs to know of the past beyond the aggregate.

`wanted` names it for each message of a batch; the store answers with one indexed query per kind;
and each decision adds what it stores, so that later messages of the batch see it too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

from producers.contract.commands import AppendEntry, AppendEvents, Snapshot, Update
from producers.contract.envelope import Decoded
from producers.contract.jsontext import sorted_json
from writer.core.parts import Node
from writer.core.run import Run
from writer.core.sequence import Standing, stand_of


class UpdateKey(NamedTuple):
    """Whose update of what: late ones lose to a newer one of the same producer."""

    producer_no: int
    attempt_id: str | None
    type: str
    key: str


@dataclass(slots=True)
class Wanted:
    """What to look up in the database for one run, before its messages are decided."""

    sequences: set[tuple[int, int]] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    entries: set[tuple[int, str]] = field(default_factory=set)
    events: set[tuple[int, int]] = field(default_factory=set)
    bases: set[int] = field(default_factory=set)
    updates: set[UpdateKey] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(
            self.sequences
            or self.refused
            or self.entries
            or self.events
            or self.bases
            or self.updates
        )


@dataclass(slots=True)
class Facts:
    """What is stored. Hashes are of sorted JSON (`entries`, `events`) or of commands."""

    sequences: dict[tuple[int, int], bytes] = field(default_factory=dict)
    refused: dict[str, bytes] = field(default_factory=dict)
    entries: dict[tuple[int, str], bytes] = field(default_factory=dict)
    events: dict[tuple[int, int], bytes] = field(default_factory=dict)
    bases: dict[int, Node] = field(default_factory=dict)
    updates: dict[UpdateKey, int] = field(default_factory=dict)
    new_events: list[tuple[int, int, Sequence[object]]] = field(default_factory=list)
    """Session events that were appended since: segment, `seq` of the first, and the events."""

    def forget(self) -> None:
        """Know nothing any more: all that it was found in is deleted with the run."""
        for known in (
            self.sequences,
            self.refused,
            self.entries,
            self.events,
            self.bases,
            self.updates,
        ):
            known.clear()
        self.new_events.clear()

    def event_hash(self, segment: int, seq: int) -> bytes | None:
        """Hash of a session event that is stored, or was appended earlier in this batch."""
        for known, first, events in self.new_events:
            if known == segment and first <= seq < first + len(events):
                return document_hash(events[seq - first])
        return self.events.get((segment, seq))


def document_hash(document: object) -> bytes:
    """By which stored entries and events are compared: SHA-256 of their sorted JSON."""
    return sha256(sorted_json(document)).digest()


def entry_identity(command: AppendEntry) -> str | None:
    """The entry's id: the one given, else the entry's own if it is a usable text, else none."""
    if command.entry_id is not None:
        return command.entry_id
    own = command.entry.get("id")
    return own if isinstance(own, str) and own else None


def want(run: Run, message: Decoded, wanted: Wanted) -> None:
    """Add to `wanted` what deciding this message needs, judged by the run as it is stored."""
    sequences, where = stand_of(run, message)
    # An id comes again only in a later incarnation, and there an earlier message of this very batch
    # may use the sequence up.
    if where is not Standing.NEXT or run.cursor.incarnation > 1:
        wanted.refused.add(message.message_id)
        if sequences is not None and message.seq is not None and where is Standing.KNOWN:
            wanted.sequences.add((sequences.no, message.seq))
    command = message.command
    match command:
        case AppendEntry():
            segment = run.segments.get(command.capture_key or "")
            identity = entry_identity(command)
            if segment is not None and segment.entry_count and identity is not None:
                wanted.entries.add((segment.no, identity))
        case AppendEvents():
            segment = run.segments.get(command.capture_key or "")
            if segment is not None:
                known = segment.event_count
                wanted.events.update(
                    [(segment.no, e["seq"]) for e in command.events if e["seq"] <= known]
                )
        case Snapshot(on_conflict="merge", expected_revision=int(revision)):
            if run.head is not None and revision <= run.head.revision:
                wanted.bases.add(revision)
        case Update() if where is Standing.LATE and sequences is not None:
            wanted.updates.add(
                UpdateKey(sequences.no, command.attempt_id, command.type, command.key)
            )
