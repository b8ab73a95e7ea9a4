"""Every error of the package. The docstring says the cause and the next step; it is the message.

ProducerError
├── InvalidCommand     the call's own fault; also a ValueError
├── InvalidSettings    an argument or a variable of the environment; also a ValueError
├── BufferFull         Redis takes less than the host says
├── ProducerClosed     a call after close()
├── MetaMismatch       the host and the writer count partitions differently
├── LeaseNotHeld       renew or release without a claim
├── NotConfirmed       no receipt in time
└── CommandRejected    the writer refused it
    └── LeaseLost      since someone else holds the run
"""

from __future__ import annotations

from inspect import cleandoc

from producers.contract.reasons import Reason
from producers.handle import Receipt


class ProducerError(Exception):
    """The producer could not do what was asked. Nothing of the call was kept."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or " ".join(cleandoc(self.__doc__ or "").split()))


class InvalidCommand(ProducerError, ValueError):
    """The command breaks the wire contract. Correct the named place and call again.

    `reason` is the code with which the writer would have refused it, `place` the path to the first
    fault (`entry.usage.cost`), empty if it is the command as a whole. Neither holds a value.
    """

    def __init__(self, reason: Reason, place: str = "") -> None:
        where = f" Look at `{place}`." if place else ""
        super().__init__(f"{reason.value}: {reason.sentence}{where}")
        self.reason = reason
        self.place = place

    def __reduce__(self) -> tuple[type[InvalidCommand], tuple[Reason, str]]:
        return InvalidCommand, (self.reason, self.place)


class InvalidSettings(ProducerError, ValueError):
    """A setting is not usable. Correct the argument or the STATEWRITER_ variable that is named."""


class BufferFull(ProducerError):
    """The buffer is full: Redis is away or slower than this host. Nothing was lost but this call.

    Call again later, look at `status()` for the cause, or give a larger `buffer_bytes_max`.
    """


class ProducerClosed(ProducerError):
    """The producer is closed and takes no more commands. Make a new one."""


class MetaMismatch(ProducerError):
    """The number of partitions differs from the writer's, so commands would go astray.

    Leave STATEWRITER_PARTITIONS and `partitions` unset (the writer's number is then used), or give
    its number. What is buffered stays buffered meanwhile.
    """


class LeaseNotHeld(ProducerError):
    """This Run has claimed no lease, or has released it. Call `claim()` first."""


class NotConfirmed(ProducerError):
    """No receipt came in time. The command may still be applied later.

    Wait again with `wait_applied`, look at `status()`, and see that a writer is running.
    """


class CommandRejected(ProducerError):
    """The writer refused the command and kept it as a rejection. `receipt` says why."""

    def __init__(self, receipt: Receipt | None = None) -> None:
        detail = ""
        if receipt is not None:
            detail = f" Run {receipt.run}, seq {receipt.seq}: {receipt.reason} {receipt.detail}"
        super().__init__(f"{' '.join(cleandoc(self.__doc__ or '').split())}{detail}".rstrip())
        self.receipt = receipt


class LeaseLost(CommandRejected):
    """The run's lease went to someone else, or was never granted: stop writing this run.

    Commands since then were refused and are kept as rejections. Claim again to go on.
    """
