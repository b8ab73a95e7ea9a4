"""How far an archive reaches: what is here, what expired, what was never archived."""

from __future__ import annotations

from pathlib import Path

from writer.streams.archive import START, Position, segment_size, segments, sync_folder


def missing(folder: Path, upto: Position) -> str | None:
    """The first segment that should be here and is not, of those that a file at a position has
    applied; None if all are. What expired is not missing: see `reaches_back_to`.
    """
    present = {segment[:2] for segment in segments(folder)}
    if upto.offset and upto[:2] not in present:
        return f"e{upto.epoch:08d}-{upto.number:06d}"
    for epoch, number in sorted(present):
        later = any(epoch == other and number < last for other, last in present)
        if later and (epoch, number + 1) not in present:
            return f"e{epoch:08d}-{number + 1:06d}"
    return None


def expire(folder: Path, before_ms: int) -> int:
    """Remove segments last written before a time (ms), oldest first; returns how many.

    What is removed bounds how far a replay can go, so it is noted first. The newest segment stays.
    """
    removed = 0
    for segment in segments(folder)[:-1]:
        if segment.path.stat().st_mtime_ns // 1_000_000 >= before_ms:
            break
        _note_end(folder, segment.epoch, segment.number)
        segment.path.unlink()
        removed += 1
    return removed


def interrupt(folder: Path, epoch: int) -> None:
    """Note that not all is archived that was settled up to an epoch: nothing can be reached across
    its end.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _note_end(folder, epoch, 0)


def _note_end(folder: Path, epoch: int, number: int) -> None:
    """Note that a replay can not begin before the end of this segment."""
    if (epoch, number) <= _noted_end(folder)[:2]:
        return
    note = folder / "expired.new"
    note.write_text(f"{epoch}:{number}:0\n")
    note.rename(folder / "expired")
    sync_folder(folder)


def _noted_end(folder: Path) -> Position:
    try:
        return Position.parse((folder / "expired").read_text().strip())
    except FileNotFoundError:
        return START


def last_epoch(folder: Path) -> int:
    """The newest epoch that wrote here; 0 if none did."""
    return max((segment.epoch for segment in segments(folder)), default=0)


def reaches_back_to(folder: Path, since: Position) -> bool:
    """Whether all that was archived past a position is still here."""
    noted = _noted_end(folder)
    return bool(segments(folder)) and (noted == START or since[:2] > noted[:2])


def reaches_up_to(folder: Path, archived: str) -> bool:
    """Whether the batch that ended at a position is here; never for '', which was not archived."""
    if not archived:
        return False
    last = Position.parse(archived)
    return last == START or any(
        segment[:2] > last[:2] or (segment[:2] == last[:2] and segment_size(segment) >= last.offset)
        for segment in segments(folder)
    )
