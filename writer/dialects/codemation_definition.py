"""A workflow snapshot inside a codemation state: kept apart where that loses nothing.

What is kept in its place is `["definition", <digest in hexadecimal>]` or, where the canonical JSON
is not exactly what came (a float without fraction, an integer beyond 2^53-1, no object at all),
`["document", <as it came>]`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import orjson

from producers.contract.jsontext import sorted_json
from writer.core.definition import canonical_definition
from writer.core.dialect import Document, Named
from writer.core.outcome import Refusal

KNOWN_MAX = 1_024
DEFINITION, DOCUMENT = "definition", "document"

_known: OrderedDict[bytes, bytes | None] = OrderedDict()
"""Digests by the hash of the sorted JSON: every save brings the same snapshot again, and canonical
JSON is dear. A memo of a pure function, so it changes no decision.
"""


def named_in(value: Any) -> Named | None:
    """The definition that a workflow snapshot is; None if it has to stay in the state."""
    if not isinstance(value, dict):
        return None
    text = sorted_json(value)
    name = sha256(text).digest()
    if name not in _known:
        _known[name] = _exact_digest(value, text)
        if len(_known) > KNOWN_MAX:
            _known.popitem(last=False)
    digest = _known[name]
    return None if digest is None else Named(digest, value)


def _exact_digest(value: Document, text: bytes) -> bytes | None:
    try:
        canonical = canonical_definition(value)
    except Refusal:
        return None
    return sha256(canonical).digest() if sorted_json(orjson.loads(canonical)) == text else None


def kept_of(value: Any) -> list[Any]:
    """What is kept in the state in place of a workflow snapshot."""
    named = named_in(value)
    return [DOCUMENT, value] if named is None else [DEFINITION, named.digest.hex()]


def shown_of(kept: Any, definition: Callable[[bytes], Document | None]) -> Any:
    """The workflow snapshot that was kept."""
    kind, value = kept
    return definition(bytes.fromhex(value)) if kind == DEFINITION else value
