"""Every setting of the writer in one table: name, default, meaning.

Each comes from, in this order: the command line, the environment (`STATEWRITER_` before the name),
a TOML file (`STATEWRITER_CONFIG`, else `statewriter.toml` in the working folder), the default.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from producers.contract.keys import DEFAULT_PREFIX
from producers.contract.limits import PARTITIONS_MAX, RETENTION_SECONDS_MAX

DEFAULT_DATA = Path("statewriter-data")
DEFAULT_PARTITIONS = 2


class WriterSettings(BaseSettings):
    """How a daemon runs. Units are in the names."""

    model_config = SettingsConfigDict(env_prefix="STATEWRITER_", extra="ignore", frozen=True)

    data: Path = Field(DEFAULT_DATA, description="Folder of the partition files.")
    redis: str | None = Field(
        None,
        description="URL of a Redis server (redis://, rediss:// for TLS, unix://, with user and "
        "password inside). Without one an embedded server keeps its data in the data folder.",
    )
    prefix: str = Field(DEFAULT_PREFIX, description="What every Redis key begins with.")
    partitions: int | None = Field(
        None,
        ge=1,
        le=PARTITIONS_MAX,
        description=f"Partitions of a new data folder ({DEFAULT_PARTITIONS} by default); fixed "
        "afterwards.",
    )
    synchronous: Literal["FULL", "NORMAL"] = Field(
        "FULL",
        description="FULL: a commit survives a power cut. NORMAL: it survives a crash of the "
        "process only.",
    )
    lease_ttl_ms: int = Field(
        10_000, ge=1_000, le=600_000, description="How long a partition stays a dead writer's."
    )
    batch_messages_max: int = Field(
        500, ge=1, le=100_000, description="Messages in one transaction."
    )
    batch_bytes_max: int = Field(
        2 * 1024 * 1024, ge=1024, description="Bytes of messages in one transaction."
    )
    cache_bytes_max: int = Field(
        32 * 1024 * 1024, ge=0, description="Memory for aggregates, per partition."
    )
    checkpoint_ms: int = Field(100, ge=10, description="Between looks at the WAL.")
    sweep_ms: int = Field(60_000, ge=100, description="Between looks at all streams.")
    retry_ms_max: int = Field(5_000, ge=50, description="Longest wait between tries.")
    archive: bool = Field(
        True, description="Keep every settled message in the archive, for replay."
    )
    archive_keep_hours: int | None = Field(
        None, ge=1, description="How long sealed archive segments stay; for ever by default."
    )
    retention_seconds: int | None = Field(
        None,
        ge=1,
        le=RETENTION_SECONDS_MAX,
        description="How long `prune` keeps finished runs that name no time; for ever by default.",
    )
    replay_window_ms: int = Field(
        0, ge=0, description="How long settled messages stay in Redis all the same."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least level that is logged."
    )
    log_format: Literal["console", "json"] = Field("console", description="How lines are logged.")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Command line, environment, file."""
        named = os.environ.get("STATEWRITER_CONFIG", "statewriter.toml")
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, Path(named))
