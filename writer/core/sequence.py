"""Sequences: which messages are new, late, known or too far ahead. A function of message order
alone.
"""

from __future__ import annotations

from bisect import bisect_right
from enum import Enum

from producers.contract.envelope import Decoded
from producers.contract.limits import SEQUENCE_JUMP_MAX
from writer.core.run import Run, Sequences


class Standing(Enum):
    """Where a message's sequence stands against its producer's."""

    NEXT = "next"
    LATE = "late"
    KNOWN = "known"
    JUMP = "jump"
    NONE = "none"


def stand_of(run: Run, message: Decoded) -> tuple[Sequences | None, Standing]:
    """What is known of a message's producer, and where its sequence stands.

    A sequence without a producer is nobody's: the message is known by itself alone.
    """
    if message.producer is None:
        return None, Standing.NONE
    sequences = run.producers.get(message.producer)
    return sequences, standing(sequences, message.seq)


def standing(sequences: Sequences | None, seq: int | None) -> Standing:
    """NEXT past the last (a gap may open), LATE in an open gap, KNOWN else; NONE without a
    sequence.
    """
    if seq is None:
        return Standing.NONE
    last = sequences.last if sequences is not None else 0
    if seq > last + SEQUENCE_JUMP_MAX:
        return Standing.JUMP
    if seq > last:
        return Standing.NEXT
    assert sequences is not None
    return Standing.LATE if _gap_of(sequences, seq) is not None else Standing.KNOWN


def use_up(sequences: Sequences, seq: int) -> None:
    """Count a sequence as arrived: open the gap before it, or close the part of a gap that it
    fills.
    """
    if seq > sequences.last:
        if seq > sequences.last + 1:
            sequences.gaps.append((sequences.last + 1, seq - 1))
        sequences.last = seq
        return
    place = _gap_of(sequences, seq)
    assert place is not None, "a known sequence is never used up again"
    first, last = sequences.gaps[place]
    rest = [(first, seq - 1)] if first < seq else []
    rest += [(seq + 1, last)] if seq < last else []
    sequences.gaps[place : place + 1] = rest


def _gap_of(sequences: Sequences, seq: int) -> int | None:
    place = bisect_right(sequences.gaps, (seq, 2**63)) - 1
    if place >= 0 and sequences.gaps[place][0] <= seq <= sequences.gaps[place][1]:
        return place
    return None
