"""`rejections redrive` and `rejections drop`: refused commands sent again, or forgotten."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from writer.cli import output
from writer.cli.acts import authority
from writer.cli.exits import NotFound, Refused
from writer.cli.folder import check_folder, reading, settings_of
from writer.cli.operators import WAIT_S, ask_at, await_act
from writer.cli.options import (
    AsJson,
    Data,
    OwnerId,
    OwnerType,
    Redis,
    Timeout,
    TokenEnv,
)
from writer.cli.redrive import Redrive, in_turn, place_of
from writer.cli.rejections import parse_since
from writer.cli.running import server
from writer.clock import monotonic
from writer.errors import Usage
from writer.health import read_health

if TYPE_CHECKING:
    from writer.settings import WriterSettings

PAGE = 1_000
COLUMNS = ("id", "run", "kind", "outcome", "about")

Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", help="These rejections.", show_default=False),
]
OfRun = Annotated[
    str | None, typer.Option("--run", metavar="RUN", help="Those of it.", show_default=False)
]
ForReason = Annotated[
    str | None, typer.Option("--reason", metavar="CODE", help="Those for it.", show_default=False)
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="WHEN",
        help="Later ones only: 30s, 5m, 2h, 7d ago, or an ISO 8601 time.",
        show_default=False,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def redrive(  # noqa: PLR0913 - each is an option
    ids: Ids = None,
    run: OfRun = None,
    reason: ForReason = None,
    since: Since = None,
    owner_type: OwnerType = "host",
    owner_id: OwnerId = None,
    token_env: TokenEnv = None,
    timeout: Timeout = WAIT_S,
    data: Data = None,
    redis: Redis = None,
    as_json: AsJson = False,
) -> int:
    """Send refused commands again, the oldest first, as they were.

    Each goes to the end of its run's stream, from producer redrive-MESSAGE,
    sequence 1: twice is once. One that is refused again is a new rejection;
    that is the one to redrive then. For a run whose lease is held, name the
    authority: the rejection keeps only the token's hash.
    With --json: an object per rejection.
    """
    settings = settings_of(data, redis)
    auth = authority(owner_type, owner_id, token_env)
    chosen = _choose(settings, ids, run, reason, since)
    drive = Redrive(settings, auth, timeout)
    told = drive.send(chosen)
    _tell(told, as_json)
    if any(each["outcome"] == "rejected" for each in told):
        raise Refused("not every command was applied", hint="see `statewriter rejections show ID`")
    if any(each["outcome"] == "impossible" for each in told):
        raise Refused("not every rejection could be sent again")
    return 0


def drop(  # noqa: PLR0913 - each is an option
    ids: Ids = None,
    run: OfRun = None,
    reason: ForReason = None,
    since: Since = None,
    yes: Yes = False,
    timeout: Timeout = WAIT_S,
    data: Data = None,
    redis: Redis = None,
    as_json: AsJson = False,
) -> int:
    """Forget the bytes of refused messages. That they were refused, and why, stays.

    The archive keeps them until its segments expire.
    With --json: an object per rejection.
    """
    settings = settings_of(data, redis)
    chosen = _choose(settings, ids, run, reason, since)
    if not yes:
        _confirm(len(chosen))
    told = _drop(settings, chosen, timeout)
    _tell(told, as_json)
    if any(each["outcome"] == "refused" for each in told):
        raise Refused("not every rejection was dropped")
    return 0


def _confirm(count: int) -> None:
    if not sys.stdin.isatty():
        raise Usage("drop asks first, and there is nobody to ask", hint="pass --yes")
    typer.confirm(
        f"Drop the bytes of {output.counted(count, 'rejection')} for ever?", abort=True, err=True
    )


def _choose(
    settings: WriterSettings,
    ids: Sequence[str] | None,
    run: str | None,
    reason: str | None,
    since: str | None,
) -> list[str]:
    """Ids of the rejections that are meant, the oldest first. Raises Usage, NotFound."""
    if bool(ids) == bool(run or reason or since):
        raise Usage("name rejections, or filter them", hint="ID..., or --run, --reason, --since")
    with reading(settings) as reader:
        if ids:
            for each in ids:
                if reader.rejection(each) is None:
                    raise NotFound(
                        f"there is no rejection {each}", hint="`statewriter rejections list`"
                    )
            return list(dict.fromkeys(ids))
        since_ms = None if since is None else parse_since(since)
        found: list[dict[str, Any]] = []
        after = None
        while True:
            page = reader.rejections(
                run=run, reason=reason, since=since_ms, after=after, limit=PAGE
            )
            found += page.rejections
            after = page.next
            if after is None:
                break
    if not found:
        raise NotFound("no rejection is like that", hint="`statewriter rejections list`")
    return [row["id"] for row in reversed(found)]


def _drop(settings: WriterSettings, ids: Sequence[str], timeout: float) -> list[dict[str, Any]]:
    from writer.store.reader.files import Files
    from writer.streams.link import connect

    check_folder(settings)
    told: list[dict[str, Any]] = []
    with closing(Files(settings.data)) as files, server(settings) as url, connect(url) as client:
        running = read_health(settings.data) is not None
        for some in in_turn(ids, running):
            asked = []
            for rejection_id in some:
                place = place_of(files, rejection_id)
                said = ask_at(settings, client, "drop", place)
                asked.append((place, {**said, "id": rejection_id}))
            deadline = monotonic() + timeout
            for place, said in asked:
                if running:
                    said.update(await_act(files, "drop", place, said["control_id"], deadline))
                told.append(said)
    return told


def _tell(told: Sequence[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        for each in told:
            output.emit(each)
        return
    output.draw(output.table(COLUMNS, _rows(told)))
    if any(each["outcome"] == "sent" for each in told):
        output.note("no daemon is running: it is done when one runs")


def _rows(told: Sequence[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    for each in told:
        about = each.get("detail") or None
        match each["outcome"]:
            case "applied":
                about = f"revision {each['revision']}"
            case "rejected":
                about = f"{each['reason']}, as rejection {each['as']}"
            case "before":
                new = f", as rejection {each['as']}" if each["as"] else ""
                about = f"redriven before: {each['was']}{new}"
        yield each["id"], each["run"], each.get("kind"), each["outcome"], about
