"""`daemon`: the writer as a process, with the embedded server where no Redis is named."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from writer.cli.exits import OK, ServerFailed
from writer.cli.folder import settings_of
from writer.cli.options import AsJson, Data, Redis, examples
from writer.clock import monotonic, sleep
from writer.errors import RedisUnavailable, WriterError

if TYPE_CHECKING:
    from writer.daemon import Daemon
    from writer.embedded import Server
    from writer.settings import WriterSettings

STOP_S = 4.0
"""How long a stop may take, before the process ends without waiting any more."""
LOOK_S = 0.1
SERVER_LOOK_S = 2.0
MISSES_MAX = 5
"""A server of our own that did not answer so often in a row is replaced; once, it may be slow."""
LOGGING = "Logging (to stderr)"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "daemon",
        epilog=examples(
            "statewriter daemon",
            "statewriter daemon --data /var/lib/statewriter --redis redis://127.0.0.1:6379/0",
            "STATEWRITER_REDIS=rediss://user:password@redis.example:6380/0 statewriter daemon",
            "statewriter daemon --partition 0 --partition 1   # the others in another process",
        ),
    )(daemon)


Partitions = Annotated[
    int | None,
    typer.Option(
        "--partitions",
        metavar="N",
        help="How many a new data folder gets (2); fixed afterwards.",
        show_default=False,
    ),
]
Partition = Annotated[
    list[int] | None,
    typer.Option(
        "--partition",
        metavar="P",
        help="Write only this one (repeatable); else all.",
        show_default=False,
    ),
]
Standby = Annotated[
    bool,
    typer.Option(
        "--standby", help="Wait while another daemon writes, and take over when it is gone."
    ),
]
AcceptLoss = Annotated[
    bool,
    typer.Option(
        "--accept-loss", help="Go on with a file that is older than Redis remembers; recorded."
    ),
]
Synchronous = Annotated[
    Literal["FULL", "NORMAL"] | None,
    typer.Option(
        "--synchronous",
        case_sensitive=False,
        help="FULL (default): a commit survives a power cut; NORMAL: a crash of the process.",
        show_default=False,
    ),
]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"] | None,
    typer.Option(
        "--log-level", help="Least level (info).", rich_help_panel=LOGGING, show_default=False
    ),
]
LogFormat = Annotated[
    Literal["console", "json"] | None,
    typer.Option(
        "--log-format",
        help="For people (console), or a JSON object a line.",
        rich_help_panel=LOGGING,
        show_default=False,
    ),
]


def daemon(  # noqa: PLR0913 - each is an option
    partitions: Partitions = None,
    partition: Partition = None,
    standby: Standby = False,
    accept_loss: AcceptLoss = False,
    synchronous: Synchronous = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    data: Data = None,
    redis: Redis = None,
    as_json: AsJson = False,
) -> int:
    """Apply commands from Redis to the data folder's files until stopped.

    With no Redis named it runs the data folder's own server, whose data is kept.
    SIGTERM and Ctrl-C end it cleanly, with code 0. --json is --log-format json.
    """
    settings = settings_of(
        data,
        redis,
        partitions=partitions,
        synchronous=synchronous,
        log_level=log_level,
        log_format="json" if as_json else log_format,
    )
    from writer.cli.log import make_log

    log = make_log(sys.stderr, settings.log_level, settings.log_format)
    service = Service(settings, log, partition or None, accept_loss=accept_loss, standby=standby)
    return service.run()


class Service:
    """One daemon process: keeps a server under its daemon, and heeds signals."""

    def __init__(
        self,
        settings: WriterSettings,
        log: Any,
        partitions: list[int] | None,
        *,
        accept_loss: bool,
        standby: bool,
    ) -> None:
        self._settings = settings
        self._log = log
        self._partitions = partitions
        self._accept_loss = accept_loss
        self._standby = standby
        self._server: Server | None = None
        self._writing: Daemon | None = None
        self._signal = ""
        self._misses = 0

    def run(self) -> int:
        """Until a signal comes, or the daemon can not go on: then its error is raised."""
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, self._heed)
        import writer.daemon  # noqa: F401 - all that it needs is there before collecting is rare
        from writer.collector import look_rarely

        look_rarely()
        try:
            url = self._settings.redis or self._embed()
            while url:
                url = self._write(url)
        finally:
            self._release_server()
        self._log.info("stopped", signal=self._signal)
        return OK

    def _heed(self, number: int, _: object) -> None:
        # Plain marks, and no lock: a handler may have interrupted whoever holds it.
        self._signal = signal.Signals(number).name
        if self._writing is not None:
            self._writing.stop()

    def _is_asked_to_end(self) -> bool:
        return bool(self._signal)

    def _embed(self) -> str:
        from writer.cli.running import start_embedded

        self._server = start_embedded(self._settings)
        self._log.info(
            "redis",
            server=f"the data folder's own: {self._server.endpoint.label}",
            owned=self._server.owned,
        )
        return self._server.url

    def _write(self, url: str) -> str:
        """Run a daemon on this server; returns the URL of the next one, "" to end."""
        from writer.daemon import Daemon

        writing = Daemon(
            self._settings,
            url,
            self._log,
            partitions=self._partitions,
            accept_loss=self._accept_loss,
            standby=self._standby,
        )
        self._writing = writing
        if not self._start(writing):
            return ""
        moved = ""
        try:
            look_at = monotonic() + SERVER_LOOK_S
            while not (self._signal or moved or writing.error is not None):
                sleep(LOOK_S)
                if self._server is not None and monotonic() >= look_at:
                    moved = self._revive(url)
                    look_at = monotonic() + SERVER_LOOK_S
        finally:
            self._end(writing)
        return moved

    def _start(self, writing: Daemon) -> bool:
        """Start, as soon as Redis is there; False if a signal came first."""
        if self._is_asked_to_end():
            return False
        try:
            writing.start()
        except RedisUnavailable:
            if self._is_asked_to_end():
                return False
            raise
        self._log.info("started", data=str(self._settings.data), partitions=writing.total)
        return True

    def _revive(self, url: str) -> str:
        """Start the embedded server again if it is gone, whoever owned it; its URL if that is new.

        Another command that had started it stops it when it ends.
        """
        from writer.embedded import EmbeddedError, find

        assert self._server is not None
        if find(self._settings.data) is not None:
            self._misses = 0
            return ""
        self._misses += 1
        if self._server.owned and self._misses < MISSES_MAX:
            return ""
        try:
            self._server.stop()
            found = self._embed()
        except (EmbeddedError, ServerFailed) as error:
            self._log.warning("redis_down", cause=str(error))
            return ""
        return "" if found == url else found

    def _end(self, writing: Daemon) -> None:
        """Stop the daemon and wait for it, but not for ever; raises the error that ended it."""
        writing.stop()
        if self._signal:
            self._log.info("stopping", signal=self._signal)
        waiting = _Waiting(writing.wait)
        waiting.start()
        waiting.join(STOP_S)
        if waiting.is_alive():
            # Nothing is lost by it: an open transaction rolls back, and cursors say where to go on.
            self._log.warning("stop_forced", after_s=STOP_S)
            sys.stderr.flush()
            os._exit(OK)
        if waiting.error is not None:
            raise waiting.error

    def _release_server(self) -> None:
        from writer.embedded import EmbeddedError

        if self._server is None:
            return
        try:
            self._server.stop()
        except EmbeddedError as error:
            self._log.warning("redis_runs_on", cause=error.cause, hint=error.hint)


class _Waiting(Thread):
    """Waits for a daemon that may take longer than we have."""

    def __init__(self, wait: Callable[[], None]) -> None:
        super().__init__(name="wait", daemon=True)
        self._wait = wait
        self.error: WriterError | None = None

    def run(self) -> None:
        try:
            self._wait()
        except WriterError as error:
            self.error = error
