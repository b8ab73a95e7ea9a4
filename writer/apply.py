"""A batch of messages becomes one transaction: decode, facts, decide, commit.

Nothing here reads Redis or a clock, so a live daemon, a replay and a test apply alike.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

import orjson

from producers.contract import limits
from producers.contract.envelope import Decoded, decode
from producers.contract.keys import partition_of
from producers.contract.reasons import Reason
from writer.core import parts
from writer.core.decide import decide
from writer.core.dialect import Dialects
from writer.core.facts import Wanted, want
from writer.core.outcome import Applied, Duplicate, Held, Outcome, Rejected
from writer.core.run import Run
from writer.dialects import DIALECTS
from writer.store.commit import Batch, Hook, QuarantineRow, RejectionRow, no_hook
from writer.store.partition import PartitionFile

CACHE_BYTES = 64 * 1024 * 1024
RUN_BYTES = 4 * 1024
"""About what an aggregate costs beside its state."""
ITEM_BYTES = 512
ARRIVAL_MS_MAX = limits.COUNTER_MAX
"""A message id may name any 64-bit millisecond; times stay where every parser keeps them exactly.
"""


class Message(NamedTuple):
    """One stream item with its token already sealed. `fields` as Redis has them."""

    run: str
    id: str
    fields: Mapping[bytes, bytes]


class Settled(NamedTuple):
    """How one message ended."""

    message: Message
    decoded: Decoded
    outcome: Outcome


def arrival_ms(message_id: str) -> int:
    """The milliseconds of a message id: the only time that decisions know."""
    return min(int(message_id.partition("-")[0]), ARRIVAL_MS_MAX)


def order_of(message_id: str) -> tuple[int, int]:
    """A message id as what it is compared by: two numbers, never its text."""
    ms, _, n = message_id.partition("-")
    return int(ms), int(n)


class Aggregates:
    """Aggregates in memory, least recently used ones dropped above `bytes_max`."""

    def __init__(self, file: PartitionFile, bytes_max: int = CACHE_BYTES) -> None:
        self._file = file
        self._bytes_max = bytes_max
        self._runs: OrderedDict[str, tuple[Run, int]] = OrderedDict()
        self._bytes = 0

    def get(self, run_id: str) -> Run:
        """The run's aggregate, loaded if need be."""
        known = self._runs.get(run_id)
        if known is not None:
            self._runs.move_to_end(run_id)
            return known[0]
        run = self._file.load(run_id)
        self._runs[run_id] = (run, 0)
        return run

    def weigh(self, runs: Iterable[Run]) -> None:
        """Count what a committed batch's aggregates have grown to, and drop what is too much."""
        for run in runs:
            known = self._runs.get(run.run_id)
            weight = _weight(run)
            self._bytes += weight - (known[1] if known is not None else 0)
            self._runs[run.run_id] = (run, weight)
        while self._bytes > self._bytes_max and len(self._runs) > 1:
            _, (_, weight) = self._runs.popitem(last=False)
            self._bytes -= weight

    def drop(self, run_ids: Iterable[str]) -> None:
        """Forget aggregates that may differ from what is stored."""
        for run_id in run_ids:
            known = self._runs.pop(run_id, None)
            self._bytes -= known[1] if known is not None else 0


def _weight(run: Run) -> int:
    items = len(run.attempts) + len(run.updates) + len(run.segments) + len(run.producers)
    state = parts.weight(run.state) if run.state is not None else 0
    return RUN_BYTES + items * ITEM_BYTES + state


