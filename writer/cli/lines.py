"""Lines of newline-delimited JSON, from a file, a pipe or a terminal, in bounded memory."""

from __future__ import annotations

import json
import os
import re
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from writer.errors import Usage

READ_BYTES = 1024 * 1024
LINE_BYTES_MAX = 128 * 1024 * 1024
"""A longer line is passed over; what is refused for its size is a quarter of it at most."""
IDLE_S = 0.05

_WHITE = b" \t\r\n"
_DIGITS_TO_ZERO = bytes(0x30 if 0x30 <= byte <= 0x39 else byte for byte in range(256))
_LONG_DIGITS = b"0" * 19
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]:,]', re.DOTALL)


class Line(NamedTuple):
    """A line by its number from 1, without its end; `text` None: it was too long to be kept."""

    number: int
    text: bytes | None
    torn: bool = False
    """Whether it is the last one, and no line end followed."""


class BadLine(ValueError):
    """A line that is not what is asked for; the text says why, and holds nothing of the line."""


@contextmanager
def source(path: Path) -> Iterator[tuple[int, int | None]]:
    """A file's descriptor and its size; of stdin for `-`, its size being None. Raises Usage."""
    if str(path) == "-":
        yield sys.stdin.fileno(), None
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise Usage(f"{path} can not be read: {error.strerror}") from error
    try:
        if path.is_dir():
            raise Usage(f"{path} is a folder", hint="name a file, or - for stdin")
        yield descriptor, os.fstat(descriptor).st_size if path.is_file() else None
    finally:
        os.close(descriptor)


def read_lines(descriptor: int, bytes_max: int = LINE_BYTES_MAX) -> Iterator[Line | None]:
    """Lines that are not blank, as they come. None: for a moment there is no more to read."""
    number = 0
    kept: list[bytes] = []
    kept_bytes = 0
    while True:
        if not select.select([descriptor], [], [], IDLE_S)[0]:
            yield None
            continue
        chunk = os.read(descriptor, READ_BYTES)
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            number += 1
            text = b"".join((*kept, piece))
            too_long = kept_bytes + len(piece) > bytes_max
            kept, kept_bytes = [], 0
            if too_long:
                yield Line(number, None)
            elif text.strip(_WHITE):
                yield Line(number, text)
        kept_bytes += len(rest)
        if kept_bytes <= bytes_max:
            kept.append(rest)
        else:
            kept = []
        if not chunk:
            break
    text = b"".join(kept)
    if kept_bytes > bytes_max or text.strip(_WHITE):
        yield Line(number + 1, text or None, torn=True)


def content(line: Line) -> bytes:
    """A line's text. Raises BadLine for one that was too long to be kept."""
    if line.text is None:
        raise BadLine(f"longer than {LINE_BYTES_MAX >> 20} MiB")
    return line.text


def parse_object(text: bytes) -> dict[str, bytes]:
    """A JSON object's members, each as its own JSON text. Raises BadLine.

    The texts come as they stand in the line, wherever parsing could change what they say (a number
    beyond 64 bits, NaN, half a surrogate pair, bytes that are not UTF-8): whoever gets them judges.
    """
    if _LONG_DIGITS not in text.translate(_DIGITS_TO_ZERO):
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError:
            return _split(text)
        if not isinstance(value, dict):
            raise BadLine("not a JSON object")
        return {name: orjson.dumps(member) for name, member in value.items()}
    return _split(text)


def text_of(member: bytes) -> str | None:
    """The string that a JSON text holds; None if it holds no string, or none that is Unicode."""
    try:
        value = orjson.loads(member)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, str) else None


def _split(text: bytes) -> dict[str, bytes]:
    """Cut an object into its members without reading what they say."""
    _check_lenient(text.decode("utf-8", "surrogateescape"))
    members: dict[str, bytes] = {}
    name: str | None = None
    depth = start = 0
    for token in _TOKENS.finditer(text):
        char = token[0]
        if char in b"{[":
            depth += 1
            if depth == 1:
                start = token.end()
        elif depth == 1 and name is None and char == b":":
            name = json.loads(text[start : token.start()])
            start = token.end()
        elif char in b"}]" or (depth == 1 and char == b","):
            if depth == 1 and name is not None:
                members[name] = text[start : token.start()].strip()
                name, start = None, token.end()
            depth -= char != b","
    return members


def _check_lenient(text: str) -> None:
    """Refuse what no parser of JSON takes; what only a strict one refuses goes on."""
    try:
        value: Any = json.loads(text, parse_int=len)
    except RecursionError:
        value = {} if text.lstrip().startswith("{") else None
    except ValueError:
        raise BadLine("not JSON") from None
    if not isinstance(value, dict):
        raise BadLine("not a JSON object")
