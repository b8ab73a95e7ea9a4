"""What a rule works with: the run, its message, and how to put an event on the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import orjson

from producers.contract.envelope import Decoded
from writer.core.dialect import Dialect, Dialects, Projection
from writer.core.facts import Facts
from writer.core.outcome import Applied
from writer.core.parts import Change, Size
from writer.core.reference import Reference
from writer.core.rows import RUN_SCOPE, EventRow, PartRow, Row
from writer.core.run import Effect, Head, Run, Segment


def text(value: Any) -> str:
    """JSON text of a document, keys in the order in which they came."""
    return orjson.dumps(value).decode()


@dataclass(slots=True)
class Context:
    """One command about to be applied. Rules check first and change only then."""

    run: Run
    message: Decoded
    seq: int
    producer_no: int
    arrival: int
    facts: Facts
    dialects: Dialects
    rows: list[Row] = field(default_factory=list)

    @property
    def head(self) -> Head:
        """The head of a run that exists."""
        assert self.run.head is not None
        return self.run.head

    @property
    def dialect(self) -> Dialect:
        """The dialect of a run that exists."""
        return self.dialects[self.head.dialect]

    @property
    def body(self) -> Mapping[str, Any]:
        """The body as it came, for documents that are kept whole."""
        assert self.message.body is not None
        return self.message.body

    def revise_run(
        self,
        type: str,
        *,
        scope: str = "run",
        node_id: str | None = None,
        attempt_id: str | None = None,
        payload: Mapping[str, Any] | None = None,
        refs: Sequence[Reference] = (),
        state_digest: bytes | None = None,
    ) -> Applied:
        """Give the run its next revision and record the event that made it."""
        head = self.head
        head.revision += 1
        head.updated_at = self.arrival
        self.run.changed.head = True
        about = (
            scope,
            node_id,
            attempt_id,
            None if payload is None else text(payload),
            text(refs) if refs else None,
        )
        self._record(RUN_SCOPE, head.revision, type, about, state_digest)
        return Applied(self.rows, head.revision)

    def revise_segment(
        self, segment: Segment, type: str, payload: Mapping[str, Any] | None = None
    ) -> Applied:
        """Give a segment its next revision and record the event that made it."""
        segment.revision += 1
        self.run.changed.segments[segment.no] = segment
        about = ("session", None, None, None if payload is None else text(payload), None)
        self._record(segment.no, segment.revision, type, about, None)
        return Applied(self.rows, segment.revision, segment.no)

    def _record(
        self,
        segment: int,
        revision: int,
        type: str,
        about: tuple[str, str | None, str | None, str | None, str | None],
        state_digest: bytes | None,
    ) -> None:
        run, message = self.run, self.message
        self.rows.append(
            EventRow(
                run.run_key,
                segment,
                revision,
                type,
                *about,
                message.message_id,
                self.producer_no,
                self.seq,
                message.body_hash,
                run.lease.generation if run.lease is not None else 0,
                state_digest,
                message.trace,
                self.arrival,
            )
        )

    def event_type(self, kind: str) -> str:
        """What the run's dialect calls the event of a command of ours; the kind itself by
        default.
        """
        return self.dialect.event_types.get(kind, kind)

    def store_state(self, change: Change, revision: int, *, as_sent: bool) -> bytes:
        """Make `change` the run's state as of `revision`; returns the new state's digest.

        `as_sent`: every member is as the command brought it, so that a patch may build on it.
        """
        head = self.head
        head.state_digest = (head.state_digest + change.delta) % 2**256
        head.state_revision = revision
        run = self.run
        run.state = change.root
        run.state_size = Size(
            run.state_size.rows + change.grown.rows, run.state_size.bytes + change.grown.bytes
        )
        run.document = None
        sender = (self.producer_no, self.seq) if as_sent else (0, 0)
        head.state_producer, head.state_seq = sender
        key = run.run_key
        self.rows.extend(PartRow(key, revision, *part) for part in change.parts)
        self.facts.bases[revision] = change.root
        return head.state_digest.to_bytes(32)

    def project(self, projection: Projection) -> None:
        """Take over what a new state says of the run, and decide the effects of a transition."""
        head = self.head
        before = head.status
        (
            head.status,
            title,
            head.status_detail,
            head.current_node,
            head.current_attempt,
            head.error,
            head.finished_at,
            workflow,
        ) = projection
        head.terminal = head.status in self.dialect.terminal
        head.title = title if title is not None else head.title
        head.workflow = workflow if workflow is not None else head.workflow
        # What has left the queue by itself was taken: nobody may adopt it any more.
        head.reserved = head.reserved and head.status == "queued"
        if head.status != before:
            self._decide_effects()

    def _decide_effects(self) -> None:
        head, run = self.head, self.run
        kind = (
            "run.settled"
            if head.terminal
            else "run.parked"
            if head.status in self.dialect.parked
            else None
        )
        if kind is None or head.effects is None or kind not in orjson.loads(head.effects):
            return
        occurrence = 1 + sum(1 for effect in run.effects.values() if effect.kind == kind)
        name = f"{run.run_id}\0{kind}\0{occurrence}".encode()
        effect = Effect(
            effect_id=f"effect-{sha256(name).hexdigest()[:40]}",
            kind=kind,
            occurrence=occurrence,
            revision=head.revision + 1,
            created_at=self.arrival,
        )
        run.effects[effect.effect_id] = effect
        run.changed.effects[effect.effect_id] = effect