@dataclass(slots=True)
class Applier:
    """Applies batches to one partition file. `partitions` tells which runs belong to it."""

    file: PartitionFile
    partition: int
    partitions: int
    aggregates: Aggregates
    dialects: Dialects = field(default_factory=lambda: DIALECTS)

    def apply(
        self,
        messages: Iterable[Message],
        *,
        now: int,
        restarts: Iterable[str] = (),
        released: Iterable[str] = (),
        hook: Hook = no_hook,
    ) -> tuple[list[Settled], int]:
        """Settle messages in one transaction; returns how each ended, and the commit_seq.

        A run's messages keep their order; runs are taken one by one. Messages at or before the
        run's cursor are passed over. `restarts` names runs whose stream is read from its start
        again, as a new incarnation; `released` those that leave quarantine. `now` (ms) dates
        quarantines only. Whatever is raised, nothing was written and the batch's aggregates are
        forgotten.
        """
        by_run: dict[str, list[Message]] = {run_id: [] for run_id in (*restarts, *released)}
        for message in messages:
            by_run.setdefault(message.run, []).append(message)
        batch = Batch()
        settled: list[Settled] = []
        again = set(restarts)
        try:
            for run_id, items in by_run.items():
                run = self.aggregates.get(run_id)
                if run_id in again:
                    run.cursor.incarnation += 1
                    run.cursor.message_id = "0-0"
                batch.runs.append(run)
                settled.extend(self._decide(run, items, batch, now))
            batch.released.extend(self.aggregates.get(run_id).run_key for run_id in released)
            batch.messages = sum(1 for each in settled if not isinstance(each.outcome, Held))
            hook("decided")
            commit_seq = self.file.commit(batch, hook)
        except BaseException:
            self.aggregates.drop(by_run)
            raise
        self.aggregates.weigh(batch.runs)
        return settled, commit_seq

    def quarantine(self, message: Message, cause: str, detail: str, now: int) -> None:
        """Stop a run at a message that can not be settled for a reason of ours (`now` in ms)."""
        run = self.aggregates.get(message.run)
        row = QuarantineRow(run.run_key, message.id, cause, detail, None, now)
        self.file.commit(Batch(runs=[run], quarantines=[row]))

    def _decide(self, run: Run, messages: list[Message], batch: Batch, now: int) -> list[Settled]:
        cursor = order_of(run.cursor.message_id)
        decoded = [self._decode(message) for message in messages if order_of(message.id) > cursor]
        messages = messages[len(messages) - len(decoded) :]
        wanted = Wanted()
        for each in decoded:
            want(run, each, wanted)
        facts = self.file.facts(run, wanted)
        settled: list[Settled] = []
        rows = len(batch.rows)
        for message, each in zip(messages, decoded, strict=True):
            outcome = decide(run, each, arrival_ms(message.id), facts, self.dialects)
            settled.append(Settled(message, each, outcome))
            match outcome:
                case Applied():
                    if run.changed.erased and outcome.revision == _grave_revision(run):
                        # What this batch would have added is deleted with the rest.
                        del batch.rows[rows:]
                        batch.rejections = [
                            kept for kept in batch.rejections if kept.run_key != run.run_key
                        ]
                    batch.rows.extend(outcome.rows)
                case Rejected():
                    batch.rejections.append(rejection(run, message, each, outcome))
                case Held(version):
                    batch.quarantines.append(
                        QuarantineRow(
                            run.run_key,
                            message.id,
                            "version_newer",
                            f"contract version {version}, this writer knows "
                            f"{limits.CONTRACT_VERSION}",
                            version,
                            now,
                        )
                    )
                    break
                case Duplicate():
                    pass
        return settled

    def _decode(self, message: Message) -> Decoded:
        decoded = decode(message.run, message.id, message.fields)
        if (
            decoded.reason is not Reason.RUN_ID_INVALID
            and partition_of(message.run, self.partitions) != self.partition
        ):
            return decoded._replace(
                command=None, newer_version=None, reason=Reason.PARTITION_WRONG, detail=""
            )
        return decoded


def _grave_revision(run: Run) -> int | None:
    return run.tombstone.revision if run.tombstone is not None else None


def rejection(run: Run, message: Message, decoded: Decoded, outcome: Rejected) -> RejectionRow:
    """A refused message as it is kept: whole, or its head and hash if it is over the limit."""
    size = sum(len(name) + len(value) for name, value in message.fields.items())
    digest = sha256()
    for name, value in sorted(message.fields.items()):
        digest.update(b"%d:%b%d:%b" % (len(name), name, len(value), value))
    keep = size <= limits.REFUSED_BYTES_MAX
    cut = limits.REFUSED_HEAD_BYTES
    return RejectionRow(
        run_key=run.run_key,
        incarnation=run.cursor.incarnation,
        message_id=message.id,
        kind=decoded.kind,
        producer=decoded.producer,
        producer_seq=decoded.seq,
        reason=outcome.reason.value,
        detail=outcome.detail[: limits.REASON_CHARS_MAX],
        fields=_fields_text(message.fields) if keep else None,
        head=None
        if keep
        else _fields_text({name[:100]: value[:cut] for name, value in message.fields.items()}),
        fields_bytes=size,
        fields_sha256=digest.digest(),
        body_hash=decoded.body_hash,
        recorded_at=arrival_ms(message.id),
    )


def _fields_text(fields: Mapping[bytes, bytes]) -> str:
    named = {name.decode("latin-1"): _field_value(value) for name, value in fields.items()}
    return orjson.dumps(named).decode()


def _field_value(value: bytes) -> str | dict[str, str]:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"hex": value.hex()}


def fields_of(text: str) -> dict[bytes, bytes]:
    """The stream fields that a rejection keeps, byte for byte."""
    return {
        name.encode("latin-1"): value.encode()
        if isinstance(value, str)
        else bytes.fromhex(value["hex"])
        for name, value in orjson.loads(text).items()
    }
