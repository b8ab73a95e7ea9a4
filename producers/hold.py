"""Holding a run's lease: claimed, renewed in the background, released; and noticing its loss."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Condition, RLock, Thread
from types import TracebackType
from typing import Protocol, Self

from producers.clock import monotonic_s
from producers.contract.commands import OwnerType
from producers.errors import LeaseLost, ProducerClosed, ProducerError
from producers.handle import Receipt, Sent

logger = logging.getLogger("statewriter.producer")

OnReceipt = Callable[[Receipt], None]


class Held(Protocol):
    """The run that is held, as far as a hold needs it."""

    @property
    def id(self) -> str:
        """Its id."""
        ...

    @property
    def lost(self) -> Receipt | None:
        """The refusal that showed that its lease is lost."""
        ...

    def claim_for(self, owner_id: str, owner_type: OwnerType, lease_ms: int, confirm: bool) -> Sent:
        """Claim it, and ask for receipts from now on."""
        ...

    def lose(self, receipt: Receipt) -> None:
        """Raise LeaseLost at the next call."""
        ...

    def renew(self, lease_ms: int | None = None) -> Sent:
        """Keep the lease."""
        ...

    def release(self) -> Sent:
        """Give the lease back."""
        ...


class Watch(Protocol):
    """Where refusals come from."""

    def watch(self, run: str, watcher: OnReceipt) -> None:
        """Call it with each refusal."""
        ...

    def unwatch(self, run: str, watcher: OnReceipt) -> None:
        """Undo it."""
        ...


class Hold:
    """In a `with`: the run is claimed, kept, and released at the end.

    Once the writer has refused a command for the lease's sake, the run's next call that needs the
    lease raises LeaseLost; so does the end of the block. Transcripts that were bound under the
    lease may still be finished.
    """

    def __init__(  # what a claim needs
        self,
        run: Held,
        keeper: Keeper,
        owner_id: str,
        owner_type: OwnerType,
        lease_ms: int,
        confirm: bool,
    ) -> None:
        self.run = run
        self.lease_ms = lease_ms
        self._keeper = keeper
        self._owner = (owner_id, owner_type)
        self._confirm = confirm
        self._claimed: Sent | None = None
        self._renewal: Sent | None = None

    @property
    def lost(self) -> Receipt | None:
        """The refusal that showed the loss; None while all is well, as far as known."""
        return self.run.lost

    def take(self) -> Self:
        """Claim, as entering the block does. Raises LeaseLost if it was to be confirmed."""
        self._claimed = self.run.claim_for(*self._owner, self.lease_ms, self._confirm)
        self._keeper.add(self)
        early = self._claimed.receipt
        if early is not None and early.outcome == "rejected":
            self.notice(early)
        return self

    def give_back(self) -> None:
        """Release, as leaving the block does. Raises LeaseLost if it was lost."""
        self._keeper.discard(self)
        self.run.release()

    def notice(self, receipt: Receipt) -> None:
        """A command of the run was refused."""
        claimed = self._claimed
        assert claimed is not None
        # Refusals of what was said before the claim say nothing of it.
        is_ours = receipt.producer == claimed.producer and receipt.seq >= claimed.seq
        if is_ours and (receipt.reason or "").startswith("lease_"):
            self._keeper.discard(self)
            self.run.lose(receipt)
            logger.warning(
                "action=lease_lost run=%s owner=%s reason=%s",
                self.run.id,
                self._owner[0],
                receipt.reason,
            )

    def renew(self) -> None:
        """Renew, unless the last renewal has not even arrived."""
        if self._renewal is not None and self._renewal.message_id is None:
            return
        self._renewal = self.run.renew()

    def __enter__(self) -> Self:
        return self.take()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.give_back()
            return
        try:
            self.give_back()
        except ProducerError as refused:
            # The block's own error is what the caller must see.
            logger.warning("action=release_unsent run=%s: %s", self.run.id, refused)


class Keeper:
    """One thread that renews all leases of a producer, each three times in its length."""

    def __init__(self, receipts: Watch) -> None:
        self._receipts = receipts
        self._lock = RLock()
        self._changed = Condition(self._lock)
        self._due: dict[Hold, float] = {}
        self._stopped = False
        self._thread: Thread | None = None

    def add(self, hold: Hold) -> None:
        """Renew it from now on."""
        self._receipts.watch(hold.run.id, hold.notice)
        with self._lock:
            self._due[hold] = monotonic_s() + hold.lease_ms / 3_000
            if self._thread is None and not self._stopped:
                self._thread = Thread(target=self._work, name="statewriter-leases", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def discard(self, hold: Hold) -> None:
        """Renew it no more."""
        self._receipts.unwatch(hold.run.id, hold.notice)
        with self._lock:
            self._due.pop(hold, None)

    def stop(self) -> None:
        """Renew nothing more."""
        with self._lock:
            self._stopped = True
            self._changed.notify_all()

    def _work(self) -> None:
        while (hold := self._next()) is not None:
            try:
                hold.renew()
            except (LeaseLost, ProducerClosed):
                self.discard(hold)
            except ProducerError as refused:
                logger.warning("action=renewal_unsent run=%s: %s", hold.run.id, refused)

    def _next(self) -> Hold | None:
        with self._lock:
            while not self._stopped:
                if not self._due:
                    self._changed.wait()
                    continue
                hold = min(self._due, key=self._due.__getitem__)
                wait_s = self._due[hold] - monotonic_s()
                if wait_s <= 0:
                    self._due[hold] = monotonic_s() + hold.lease_ms / 3_000
                    return hold
                self._changed.wait(wait_s)
            return None
