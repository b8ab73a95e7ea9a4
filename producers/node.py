"""A node of a run: the run's calls with the node's name put in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from producers.handle import Sent


class NodeRun(Protocol):
    """The run that a node belongs to, as far as a node needs it."""

    def snapshot(
        self,
        state: Mapping[str, Any],
        event: str | None = None,
        *,
        node: str | None = None,
        attempt: str | None = None,
        payload: Mapping[str, Any] | None = None,
        confirm: bool = False,
    ) -> Sent:
        """Replace the state."""
        ...

    def update(
        self,
        type: str,
        key: str,
        data: Mapping[str, Any],
        *,
        node: str | None = None,
        attempt: str | None = None,
        confirm: bool = False,
    ) -> Sent:
        """Progress."""
        ...


class Node:
    """Speaks for one node of a run, and one attempt of it if that is named."""

    def __init__(self, run: NodeRun, node_id: str, attempt: str | None) -> None:
        self._run = run
        self._id = node_id
        self._attempt = attempt

    @property
    def id(self) -> str:
        """The node's id."""
        return self._id

    def snapshot(
        self,
        state: Mapping[str, Any],
        event: str,
        *,
        payload: Mapping[str, Any] | None = None,
        confirm: bool = False,
    ) -> Sent:
        """Replace the run's state, and name what happened at this node."""
        return self._run.snapshot(
            state,
            event,
            node=self._id,
            attempt=self._attempt,
            payload=payload,
            confirm=confirm,
        )

    def update(
        self, type: str, key: str, data: Mapping[str, Any], *, confirm: bool = False
    ) -> Sent:
        """Progress of this node."""
        return self._run.update(
            type, key, data, node=self._id, attempt=self._attempt, confirm=confirm
        )
