"""`rejections`: the messages that the writer refused, and why."""

from __future__ import annotations

import re
from contextlib import closing
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from writer.cli import output
from writer.cli.exits import NotFound
from writer.cli.folder import check_folder, reading, settings_of
from writer.cli.options import AsJson, Data, Limit, Redis, examples
from writer.clock import now_ms
from writer.errors import Usage

UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
COLUMNS = ("id", "at", "run", "kind", "producer", "seq", "reason", "detail")
NARROW = ("id", "run", "kind", "reason", "detail")
ID = re.compile(r"[0-9]+:[0-9]+")
AGO = re.compile(r"([0-9]+)([smhd])")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    from writer.cli import deadletters

    group = typer.Typer(
        cls=ListFirst,
        help="Refused messages: none of them is lost. Without a command they are listed; with an "
        "ID alone, that one is shown.",
        context_settings={"help_option_names": ["--help", "-h"]},
        epilog=examples("statewriter rejections", "statewriter rejections 0:17"),
    )
    group.command(
        "list",
        epilog=examples(
            "statewriter rejections list",
            "statewriter rejections list --reason lease_missing --since 2h",
        ),
    )(listed)
    group.command(
        "show",
        epilog=examples(
            "statewriter rejections show 0:17",
            "statewriter rejections show 0:17 --json | jq '{run: .run_id, fields}' -c",
        ),
    )(show)
    group.command(
        "redrive",
        epilog=examples(
            "statewriter rejections redrive 0:17",
            "statewriter rejections redrive --reason run_unknown --since 2h",
            "TOKEN=... statewriter rejections redrive 0:17 --owner-id worker-7 --token-env TOKEN",
        ),
    )(deadletters.redrive)
    group.command(
        "drop",
        epilog=examples(
            "statewriter rejections drop 0:17",
            "statewriter rejections drop --reason body_not_json --yes",
        ),
    )(deadletters.drop)
    app.add_typer(group, name="rejections")


class ListFirst(TyperGroup):
    """A group that lists where no command is named, and shows what an id alone names."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put in the command that is meant."""
        first = args[0] if args else ""
        if not first or (first.startswith("-") and first not in ("--help", "-h")):
            args = ["list", *args]
        elif ID.fullmatch(first):
            args = ["show", *args]
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed


def listed(  # noqa: PLR0913 - each is an option
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="Only of it.", show_default=False)
    ] = None,
    reason: Annotated[
        str | None,
        typer.Option("--reason", metavar="CODE", help="Only for it.", show_default=False),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="WHEN",
            help="Only later ones: 30s, 5m, 2h, 7d ago, or an ISO 8601 time.",
            show_default=False,
        ),
    ] = None,
    limit: Limit = 50,
    after: Annotated[
        str | None,
        typer.Option(
            "--after", metavar="TOKEN", help="Go on after an earlier page.", show_default=False
        ),
    ] = None,
    data: Data = None,
    redis: Redis = None,
    as_json: AsJson = False,
) -> None:
    """List refused messages, the newest first.

    With --json: {"rejections": [...], "next": TOKEN or null}.
    """
    settings = settings_of(data, redis)
    since_ms = None if since is None else parse_since(since)
    with reading(settings) as reader:
        found = reader.rejections(run=run, reason=reason, since=since_ms, after=after, limit=limit)
    if as_json:
        output.emit({"rejections": found.rejections, "next": found.next})
        return
    if not found.rejections:
        output.note("nothing was refused" if not (run or reason or since) else "none")
        return
    rows = [
        (
            row["id"],
            output.clock(row["recorded_at"]),
            row["run_id"],
            row["kind"],
            row["producer"],
            row["producer_seq"],
            row["reason"],
            row["detail"],
        )
        for row in found.rejections
    ]
    output.draw(output.table(COLUMNS, rows, right=("seq",), narrow=NARROW))
    if found.next is not None:
        output.note(f"more with --after {found.next}")


def parse_since(text: str, now: int | None = None) -> int:
    """Milliseconds of `2h` (ago) or an ISO 8601 time (UTC unless it says). Raises Usage."""
    ago = AGO.fullmatch(text)
    if ago is not None:
        return (now_ms() if now is None else now) - int(ago[1]) * UNITS_MS[ago[2]]
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise Usage(
            f"--since {text}: neither a length of time nor a time",
            hint="30s, 5m, 2h, 7d, or 2026-01-31T12:00:00Z",
        ) from None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return int(at.timestamp() * 1000)


def show(
    rejection: Annotated[str, typer.Argument(metavar="ID", show_default=False)],
    data: Data = None,
    redis: Redis = None,
    as_json: AsJson = False,
) -> None:
    """Show one refused message: why, what it carried, and what was done about it.

    It keeps its stream fields, a token as its hash. With --json: one object.
    """
    from producers.contract.reasons import Reason
    from writer.store.audit import rejection_story
    from writer.store.reader.files import Files
    from writer.store.reader.rejections import whole_rejection

    settings = settings_of(data, redis)
    check_folder(settings)
    with closing(Files(settings.data)) as files:
        found = whole_rejection(files, rejection)
        if found is None:
            raise NotFound(
                f"there is no rejection {rejection}",
                hint="`statewriter rejections` lists their ids",
            )
        found |= rejection_story(files, found)
    found["sentence"] = Reason(found["reason"]).sentence
    if as_json:
        output.emit(found)
        return
    output.draw(output.facts(_facts(found)))
    if found["dropped_at"] is not None:
        return
    kept = found["fields"] if found["fields"] is not None else found["head"]
    output.write("" if found["fields"] is not None else "\ntoo large to be kept whole; its head:")
    output.draw(output.document(kept))


def _facts(found: dict[str, Any]) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = [
        ("id", found["id"]),
        ("run", found["run_id"]),
        ("message", found["message_id"]),
        ("at", output.moment(found["recorded_at"])),
        ("kind", found["kind"]),
        ("producer", found["producer"]),
        ("sequence", found["producer_seq"]),
        ("reason", f"{found['reason']}: {found['sentence']}"),
        ("detail", found["detail"] or None),
        ("size", output.size(found["fields_bytes"])),
        ("SHA-256", found["fields_sha256"]),
        ("redrive of", found["redrive_of"]),
        ("redriven", _redriven(found["redriven"])),
    ]
    for each in found["acts"]:
        who = f"asked for by {each['operator']}, {output.clock(each['recorded_at'])}"
        rows.append((each["act"], f"{each['outcome']}, {who}"))
    return rows


def _redriven(told: dict[str, Any] | None) -> str | None:
    match told:
        case None:
            return None
        case {"outcome": "applied", "revision": revision, "message_id": message_id}:
            return f"as message {message_id}: applied, revision {revision}"
        case {"outcome": "rejected", "reason": reason, "id": new, "message_id": message_id}:
            return f"as message {message_id}: refused again, {reason}; that is rejection {new}"
    return "it changed nothing"
