"""A host as tests need one: it claims runs and proves it."""

from __future__ import annotations

from typing import Any

from producers.contract.commands import Auth
from producers.contract.envelope import token_sha256


class Host:
    """A host that claims runs: its owner id outlives a restart, its tokens do not."""

    def __init__(self, owner: str, owner_type: str = "host") -> None:
        self.owner = owner
        self.owner_type = owner_type
        self._claims = 0

    def claim(self, lease_ms: int = 10_000) -> dict[str, Any]:
        """The body of its next claim, under a new token."""
        self._claims += 1
        return {
            "owner_type": self.owner_type,
            "owner_id": self.owner,
            "token_sha256": token_sha256(self.token()),
            "lease_ms": lease_ms,
        }

    def token(self, claim: int | None = None) -> str:
        """The token of its last claim, or of an earlier one (1, 2, ...)."""
        return f"token-{self.owner}-{self._claims if claim is None else claim}"

    def auth(self, generation: int | None = None, *, claim: int | None = None) -> Auth:
        """Its authority; without a generation, as a host that pipelines behind its own claim."""
        return Auth.model_validate(
            {
                "owner_type": self.owner_type,
                "owner_id": self.owner,
                "token": self.token(claim),
                "generation": generation,
            }
        )
