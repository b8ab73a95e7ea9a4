"""The connection to Redis: found anew at each connect, with no retries that we do not see."""

from __future__ import annotations

# What connecting would import late, in the sender's thread: a fork amid that import leaves the
# child with a lock that nobody opens, and its own sender waits for it for ever.
import email.parser  # noqa: F401
import encodings.idna  # noqa: F401
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, NamedTuple, Protocol

from hiredis import pack_command
from redis.backoff import NoBackoff
from redis.connection import Connection
from redis.exceptions import ResponseError
from redis.retry import Retry

from producers.clock import now_ms
from producers.contract.keys import Keys, partition_of
from producers.contract.limits import PARTITIONS_MAX
from producers.errors import MetaMismatch
from producers.settings import (
    ProducerSettings,
    connection_options,
    endpoint_path,
    find_redis,
    hide_password,
)
from producers.waiting import Batch, Waiting

Argument = bytes | str | int

_APPEND = files("producers").joinpath("append.lua").read_text()
_ERROR_CHARS_MAX = 300


def describe(error: Exception) -> str:
    """An error in one short line. Redis' texts name no payload of ours."""
    return f"{type(error).__name__}: {error}"[:_ERROR_CHARS_MAX]


class NotReady(Exception):
    """There is no server, or no writer has named the number of partitions yet. Try again later."""


class Outcome(NamedTuple):
    """What became of a run's commands: the first ones' message ids, and why it ended early."""

    run: str
    message_ids: list[str]
    error: str | None


class Wire(Protocol):
    """What is used of redis-py's connections."""

    def connect(self) -> None:
        """Connect, and say who we are."""

    def disconnect(self) -> None:
        """Close it."""

    def send_packed_command(self, command: list[bytes]) -> None:
        """Send commands as they travel."""

    def read_response(self) -> Any:
        """The next reply; an error reply is raised."""


class Link:
    """One connection, used by one thread.

    It is redis-py's bare connection and not its client, which connects again unseen: after each
    connect the number of partitions must be looked at before anything is sent.
    """

    def __init__(self, settings: ProducerSettings) -> None:
        self._settings = settings
        self._keys = Keys(settings.prefix)
        self._connection: Wire | None = None
        self._meta_seen = False
        # Whether the last script met no refusal, on this connection.
        self._all_well = False
        self.partitions = settings.partitions
        self.server: str | None = None

    @property
    def connected(self) -> bool:
        """Whether there is a connection, as far as known."""
        return self._connection is not None

    def append(self, batch: Batch) -> list[Outcome]:
        """Append the batch, connecting first if need be.

        Raises NotReady, MetaMismatch, and redis' errors; then it is unknown what Redis took.
        """
        connection = self._connect()
        if not self._meta_seen:
            self._read_meta(connection)
        if self.partitions is None:
            raise NotReady(f"no writer has written {self._keys.meta} in {self.server} yet")
        alone = len(batch) == 1 and len(batch[0][1]) == 1
        if alone and self._all_well and not self._settings.stream_messages_max:
            return [self._append_one(connection, *batch[0], self.partitions)]
        by_partition: dict[int, Batch] = {}
        for run, commands in batch:
            partition = partition_of(run, self.partitions)
            by_partition.setdefault(partition, []).append((run, commands))
        replies = ask(
            connection,
            [self._append_command(partition, part) for partition, part in by_partition.items()],
        )
        outcomes: list[Outcome] = []
        for part, reply in zip(by_partition.values(), replies, strict=True):
            outcomes.extend(_outcomes(part, reply))
        self._all_well = all(outcome.error is None for outcome in outcomes)
        return outcomes

    def _append_one(
        self, connection: Wire, run: str, commands: list[Waiting], partitions: int
    ) -> Outcome:
        """What the script does, for two thirds of the server's time: nothing can overtake one.

        If its mark alone is refused it counts as refused, and the script goes on from there.
        """
        partition = partition_of(run, partitions)
        command: list[Argument] = ["XADD", self._keys.run(partition, run), "*"]
        (waiting,) = commands
        assert waiting.loaded is not None
        for field in waiting.loaded.items():
            command += field
        mark: list[Argument] = ["ZADD", self._keys.ready(partition), "LT", now_ms(), run]
        replies = ask(connection, [mark, command])
        for reply in replies:
            if isinstance(reply, ResponseError):
                self._all_well = False
                return Outcome(run, [], describe(reply))
        return Outcome(run, [replies[1].decode()], None)

    def drop(self) -> None:
        """Forget the connection: the next append makes another one."""
        connection, self._connection = self._connection, None
        self._meta_seen = self._all_well = False
        if connection is not None:
            connection.disconnect()

    def _connect(self) -> Wire:
        if self._connection is None:
            # One that can not be reached is named, too.
            url = find_redis(self._settings)
            self.server = None if url is None else hide_password(url)
            self._connection, self.server = open_wire(self._settings)
        return self._connection

    def _append_command(self, partition: int, part: Batch) -> list[Argument]:
        streams = [self._keys.run(partition, run) for run, _ in part]
        command: list[Argument] = ["EVAL", _APPEND, 1 + len(streams), self._keys.ready(partition)]
        command += streams
        command += (now_ms(), self._settings.stream_messages_max or 0)
        for run, commands in part:
            command += (run, len(commands))
            for waiting in commands:
                assert waiting.loaded is not None
                command.append(2 * len(waiting.loaded))
                for field in waiting.loaded.items():
                    command += field
        return command

    def _read_meta(self, connection: Wire) -> None:
        """Compare with the writer's number of partitions, or take it over."""
        (value,) = ask(connection, [["HGET", self._keys.meta, "partitions"]])
        if value is None:
            return
        if isinstance(value, Exception):
            raise value
        text = value.decode(errors="replace")
        if not text.isdecimal() or not 1 <= int(text) <= PARTITIONS_MAX:
            raise MetaMismatch(
                f"{self._keys.meta} in {self.server} names no usable number of partitions: another "
                "program may use this prefix. Give another STATEWRITER_PREFIX."
            )
        configured = self._settings.partitions
        if configured is not None and configured != int(text):
            raise MetaMismatch(
                f"This producer is set to {configured} partitions, the writer of {self.server} to "
                f"{text}. Leave STATEWRITER_PARTITIONS (`partitions`) unset, or set it to {text}."
            )
        self.partitions = int(text)
        self._meta_seen = True


