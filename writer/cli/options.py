"""Options and arguments that several commands share, and how their examples are shown."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

WHERE = "Where"
AUTHORITY = "Authority (for a run whose lease is held)"

Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Data folder. Else STATEWRITER_DATA, the configuration file, ./statewriter-data.",
        rich_help_panel=WHERE,
        show_default=False,
    ),
]
Redis = Annotated[
    str | None,
    typer.Option(
        "--redis",
        metavar="URL",
        help="Redis: redis://, rediss:// (TLS) or unix://, with user and password inside. Else "
        "STATEWRITER_REDIS, the configuration file, the data folder's own server.",
        rich_help_panel=WHERE,
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, errors too.", show_default=False)]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="Id of the run.", show_default=False)]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, max=10_000, help="At most N.")]
Timeout = Annotated[
    float,
    typer.Option("--timeout", metavar="S", min=0, help="Give up after S seconds of no progress."),
]
OwnerType = Annotated[
    str,
    typer.Option(
        "--owner-type",
        metavar="TYPE",
        help="session, host, controller, channel or system.",
        rich_help_panel=AUTHORITY,
    ),
]
OwnerId = Annotated[
    str | None,
    typer.Option(
        "--owner-id",
        metavar="ID",
        help="Owner of the lease, as it was claimed.",
        rich_help_panel=AUTHORITY,
        show_default=False,
    ),
]
TokenEnv = Annotated[
    str | None,
    typer.Option(
        "--token-env",
        metavar="NAME",
        help="Environment variable that holds the token: never an argument, which others can see.",
        rich_help_panel=AUTHORITY,
        show_default=False,
    ),
]


def examples(*lines: str) -> str:
    """An epilog that shows examples, a line each."""
    shown = ["[bold]Examples[/bold]", *(f"  {escaped(line)}" for line in lines)]
    return "\n".join(shown)


def escaped(text: str) -> str:
    """Text in which rich sees no markup."""
    return text.replace("[", r"\[")
