"""JSON text to values, refusing whatever could not be kept exactly.

orjson parses; where it could lose something without a word (an integer of more than 64 bits becomes
a float) the text is parsed once more by a parser that tells. Of repeated keys the last wins.
"""

from __future__ import annotations

import json
import re
from itertools import chain
from typing import Any, NoReturn

import orjson

from producers.contract.limits import INTEGER_MAX, INTEGER_MIN, NESTING_DEPTH_MAX
from producers.contract.reasons import Reason

_DIGITS_TO_ZERO = bytes(0x30 if 0x30 <= byte <= 0x39 else byte for byte in range(256))
_LONG_DIGITS = b"0" * 19
_ORJSON_BUFFER_BYTES = 4_096
_ORJSON_DEPTH_MAX = 254
"""Levels that orjson writes; a test holds it to that."""
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)


class JsonRefused(ValueError):
    """The text is not JSON that we can keep; `reason` says why. Never holds the text itself."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.sentence)
        self.reason = reason


def compact(text: bytes) -> bytes:
    """The same text in memory of its own size: orjson's lie in buffers of 4 KB at least, which
    counts where many small ones wait.
    """
    return b"%b" % text if len(text) < _ORJSON_BUFFER_BYTES else text


def room_left(value: Any, room: int) -> int:
    """What is left at best of so many bytes after a value's JSON; once negative, it looks no
    further.
    """
    if isinstance(value, str):
        return room - len(value) - 2
    if not isinstance(value, (dict, list)):
        return room - 1
    room -= len(value) + 1
    for item in chain(value, value.values()) if isinstance(value, dict) else value:
        if room < 0:
            break
        room = room_left(item, room)
    return room


def sorted_json(value: Any) -> bytes:
    """The bytes by which two JSON values are compared: keys sorted, no spaces, `1` is not `1.0`."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def parse_json(text: bytes) -> Any:
    """Parse UTF-8 JSON text.

    Raises JsonRefused for text that is not JSON, not UTF-8, nests deeper than 128, or holds a
    number or a text that can not be kept exactly.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise JsonRefused(_why_refused(text)) from None
    # A level costs two bytes of brackets at least, so short or flat text needs no look.
    if text.count(b"[") + text.count(b"{") > NESTING_DEPTH_MAX and is_too_deep(value):
        raise JsonRefused(Reason.BODY_TOO_DEEP)
    # Every digit made a zero, then one search: a tenth of what a regular expression costs.
    if _LONG_DIGITS in text.translate(_DIGITS_TO_ZERO):
        _refuse_wide_integers(text)
    return value


def is_too_deep(value: Any) -> bool:
    """Whether a value nests deeper than 128: a scalar 0 levels, `{}` 1."""
    # orjson counts levels far faster than Python, so its own limit is brought down to ours.
    for _ in range(_ORJSON_DEPTH_MAX - NESTING_DEPTH_MAX):
        value = [value]
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        return True
    return False


def _refuse_wide_integers(text: bytes) -> None:
    json.loads(text, parse_int=_exact)


def _exact(digits: str) -> int:
    # int() of a very long run of digits is quadratic and capped by Python: judge by length first.
    number = int(digits) if len(digits) <= 21 else INTEGER_MAX + 1
    if not INTEGER_MIN <= number <= INTEGER_MAX:
        raise JsonRefused(Reason.NUMBER_NOT_EXACT)
    return number


def _why_refused(text: bytes) -> Reason:
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        return Reason.BODY_NOT_UTF8
    if _bracket_depth(text) > NESTING_DEPTH_MAX:
        return Reason.BODY_TOO_DEEP
    try:
        json.loads(decoded, parse_constant=_refuse_constant, parse_float=_finite, parse_int=_exact)
    except JsonRefused as refused:
        return refused.reason
    except ValueError:
        return Reason.BODY_NOT_JSON
    # The lenient parser takes it and orjson does not: half a surrogate pair is what is left.
    return Reason.TEXT_NOT_EXACT


def _bracket_depth(text: bytes) -> int:
    deepest = level = 0
    for byte in _STRINGS.sub(b"", text):
        if byte in b"[{":
            level += 1
            deepest = max(deepest, level)
            if deepest > NESTING_DEPTH_MAX:
                break
        elif byte in b"]}":
            level -= 1
    return deepest


def _refuse_constant(_: str) -> NoReturn:
    raise JsonRefused(Reason.NUMBER_NOT_EXACT)


def _finite(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise JsonRefused(Reason.NUMBER_NOT_EXACT)
    return number
