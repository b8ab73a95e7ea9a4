"""A definition's identity: the digest of its canonical JSON (RFC 8785), made here and nowhere
else.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import rfc8785

from producers.contract.reasons import Reason
from writer.core.outcome import Refusal


def definition_digest(definition: Mapping[str, Any] | None) -> bytes | None:
    """SHA-256 of the canonical JSON; refuse integers beyond 2^53-1, which have none."""
    if definition is None:
        return None
    try:
        return sha256(rfc8785.dumps(dict(definition))).digest()
    except rfc8785.CanonicalizationError:
        raise Refusal(Reason.DEFINITION_INVALID) from None
