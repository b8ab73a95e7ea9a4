"""`lease.claim`, `lease.renew`, `lease.release`: who may write a run, and until when."""

from __future__ import annotations

from producers.contract.commands import ClaimLease, ReleaseLease, RenewLease
from producers.contract.reasons import Reason
from writer.core.authority import check_match, held
from writer.core.context import Context
from writer.core.outcome import Applied, Refusal
from writer.core.run import Lease


def claim(context: Context, command: ClaimLease) -> Applied:
    """Grant the run to its first claimant, to its own holder again, or to anyone after expiry."""
    run, arrival = context.run, context.arrival
    present = held(run)
    own = present is not None and (present.owner_type, present.owner_id) == (
        command.owner_type,
        command.owner_id,
    )
    if present is not None and not own and arrival < present.expires_at:
        raise Refusal(Reason.LEASE_HELD)
    run.lease = Lease(
        generation=run.lease.generation + 1 if run.lease is not None else 1,
        owner_type=command.owner_type,
        owner_id=command.owner_id,
        token_sha256=command.token_sha256,
        lease_ms=command.lease_ms,
        acquired_at=arrival,
        renewed_at=arrival,
        expires_at=arrival + command.lease_ms,
    )
    run.changed.lease = True
    _end_older_binders(context, command)
    return context.revise_run(
        context.event_type("lease.claim"),
        payload={
            "owner_type": command.owner_type,
            "owner_id": command.owner_id,
            "generation": run.lease.generation,
            "expires_at": run.lease.expires_at,
        },
    )


def _end_older_binders(context: Context, command: ClaimLease) -> None:
    for segment in context.run.segments.values():
        binder = segment.bound_by
        if binder is not None and binder[:2] == (command.owner_type, command.owner_id):
            segment.reclaimed = True
            context.run.changed.segments[segment.no] = segment


def renew(context: Context, command: RenewLease) -> Applied:
    """Move the expiry, never back. Changes the lease alone: no revision, no event."""
    lease = _own(context)
    lease.lease_ms = command.lease_ms
    lease.renewed_at = context.arrival
    lease.expires_at = max(lease.expires_at, context.arrival + command.lease_ms)
    context.run.changed.lease = True
    return Applied([], 0)


def release(context: Context, command: ReleaseLease) -> Applied:
    """Free the run. The generation stays, so that the next claim's is higher."""
    lease = _own(context)
    lease.released_at = context.arrival
    context.run.changed.lease = True
    return context.revise_run(
        context.event_type("lease.release"), payload={"generation": lease.generation}
    )


def _own(context: Context) -> Lease:
    lease = held(context.run)
    if lease is None or context.message.auth is None:
        raise Refusal(Reason.LEASE_MISSING)
    check_match(lease, context.message.auth)
    return lease
