"""What a host imports to report what its agents do."""

from producers.aio import AsyncProducer
from producers.client import Producer
from producers.contract.commands import Auth, Parent, Source
from producers.errors import (
    BufferFull,
    CommandRejected,
    InvalidCommand,
    InvalidSettings,
    LeaseLost,
    LeaseNotHeld,
    MetaMismatch,
    NotConfirmed,
    ProducerClosed,
    ProducerError,
)
from producers.handle import Receipt, Sent
from producers.hold import Hold
from producers.node import Node
from producers.report import Closed, Flushed, Status
from producers.run import UNSET, Lease, Run
from producers.session import Session
from producers.settings import ProducerSettings

__all__ = [
    "UNSET",
    "AsyncProducer",
    "Auth",
    "BufferFull",
    "Closed",
    "CommandRejected",
    "Flushed",
    "Hold",
    "InvalidCommand",
    "InvalidSettings",
    "Lease",
    "LeaseLost",
    "LeaseNotHeld",
    "MetaMismatch",
    "Node",
    "NotConfirmed",
    "Parent",
    "Producer",
    "ProducerClosed",
    "ProducerError",
    "ProducerSettings",
    "Receipt",
    "Run",
    "Sent",
    "Session",
    "Source",
    "Status",
]