def open_wire(settings: ProducerSettings) -> tuple[Wire, str]:
    """A new connection, and where to, without a password. Raises NotReady, and redis' errors."""
    url = find_redis(settings)
    if url is None:
        raise NotReady(f"{endpoint_path(settings.data)} names no server yet")
    options: dict[str, Any] = connection_options(url) | {
        # redis-py would send whole pipelines again without a word.
        "retry": Retry(NoBackoff(), 0),
        "retry_on_timeout": False,
        "retry_on_error": [],
        "socket_connect_timeout": settings.connect_timeout_ms / 1_000,
        "socket_timeout": settings.reply_timeout_ms / 1_000,
        "protocol": 2,
        "decode_responses": False,
    }
    connection: Wire = options.pop("connection_class", Connection)(**options)
    connection.connect()
    return connection, hide_password(url)


def ask(connection: Wire, commands: list[list[Argument]]) -> list[Any]:
    """Send commands in one go; their replies, an error reply as the exception that it is."""
    # Its stub takes a tuple of one only.
    packed = [pack_command(tuple(each)) for each in commands]  # type: ignore[arg-type]
    connection.send_packed_command([b"".join(packed)])
    replies: list[Any] = []
    for _ in commands:
        try:
            replies.append(connection.read_response())
        except ResponseError as error:
            replies.append(error)
    return replies


def _outcomes(part: Sequence[tuple[str, list[Waiting]]], reply: object) -> list[Outcome]:
    if isinstance(reply, ResponseError):
        return [Outcome(run, [], describe(reply)) for run, _ in part]
    assert isinstance(reply, list)
    outcomes = []
    for (run, commands), (error, *message_ids) in zip(part, reply, strict=True):
        assert len(message_ids) <= len(commands)
        assert error is not None or len(message_ids) == len(commands)
        text = None if error is None else error.decode(errors="replace")
        outcomes.append(Outcome(run, [message_id.decode() for message_id in message_ids], text))
    return outcomes
