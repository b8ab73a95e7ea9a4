"""Who may write: leases judged in stream order, at the message's arrival (ms).

Expiry opens a run to other claimants; it does not shut out its holder. So a backlog or an outage
refuses nothing honest: a holder's command counts as long as no other claim was granted before it.
"""

from __future__ import annotations

from producers.contract.commands import (
    AppendEntry,
    AppendEvents,
    BindSession,
    Capture,
    Command,
    DeleteRun,
    Interrupt,
    Patch,
    Reset,
    Resume,
    Snapshot,
    Update,
)
from producers.contract.envelope import Authority
from producers.contract.reasons import Reason
from writer.core.outcome import Refusal
from writer.core.run import Lease, Run, Segment

NEEDS_LEASE = (Snapshot, Patch, Update, Resume, Reset, Interrupt, DeleteRun, BindSession)
OPERATOR_TOO = (Interrupt, DeleteRun)
NEEDS_BINDER = (AppendEntry, AppendEvents, Capture)


def held(run: Run) -> Lease | None:
    """The lease in force, expired or not; None while the run is free."""
    lease = run.lease
    return None if lease is None or lease.released_at is not None else lease


def check_match(lease: Lease, auth: Authority) -> None:
    """Refuse unless all that `auth` names is the lease's."""
    if (auth.owner_type, auth.owner_id) != (lease.owner_type, lease.owner_id):
        raise Refusal(Reason.LEASE_OWNER_CHANGED)
    if auth.token_sha256 != lease.token_sha256:
        raise Refusal(Reason.LEASE_TOKEN_CHANGED)
    if auth.generation is not None and auth.generation != lease.generation:
        raise Refusal(Reason.LEASE_GENERATION_CHANGED)


def check_lease(run: Run, command: Command, auth: Authority | None, arrival: int) -> None:
    """Refuse a command that asks for the lease unless its sender may write the run."""
    if auth is not None:
        # Also while the run is free: an authority that is not the last one is a stale host's.
        if run.lease is None:
            raise Refusal(Reason.LEASE_MISSING, "the run was never claimed")
        check_match(run.lease, auth)
        return
    lease = held(run)
    if lease is None:
        return
    if isinstance(command, OPERATOR_TOO) and arrival >= lease.expires_at:
        return
    raise Refusal(Reason.LEASE_MISSING)


def check_binder(run: Run, segment: Segment, auth: Authority | None, producer_no: int) -> None:
    """Refuse an append unless it comes from the segment's binder or the run's present holder."""
    lease = held(run)
    if lease is not None and auth is not None and _matches(lease, auth):
        return
    binder = segment.bound_by
    if binder is None:
        if lease is None or producer_no == segment.producer_no:
            return
    elif auth is not None and not segment.reclaimed and _same_binder(binder, auth):
        return
    raise Refusal(Reason.NOT_BINDER)


def renew_by_use(run: Run, arrival: int) -> None:
    """A holder's applied command moves the expiry to its arrival plus the lease's length, never
    back.
    """
    lease = held(run)
    if lease is not None and arrival + lease.lease_ms > lease.expires_at:
        lease.renewed_at = arrival
        lease.expires_at = arrival + lease.lease_ms
        run.changed.lease = True


def _matches(lease: Lease, auth: Authority) -> bool:
    try:
        check_match(lease, auth)
    except Refusal:
        return False
    return True


def _same_binder(binder: Authority, auth: Authority) -> bool:
    return auth[:3] == binder[:3] and auth.generation in (None, binder.generation)
