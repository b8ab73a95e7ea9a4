"""Lines of newline-delimited JSON: as they come, and cut into members without changing them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from writer.cli.lines import BadLine, Line, parse_object, read_lines, text_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
WIDE = 2**70


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe's two ends."""
    there, here = os.pipe()
    try:
        yield there, here
    finally:
        os.close(there)


def lines_of(text: bytes, bytes_max: int = 1_000) -> list[Line]:
    """What is read of a text that is there as a whole."""
    with pipe() as (there, here):
        os.write(here, text)
        os.close(here)
        return [line for line in read_lines(there, bytes_max) if line is not None]


def test_lines_keep_their_numbers_and_blank_ones_are_passed_over() -> None:
    assert lines_of(b"a\n\n  \r\nb\nc") == [
        Line(1, b"a"),
        Line(4, b"b"),
        Line(5, b"c", torn=True),
    ]


@pytest.mark.parametrize("text", [b"", b"\n", b" \n\t"])
def test_nothing_is_no_line(text: bytes) -> None:
    assert lines_of(text) == []


def test_a_line_that_is_too_long_is_passed_over_and_no_other() -> None:
    found = lines_of(b"short\n" + b"x" * 50 + b"\nnext\n" + b"y" * 50, bytes_max=20)
    assert found == [Line(1, b"short"), Line(2, None), Line(3, b"next"), Line(4, None, torn=True)]


def test_what_comes_is_read_before_the_rest_is_there() -> None:
    with pipe() as (there, here):
        lines = read_lines(there)
        os.write(here, b'{"a": 1}\n{"b"')
        assert next(lines) == Line(1, b'{"a": 1}')
        assert next(lines) is None
        os.write(here, b": 2}\n")
        assert next(line for line in lines if line is not None) == Line(2, b'{"b": 2}')
        os.close(here)
        assert [line for line in lines if line is not None] == []


@given(st.dictionaries(st.text(), JSON, max_size=5), st.booleans(), st.booleans())
def test_members_say_what_they_said(
    document: dict[str, Any], ascii_only: bool, spaced: bool
) -> None:
    """Also where a number forces the way that does not read them."""
    document = {**document, "wide": WIDE}
    separators = (" , ", " : ") if spaced else (",", ":")
    text = json.dumps(document, ensure_ascii=ascii_only, separators=separators).encode()
    members = parse_object(text)
    assert list(members) == list(document)
    assert {name: json.loads(member) for name, member in members.items()} == document
    assert members["wide"] == str(WIDE).encode()


@pytest.mark.parametrize(
    "member",
    [b"NaN", b"1e400", b'"\\ud83d"', b'"\xff"', b"[" * 5_000 + b"]" * 5_000, b"9" * 5_000],
)
def test_what_only_a_strict_parser_refuses_stays_as_it_is(member: bytes) -> None:
    assert parse_object(b'{"run": "r", "body": %b}' % member) == {"run": b'"r"', "body": member}


@pytest.mark.parametrize(
    "text", [b"", b"nonsense", b"[1]", b'"text"', b"12345678901234567890", b'{"a": 1', b'{"a" 1}']
)
def test_what_is_no_object(text: bytes) -> None:
    with pytest.raises(BadLine):
        parse_object(text)


def test_the_last_of_repeated_members_holds() -> None:
    assert parse_object(b'{"a": 1, "a": %d}' % WIDE) == {"a": str(WIDE).encode()}


@pytest.mark.parametrize(
    "member, expected", [(b'"a\\u0062"', "ab"), (b"1", None), (b'"\\ud83d"', None), (b"{}", None)]
)
def test_text_of(member: bytes, expected: str | None) -> None:
    assert text_of(member) == expected
