"""Opaque tokens: where a list or a feed goes on. Their inside is nobody's business but ours."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, TypeVar

import orjson
from pydantic import TypeAdapter

from writer.errors import Usage

T = TypeVar("T")


def encode(place: Any) -> str:
    """A place (plain JSON values) as text without spaces, fit for a URL."""
    return urlsafe_b64encode(orjson.dumps(place)).decode().rstrip("=")


def decode(token: str, shape: TypeAdapter[T]) -> T:
    """The place again. Raises Usage for what is no token of this list."""
    try:
        padded = token.encode("ascii") + b"=" * (-len(token) % 4)
        return shape.validate_json(urlsafe_b64decode(padded), strict=True)
    except ValueError:
        raise Usage(
            f"{token[:60]!r} is no token of this list",
            hint="take it unchanged from the page before; leave it out to start over",
        ) from None
