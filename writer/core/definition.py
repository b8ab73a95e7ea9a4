"""A definition's canonical JSON (RFC 8785) and its digest, made here and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import rfc8785

from producers.contract.reasons import Reason
from writer.core.outcome import Refusal


def canonical_definition(definition: Mapping[str, Any]) -> bytes:
    """What is stored: equal for all definitions of one digest, so whose came first does not show.

    Refuse integers beyond 2^53-1, which have none.
    """
    try:
        return rfc8785.dumps(dict(definition))
    except rfc8785.CanonicalizationError:
        raise Refusal(Reason.DEFINITION_INVALID) from None


def definition_digest(definition: Mapping[str, Any] | None) -> bytes | None:
    """SHA-256 of the canonical JSON."""
    return None if definition is None else sha256(canonical_definition(definition)).digest()
