"""Receipts: what became of a command, for the producer that asked."""

from __future__ import annotations

from collections.abc import Iterable

from writer.apply import Settled
from writer.core.outcome import Applied, Duplicate, Rejected
from writer.store.partition import PartitionFile

Receipt = tuple[str, dict[str, str | int]]


def receipts_of(settled: Iterable[Settled], file: PartitionFile) -> list[Receipt]:
    """Reply stream and fields for each message whose sender asked. A duplicate's says what became
    of the original, where a row still tells.
    """
    receipts: list[Receipt] = []
    for message, decoded, outcome in settled:
        if decoded.reply is None:
            continue
        receipt: dict[str, str | int] = {
            "run": message.run,
            "message_id": message.id,
            "producer": decoded.producer or "",
            "seq": decoded.seq or 0,
        }
        match outcome:
            case Applied(_, revision, segment):
                receipt |= {"outcome": "applied", "revision": revision, "segment": segment}
            case Rejected(reason, detail):
                receipt |= {"outcome": "rejected", "reason": reason.value, "detail": detail}
            case Duplicate():
                receipt |= {"outcome": "duplicate"}
                if decoded.producer is not None and decoded.seq is not None:
                    receipt |= file.original(message.run, decoded.producer, decoded.seq)
            case _:
                continue
        receipts.append((decoded.reply, receipt))
    return receipts
