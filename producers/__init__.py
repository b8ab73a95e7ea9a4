"""What a host imports to report what its agents do."""

from producers.buffer import Sent
from producers.client import Closed, Flushed, Producer, Status
from producers.contract.commands import Auth, Parent, Source
from producers.errors import (
    BufferFull,
    InvalidCommand,
    InvalidSettings,
    LeaseNotHeld,
    MetaMismatch,
    ProducerClosed,
    ProducerError,
)
from producers.run import UNSET, Lease, Run
from producers.session import Session
from producers.settings import ProducerSettings

__all__ = [
    "UNSET",
    "Auth",
    "BufferFull",
    "Closed",
    "Flushed",
    "InvalidCommand",
    "InvalidSettings",
    "Lease",
    "LeaseNotHeld",
    "MetaMismatch",
    "Parent",
    "Producer",
    "ProducerClosed",
    "ProducerError",
    "ProducerSettings",
    "Run",
    "Sent",
    "Session",
    "Source",
    "Status",
]
