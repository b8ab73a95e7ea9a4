"""Every setting of a producer: argument, else environment (`STATEWRITER_<NAME>`), else a TOML file
(`STATEWRITER_CONFIG`, else `statewriter.toml` in the working folder), else default.
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from tomllib import TOMLDecodeError
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)
from redis.connection import parse_url

from producers.contract.keys import DEFAULT_PREFIX
from producers.contract.limits import PARTITIONS_MAX
from producers.errors import InvalidSettings

WhenFull = Literal["spool", "block", "raise", "drop"]
Milliseconds = Annotated[int, Field(ge=0, le=24 * 60 * 60 * 1_000)]
PositiveMilliseconds = Annotated[Milliseconds, Field(ge=1)]
Bytes = Annotated[int, Field(ge=1)]


class ProducerSettings(BaseSettings):
    """How a producer finds Redis, what it may hold, and how long it waits."""

    model_config = SettingsConfigDict(
        env_prefix="STATEWRITER_",
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
    )

    redis: str | None = Field(None, repr=False)
    """URL (`redis://`, `rediss://`, `unix://`). Unset: the data folder's own server."""
    data: Path = Path("statewriter-data")
    """Folder in which the daemon's own server leaves `redis/endpoint.json`."""
    partitions: Annotated[int, Field(ge=1, le=PARTITIONS_MAX)] | None = None
    """Unset: the number that the first writer wrote into Redis."""
    prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]{1,64}$")] = DEFAULT_PREFIX
    buffer_bytes_max: Bytes = 64 * 1024 * 1024
    when_full: WhenFull = "spool"
    """`spool` moves to disk what Redis does not take, `block` waits up to `block_timeout_ms` for
    room, `raise` does not, `drop` counts what found none. The first three can end in BufferFull.
    """
    block_timeout_ms: Milliseconds = 5_000
    spool: Path | None = None
    """Folder of the spool. Unset: `spool` in the data folder."""
    spool_adopts: Literal["own", "all"] = "own"
    """What of dead processes is sent: what was meant for this server and prefix, or all of it."""
    spool_bytes_max: Bytes = 1024 * 1024 * 1024
    """Per producer."""
    spool_after_ms: Milliseconds = 250
    """How long a command waits for Redis in memory."""
    spool_fsync: bool = False
    """Whether what is on disk must survive a power cut, and not only the death of the process."""
    delta_bytes_min: Annotated[int, Field(ge=0)] = 8 * 1024
    """From this size on a state travels as what has changed where that is less. 0: always whole."""
    stream_messages_max: Annotated[int, Field(ge=1)] | None = None
    """How long a run's stream may become before this producer keeps its commands. Unset: any."""
    receipt_timeout_ms: PositiveMilliseconds = 2_000
    """How long to wait for a receipt before the command is sent again, for who waits for it."""
    confirm_timeout_ms: PositiveMilliseconds = 10_000
    """How long a call with `confirm=True` waits."""
    exit_timeout_ms: Milliseconds = 5_000
    """How long the interpreter's exit may wait for producers that nobody closed, all together."""
    pipeline_commands_max: Annotated[int, Field(ge=1, le=10_000)] = 500
    pipeline_bytes_max: Bytes = 4 * 1024 * 1024
    """A command that is larger travels alone."""
    connect_timeout_ms: PositiveMilliseconds = 2_000
    reply_timeout_ms: PositiveMilliseconds = 10_000

    @property
    def spool_folder(self) -> Path:
        """Where commands go that Redis does not take, a folder per destination."""
        return self.data / "spool" if self.spool is None else self.spool

    @property
    def destination(self) -> str:
        """A name for the server and the prefix: what was meant for one must not reach another."""
        server = f"data:{self.data}" if self.redis is None else hide_password(self.redis)
        return f"{self.prefix}-{sha256(server.encode()).hexdigest()[:12]}"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, environment, file."""
        named = os.environ.get("STATEWRITER_CONFIG") or "statewriter.toml"
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, Path(named))


def make_settings(settings: ProducerSettings | None, arguments: dict[str, Any]) -> ProducerSettings:
    """Settings with the arguments that are not None laid over them. Raises InvalidSettings."""
    given = {name: value for name, value in arguments.items() if value is not None}
    if settings is not None:
        given = settings.model_dump() | given
    try:
        made = ProducerSettings(**given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        name = ".".join(str(step) for step in first["loc"]) or "settings"
        raise InvalidSettings(f"{name}: {first['msg']}") from None
    except (TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSettings(f"the configuration file is no TOML: {error}") from None
    if made.redis is not None:
        _check_url(made.redis)
    # A host that changes its directory later still means the folder it named.
    folders = {"data": made.data.absolute()}
    if made.spool is not None:
        folders["spool"] = made.spool.absolute()
    return made.model_copy(update=folders)


def find_redis(settings: ProducerSettings) -> str | None:
    """The URL to connect to now; None while the data folder's server has not been started."""
    if settings.redis is not None:
        return settings.redis
    try:
        endpoint = orjson.loads(endpoint_path(settings.data).read_bytes())
        url = endpoint["url"]
        connection_options(url)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # Missing, half written or left by something else: all mean that no server is up yet.
        return None
    return str(url)


def endpoint_path(data: Path) -> Path:
    """Where the daemon's own server says how it is reached: a JSON object with `url`."""
    return data / "redis" / "endpoint.json"


def connection_options(url: str) -> dict[str, Any]:
    """What a URL says of a connection, as redis-py's arguments. Raises ValueError."""
    options: dict[str, Any] = parse_url(url)  # type: ignore[no-untyped-call]
    return options


def hide_password(url: str) -> str:
    """The URL without user, password and options, for logs."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"


def _check_url(url: str) -> None:
    try:
        connection_options(url)
    except ValueError:
        raise InvalidSettings(
            "redis: not a usable URL; it begins with redis://, rediss:// or unix://"
        ) from None
