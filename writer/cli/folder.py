"""The data folder that a command works on: its settings, its files, its daemon, its Redis."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from writer.cli.exits import NotFound
from writer.errors import Usage

if TYPE_CHECKING:
    from writer.settings import WriterSettings
    from writer.store.reader import StateReader


def settings_of(data: Path | None, redis: str | None, **more: Any) -> WriterSettings:
    """Settings with what the command line says laid over them; None says nothing.

    Raises Usage for a setting, a URL or a configuration file that can not be used.
    """
    import tomllib

    from pydantic import ValidationError

    from writer.settings import WriterSettings

    named = os.environ.get("STATEWRITER_CONFIG")
    if named and not Path(named).is_file():
        raise Usage(
            f"STATEWRITER_CONFIG names {named}, which is no file",
            hint="correct the variable, or unset it",
        )
    given = {"data": data, "redis": redis, **more}
    try:
        settings = WriterSettings(
            **{name: value for name, value in given.items() if value is not None}
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        name = ".".join(str(step) for step in first["loc"])
        raise Usage(
            f"setting {name}: {first['msg']}",
            hint=f"look at --{name.replace('_', '-')}, STATEWRITER_{name.upper()} and the "
            "configuration file",
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Usage(
            f"the configuration file {named or 'statewriter.toml'} is no TOML: {error}",
            hint="correct it; docs/cli.md has an example",
        ) from None
    if settings.redis:
        _check_url(settings.redis)
    # Commands that end later still mean the folder that was named here.
    return settings.model_copy(
        update={"data": settings.data.absolute(), "redis": settings.redis or None}
    )


def _check_url(url: str) -> None:
    from producers.settings import connection_options

    try:
        connection_options(url)
    except ValueError:
        raise Usage(
            "the Redis URL can not be read",
            hint="use redis://, rediss:// (TLS) or unix://, with user and password inside",
        ) from None


def check_folder(settings: WriterSettings) -> None:
    """Raise NotFound unless the data folder is there."""
    if not settings.data.is_dir():
        raise NotFound(
            f"there is no data folder {settings.data}",
            hint="name another with --data; `statewriter demo` and `statewriter daemon` make one",
        )


@contextmanager
def reading(settings: WriterSettings) -> Iterator[StateReader]:
    """A reader of the folder's files, running daemon or not. Raises NotFound without a folder."""
    from writer.store.reader import StateReader

    check_folder(settings)
    with StateReader(settings.data) as reader:
        yield reader


def exists(run: dict[str, Any] | None) -> bool:
    """Whether `StateReader.run` found a run, perhaps a deleted one, and not a mere stream."""
    return run is not None and (run["status"] is not None or "deleted" in run)


def no_run(settings: WriterSettings, run_id: str) -> NotFound:
    """The error for a run that is not there."""
    return NotFound(
        f"there is no run {run_id} in {settings.data}",
        hint="`statewriter runs` lists them; what was just sent needs a daemon to be applied",
    )


def shown_path(path: Path) -> str:
    """A path as a person would type it here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
