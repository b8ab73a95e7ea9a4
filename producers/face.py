"""What both faces of a producer have in common: the calls that say something and never wait."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import orjson

from producers.chain import STATE_KINDS
from producers.clock import now_ms
from producers.contract.commands import Auth, Dialect, EffectKind, Parent, Source
from producers.contract.reasons import Reason
from producers.errors import InvalidCommand
from producers.handle import Numbering, Sent
from producers.names import new_producer_id, new_run_id
from producers.outbox import Outbox
from producers.receipts import OnReceipt
from producers.report import Status
from producers.run import Run
from producers.settings import ProducerSettings, WhenFull, make_settings
from producers.validation import check_producer, check_run_id, check_sequence

F = TypeVar("F", bound=Callable[..., Any])

_SHOWN_CHARS_MAX = 500


class Face:
    """See Producer and AsyncProducer."""

    def __init__(  # noqa: PLR0913  # each is optional and has a setting
        self,
        redis: str | None = None,
        *,
        data: str | Path | None = None,
        partitions: int | None = None,
        prefix: str | None = None,
        producer_id: str | None = None,
        buffer_bytes_max: int | None = None,
        when_full: WhenFull | None = None,
        block_timeout_ms: int | None = None,
        spool: str | Path | None = None,
        on_rejected: OnReceipt | None = None,
        settings: ProducerSettings | None = None,
    ) -> None:
        """Arguments left out come from `settings`, else from environment or file, else defaults.

        No server need run yet: commands wait for it. A `producer_id` must never have been used
        before, or the writer takes new commands for old ones. `on_rejected` gets the receipt of
        each command that the writer refuses, from a thread of the producer's. Raises
        InvalidSettings.
        """
        made = make_settings(
            settings,
            {
                "redis": redis,
                "data": data,
                "partitions": partitions,
                "prefix": prefix,
                "buffer_bytes_max": buffer_bytes_max,
                "when_full": when_full,
                "block_timeout_ms": block_timeout_ms,
                "spool": spool,
            },
        )
        name = new_producer_id() if producer_id is None else check_producer(producer_id)
        self._outbox = Outbox(name, made, on_rejected)

    @property
    def producer_id(self) -> str:
        """The id under which this instance counts its sequences."""
        return self._outbox.buffer.producer_id

    @property
    def settings(self) -> ProducerSettings:
        """The settings in force."""
        return self._outbox.settings

    def create_run(  # noqa: PLR0913  # all but the first are optional and named
        self,
        workflow: str,
        *,
        run_id: str | None = None,
        input: Any = None,
        definition: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
        title: str | None = None,
        tags: Mapping[str, str] | None = None,
        parent: str | Run | Parent | None = None,
        source: Source | None = None,
        effects: list[EffectKind] | None = None,
        retention_seconds: int | None = None,
        dialect: Dialect = "generic",
        reserve: bool = False,
        confirm: bool = False,
    ) -> Run:
        """Create a run, or with `reserve` only its id; its id is made up if none is given."""
        if run_id is None:
            run_id = new_run_id(workflow, now_ms())
        if isinstance(parent, Run):
            parent = parent.id
        if isinstance(parent, Parent):
            parent_body: Any = parent.model_dump()
        else:
            parent_body = None if parent is None else {"run": parent}
        body = {
            "dialect": dialect,
            "workflow": workflow,
            "definition": definition,
            "input": input,
            "source": None if source is None else source.model_dump(exclude_none=True),
            "state": state,
            "status": "queued" if reserve else None,
            "parent": parent_body,
            "title": title,
            "tags": tags,
            "retention_seconds": retention_seconds,
            "effects": effects,
        }
        run = self.run(run_id)
        given = {name: value for name, value in body.items() if value is not None}
        run.send("run.create", given, confirm=confirm)
        return run

    def run(self, run_id: str) -> Run:
        """A run that exists, for example made by another host. Sends nothing."""
        return Run(check_run_id(run_id), self._outbox)

    def workflow(self, name: str | None = None) -> Callable[[F], F]:
        """Decorate a function, or a coroutine function: each call of it is a run.

        The function gets the run as its first argument. The others are the run's input, what it
        returns the output, what it raises the failure. A value that is no JSON is told by its repr.
        """

        def decorate(function: F) -> F:
            workflow = function.__name__ if name is None else name
            parameters = inspect.signature(function)

            def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Run:
                bound = parameters.bind(None, *args, **kwargs).arguments
                given = dict(list(bound.items())[1:])
                shown = {key: _as_json(value) for key, value in given.items()}
                return self.create_run(workflow, input=shown)

            if inspect.iscoroutinefunction(function):

                @functools.wraps(function)
                async def call_async(*args: Any, **kwargs: Any) -> Any:
                    with begin(args, kwargs) as run:
                        returned = await function(run, *args, **kwargs)
                        run.complete(_as_json(returned))
                    return returned

                return call_async  # type: ignore[return-value]

            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                with begin(args, kwargs) as run:
                    returned = function(run, *args, **kwargs)
                    run.complete(_as_json(returned))
                return returned

            return call  # type: ignore[return-value]

        return decorate

    def send(  # a command and how it is sent
        self,
        run_id: str,
        kind: str,
        body: Mapping[str, Any],
        *,
        auth: Auth | None = None,
        producer: str | None = None,
        seq: int | None = None,
        confirm: bool = False,
    ) -> Sent:
        """Send a command of any kind as it is; `producer` and `seq` together replace our own."""
        if producer is None and seq is None:
            numbering = None
        elif producer is None or seq is None:
            raise InvalidCommand(Reason.FIELD_MISSING, "producer" if producer is None else "seq")
        else:
            numbering = Numbering(check_producer(producer), check_sequence(seq))
        run_id = check_run_id(run_id)
        outbox = self._outbox
        if kind in STATE_KINDS and numbering is None:
            sent = outbox.chain(run_id).say(kind, body, auth, ask=confirm)
        else:
            sent, _ = outbox.publish(run_id, kind, body, auth, numbering=numbering, ask=confirm)
        if confirm:
            outbox.await_confirmed(sent)
        return sent

    def start(self) -> None:
        """Begin to send what earlier processes left in the spool, before anything is said."""
        self._outbox.start()

    def status(self) -> Status:
        """How it stands now. Never waits."""
        return self._outbox.status()


def _as_json(value: Any) -> Any:
    try:
        orjson.dumps(value)
    except TypeError:
        return repr(value)[:_SHOWN_CHARS_MAX]
    return value
