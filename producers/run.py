"""One run, as its host speaks of it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Any, Final, Literal, Protocol, Self

from producers.chain import STATE_KINDS, Chain, Voice
from producers.clock import iso, now_ms
from producers.contract.commands import Auth, OwnerType, TestCaseStatus
from producers.contract.envelope import token_sha256
from producers.errors import LeaseLost, LeaseNotHeld, ProducerError
from producers.handle import Receipt, Sent
from producers.hold import Hold, Keeper
from producers.names import new_token
from producers.node import Node
from producers.session import Session
from producers.validation import make_auth

logger = logging.getLogger("statewriter.producer")

DEFAULT_LEASE_MS: Final = 30_000
EffectStatus = Literal["applied", "rejected", "ambiguous", "cancelled"]


class Unset(Enum):
    """The type of UNSET, which means "leave it as it is" where None means "take it away"."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET


LEASED_KINDS: Final = (STATE_KINDS - {"run.create"}) | {
    "run.update",
    "session.bind",
    "lease.renew",
    "lease.release",
}
"""What is refused without the lease. Entries go by who bound their segment."""


class Way(Voice, Protocol):
    """How a run's commands leave."""

    @property
    def keeper(self) -> Keeper:
        """Who renews leases."""
        ...

    def chain(self, run: str) -> Chain:
        """The states that this producer says of a run."""
        ...

    def await_confirmed(self, sent: Sent) -> None:
        """Wait until it is applied, if calls may wait. Raises CommandRejected or NotConfirmed."""
        ...


@dataclass(frozen=True, slots=True)
class Lease:
    """Write authority over a run, as claimed; whether it was granted is the writer's to say."""

    owner_type: OwnerType
    owner_id: str
    lease_ms: int
    token: str = field(repr=False)
    sent: Sent = field(repr=False, compare=False)


