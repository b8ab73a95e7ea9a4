"""The archive, read by other code than the writer's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import zstandard

HEAD_BYTES = 16
Place = tuple[int, int, int]


def place_of(text: str) -> Place:
    """A position: epoch, segment, byte."""
    epoch, number, offset = text.split(":")
    return int(epoch), int(number), int(offset)


def between(folders: Sequence[Path], first: Place, last: Place) -> list[dict[str, Any]]:
    """The lines of the frames that end past one position and up to another, in order.

    What an epoch wrote behind the place up to which a later one had read it, does not count.
    """
    found = {path.name[:16]: path for folder in folders for path in folder.glob("e*.zst*")}.values()
    files = [
        (int(path.name[1:9]), int(path.name[10:16]), list(_frames(path.read_bytes())))
        for path in sorted(found, key=lambda path: path.name[:16])
    ]
    bound: Place | None = None
    bounds: dict[int, Place | None] = {}
    for epoch, number, frames in sorted(files, key=lambda file: (-file[0], file[1])):
        if epoch in bounds:
            continue
        bounds[epoch] = bound
        if frames and (bound is None or (epoch, number, frames[0][0]) <= bound):
            after = place_of(frames[0][1][0]["after"])
            bound = after if bound is None else min(bound, after)
    return [
        line
        for epoch, number, frames in files
        for end, lines in frames
        if first < (epoch, number, end) <= last
        and (bounds[epoch] is None or (epoch, number, end) <= bounds[epoch])
        for line in lines
    ]


def _frames(data: bytes) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    at = 0
    while at + HEAD_BYTES <= len(data):
        length = int.from_bytes(data[at + 8 : at + HEAD_BYTES], "little")
        end = at + HEAD_BYTES + length
        if end > len(data):
            return
        payload = zstandard.ZstdDecompressor().decompress(data[at + HEAD_BYTES : end])
        yield end, list(_lines(payload))
        at = end


def _lines(payload: bytes) -> Iterator[dict[str, Any]]:
    while payload:
        line, _, payload = payload.partition(b"\n")
        value = json.loads(line)
        fields = {}
        for name, size in value.get("fields", ()):
            fields[name] = payload[:size].decode()
            payload = payload[size:]
        if "fields" in value:
            value["fields"] = fields
            payload = payload[1:]
        yield value


def newest_segment(folder: Path, epoch: int) -> Path | None:
    """The segment that an epoch has open."""
    return max(folder.glob(f"e{epoch:08d}-*.zst.open"), default=None)
