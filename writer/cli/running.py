"""What has to run while a command runs: a Redis server, and for some a daemon."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from writer.cli.exits import ServerFailed
from writer.cli.output import note
from writer.errors import Misconfigured, Usage
from writer.health import read_health

if TYPE_CHECKING:
    from writer.embedded import Server
    from writer.settings import WriterSettings
    from writer.streams.link import Client


def find_url(settings: WriterSettings) -> str | None:
    """Where Redis is now: as set, the folder's own server, or what its daemon says it uses.

    Starts nothing; None if none of them is known.
    """
    from writer.embedded import find

    if settings.redis is not None:
        return settings.redis
    endpoint = find(settings.data)
    if endpoint is not None:
        return endpoint.url
    health = read_health(settings.data)
    # Without its password, which is not written down.
    return None if health is None else str(health["redis"])


@contextmanager
def server(settings: WriterSettings) -> Iterator[str]:
    """The URL of a Redis that runs; the folder's own server is started and stopped if need be."""
    from writer.embedded import EmbeddedError

    url = find_url(settings)
    if url is not None:
        yield url
        return
    _refuse_foreign(settings)
    embedded = start_embedded(settings)
    try:
        yield embedded.url
    finally:
        try:
            embedded.stop()
        except EmbeddedError as error:
            note(f"warning: {error.cause}: {error.hint}")


def start_embedded(settings: WriterSettings) -> Server:
    """The folder's own server. Raises ServerFailed."""
    from writer.embedded import EmbeddedError, start

    try:
        return start(settings.data)
    except EmbeddedError as error:
        raise ServerFailed(error.cause, hint=error.hint) from error


def _refuse_foreign(settings: WriterSettings) -> None:
    """Not into a new server what a folder's daemon would look for in another one."""
    if any(settings.data.glob("p*.sqlite")) and not (settings.data / "redis").is_dir():
        raise Usage(
            f"the daemon of {settings.data} used a Redis server that is not the folder's own",
            hint="name it with --redis or STATEWRITER_REDIS",
        )


def partitions_of(settings: WriterSettings, client: Client) -> int:
    """The number of partitions, as the folder and Redis have it. Raises Misconfigured."""
    from producers.contract.keys import Keys
    from writer.settings import DEFAULT_PARTITIONS
    from writer.store.reader.files import Files
    from writer.streams.publish import agree

    # Not the daemon's look at them: a file that is being made right now is none yet.
    with closing(Files(settings.data)) as files:
        stored = next((identity.partitions for identity, _ in files.all()), None)
    keys = Keys(settings.prefix)
    found = agree(client, keys, stored or settings.partitions or DEFAULT_PARTITIONS)
    if stored not in (None, found):
        raise Misconfigured(
            f"{settings.data} has {stored} partitions, but Redis has {found} under {keys.meta}",
            hint="use the data folder that belongs to this Redis, or another prefix",
        )
    return found


@contextmanager
def writing(settings: WriterSettings, url: str) -> Iterator[Callable[[], None]]:
    """A daemon writes the folder: the one that runs, else one in this process, stopped at the end.

    What is yielded raises the error that ended the latter, if one did.
    """
    if read_health(settings.data) is not None:
        yield lambda: None
        return
    import sys

    from writer.cli.log import make_log
    from writer.daemon import Daemon

    daemon = Daemon(settings, url, make_log(sys.stderr, "warning", settings.log_format))

    def check() -> None:
        if daemon.error is not None:
            raise daemon.error

    daemon.start()
    try:
        yield check
    finally:
        daemon.stop()
        daemon.wait()