class Run:
    """Each method says one thing and returns its handle at once. Errors as Producer says.

    After `claim()` every command carries the claimed authority, without waiting for the claim.
    With `confirm=True` a call returns once the writer has applied the command; else it raises
    CommandRejected or NotConfirmed. In a `with` the run is completed at the end, or has failed if
    the block raised, unless it was ended within.
    """

    def __init__(self, run_id: str, way: Way) -> None:
        self._id = run_id
        self._way = way
        self._auth: Auth | None = None
        self._lease_ms = DEFAULT_LEASE_MS
        self._chain = way.chain(run_id)
        self._held = False
        self._lost: Receipt | None = None
        self._ended = False

    @property
    def id(self) -> str:
        """The run's id."""
        return self._id

    @property
    def auth(self) -> Auth | None:
        """The authority that commands carry now; None before a claim and after a release."""
        return self._auth

    def __repr__(self) -> str:
        return f"Run({self._id!r})"

    def send(
        self,
        kind: str,
        body: Mapping[str, Any],
        *,
        auth: Auth | None = None,
        confirm: bool = False,
    ) -> Sent:
        """Say anything about this run, under `auth` if given, else under the claimed authority."""
        if self._lost is not None and kind in LEASED_KINDS:
            raise LeaseLost(self._lost)
        auth, ask = auth or self._auth, self._held or confirm
        if kind in STATE_KINDS:
            sent = self._chain.say(kind, body, auth, ask=ask)
        else:
            sent, _ = self._way.publish(self._id, kind, body, auth, ask=ask)
        if confirm:
            self._way.await_confirmed(sent)
        return sent

    def snapshot(  # noqa: PLR0913  # all but the state are optional and named
        self,
        state: Mapping[str, Any],
        event: str | None = None,
        *,
        node: str | None = None,
        attempt: str | None = None,
        payload: Mapping[str, Any] | None = None,
        scope: Literal["run", "node"] | None = None,
        expected_revision: int | None = None,
        on_conflict: Literal["reject", "merge"] = "reject",
        confirm: bool = False,
    ) -> Sent:
        """Replace the state, and name the trace event that led there.

        The scope is `node` if a node is named, else `run`. With `expected_revision` it applies to
        that revision only, or with `on_conflict="merge"` is merged into a later one. A large state
        travels as what has changed since the last one.
        """
        if scope is None and node is not None:
            scope = "node"
        draft = _given(type=event, scope=scope, node_id=node, attempt_id=attempt, payload=payload)
        if expected_revision is None and on_conflict == "reject" and not confirm:
            if self._lost is not None:
                raise LeaseLost(self._lost)
            return self._chain.snapshot(state, draft, self, ask=self._held)
        body = _given(event=draft or None, expected_revision=expected_revision)
        if on_conflict != "reject":
            body["on_conflict"] = on_conflict
        return self.send("run.snapshot", {"state": state, **body}, confirm=confirm)

    def update(  # all but three are optional and named
        self,
        type: str,
        key: str,
        data: Mapping[str, Any],
        *,
        node: str | None = None,
        attempt: str | None = None,
        confirm: bool = False,
    ) -> Sent:
        """Progress: the last update of a type and key (and attempt) is the current one."""
        body = {"type": type, "key": key, "data": data}
        body |= _given(node_id=node, attempt_id=attempt)
        return self.send("run.update", body, confirm=confirm)

    def node(self, node_id: str, attempt: str | None = None) -> Node:
        """The run as one of its nodes speaks of it: its name is put into each call."""
        return Node(self, node_id, attempt)

    def session(
        self,
        session_id: str,
        capture_key: str | None = None,
        binding: Mapping[str, Any] | None = None,
    ) -> Session:
        """A transcript of this run; use it in a `with`, or call its `bind` and `capture`."""
        return Session(self, session_id, capture_key, binding)

    def complete(
        self,
        output: Any = None,
        state: Mapping[str, Any] | None = None,
        *,
        confirm: bool = False,
    ) -> Sent:
        """Finish well: a snapshot of `state`, else of the last state that this object sent."""
        finished = _given(status="completed", finishedAt=iso(now_ms()), finalOutput=output)
        return self._end(self._last_state(state) | finished, "run_completed", confirm)

    def fail(
        self,
        error: str | BaseException,
        state: Mapping[str, Any] | None = None,
        *,
        confirm: bool = False,
    ) -> Sent:
        """Finish badly: as `complete`, with an error text or `<class>: <text>` of an exception."""
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        finished = {"status": "failed", "finishedAt": iso(now_ms()), "error": text}
        return self._end(self._last_state(state) | finished, "run_failed", confirm)

    def resume(self) -> Sent:
        """Take a running run up again: what was active is interrupted."""
        return self.send("run.resume", {})

    def reset(self, reason: str | None = None) -> Sent:
        """Lead a finished run back to running."""
        return self.send("run.reset", _given(reason=reason))

    def interrupt(self, reason: str | None = None) -> Sent:
        """Say that the run's host is gone: the run has failed."""
        return self.send("run.interrupt", _given(reason=reason))

    def delete(self, reason: str | None = None) -> Sent:
        """Remove the run and all that hangs on it, for ever."""
        return self.send("run.delete", _given(reason=reason))

    def annotate(
        self,
        *,
        title: str | Unset | None = UNSET,
        tags: Mapping[str, str] | Unset | None = UNSET,
        test_case_status: TestCaseStatus | Unset | None = UNSET,
    ) -> Sent:
        """Set what is given; None takes it away, UNSET (the default) leaves it as it is."""
        named = {"title": title, "tags": tags, "test_case_status": test_case_status}
        return self.send("run.annotate", {k: v for k, v in named.items() if v is not UNSET})

    def settle_effect(
        self,
        effect_id: str,
        occurrence: int,
        status: EffectStatus,
        *,
        result: Any = None,
        error: str | None = None,
    ) -> Sent:
        """Say what became of an effect: sent by the job that ran it."""
        body = {"effect_id": effect_id, "occurrence": occurrence, "status": status}
        return self.send("effect.settle", body | _given(result=result, error=error))

    def claim(
        self,
        owner_id: str,
        *,
        owner_type: OwnerType = "host",
        lease_ms: int = DEFAULT_LEASE_MS,
        token: str | None = None,
        confirm: bool = False,
    ) -> Lease:
        """Claim the right to write, with a new token unless one is given.

        Commands that follow carry it without waiting: if another owner's lease is live, the writer
        refuses them together with the claim. An owner id outlives a restart, a token does not.
        """
        token = new_token() if token is None else token
        auth = make_auth(owner_type=owner_type, owner_id=owner_id, token=token)
        body = {
            "owner_type": owner_type,
            "owner_id": owner_id,
            "token_sha256": token_sha256(token),
            "lease_ms": lease_ms,
        }
        sent, _ = self._way.publish(self._id, "lease.claim", body, ask=self._held or confirm)
        if confirm:
            self._way.await_confirmed(sent)
        self._lost = None
        self._auth = auth
        self._lease_ms = lease_ms
        return Lease(owner_type, owner_id, lease_ms, token, sent)

    def renew(self, lease_ms: int | None = None) -> Sent:
        """Keep the lease while there is nothing to say. Raises LeaseNotHeld without a claim."""
        if self._auth is None:
            raise LeaseNotHeld
        sent = self.send(
            "lease.renew", {"lease_ms": self._lease_ms if lease_ms is None else lease_ms}
        )
        if lease_ms is not None:
            self._lease_ms = lease_ms
        return sent

    def release(self) -> Sent:
        """Give the lease back: the run takes commands from anyone. Raises LeaseNotHeld."""
        if self._auth is None:
            raise LeaseNotHeld
        sent = self.send("lease.release", {})
        self._auth = None
        self._held = False
        return sent

    def hold(
        self,
        owner_id: str,
        *,
        owner_type: OwnerType = "host",
        lease_ms: int = DEFAULT_LEASE_MS,
        confirm: bool = False,
    ) -> Hold:
        """The lease for a `with`: claimed, renewed in the background, released.

        When another owner has taken the run, its next call raises LeaseLost. With `confirm` the
        block begins when the claim was granted; else LeaseLost is raised.
        """
        return Hold(self, self._way.keeper, owner_id, owner_type, lease_ms, confirm)

    @property
    def lost(self) -> Receipt | None:
        """The refusal that showed that the lease is lost; None while all is well."""
        return self._lost

    def claim_for(self, owner_id: str, owner_type: OwnerType, lease_ms: int, confirm: bool) -> Sent:
        """Claim, and ask for receipts from now on: what a hold does."""
        self._held = True
        try:
            return self.claim(
                owner_id, owner_type=owner_type, lease_ms=lease_ms, confirm=confirm
            ).sent
        except BaseException:
            self._held = False
            raise

    def lose(self, receipt: Receipt) -> None:
        """The lease is lost: the next call that needs it says so."""
        self._lost = receipt

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._ended:
            return
        if error is None:
            self.complete()
            return
        try:
            self.fail(error)
        except ProducerError as refused:
            # The block's own error is what the caller must see.
            logger.warning("action=failure_unsent run=%s: %s", self._id, refused)

    def _end(self, state: Mapping[str, Any], event: str, confirm: bool) -> Sent:
        # Whole, so that the last state is the right one whatever became of those before.
        body = {"state": state, "event": {"type": event}}
        sent = self.send("run.snapshot", body, confirm=confirm)
        self._ended = True
        self._chain.end()
        return sent

    def _last_state(self, state: Mapping[str, Any] | None) -> dict[str, Any]:
        return self._chain.last_state() if state is None else dict(state)


def _given(**fields: Any) -> dict[str, Any]:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}
