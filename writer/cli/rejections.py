"""`rejections`: the messages that the writer refused, and why."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from writer.cli import output
from writer.cli.exits import NotFound
from writer.cli.folder import reading, settings_of
from writer.cli.options import AsJson, Data, Limit, Redis, examples
from writer.clock import now_ms
from writer.errors import Usage

UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
COLUMNS = ("id", "at", "run", "kind", "producer", "seq", "reason", "detail")
AGO = re.compile(r"([0-9]+)([smhd])")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "rejections",
        epilog=examples(
            "statewriter rejections",
            "statewriter rejections --reason lease_missing --since 2h",
            "statewriter rejections 0:17",
            "statewriter rejections 0:17 --json | jq '{run: .run_id, fields}' -c",
        ),
    )(rejections)


def rejections(  # noqa: PLR0913 - each is an option
    rejection: Annotated[
        str | None,
        typer.Argument(
            metavar="ID", help="Show this one, with what it carried.", show_default=False
        ),
    ] = None,
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
    """List refused messages, the newest first, or show one.

    Nothing of them is lost: each keeps its stream fields (a token as its hash).
    With --json: {"rejections": [...], "next": TOKEN or null}, or the one.
    """
    settings = settings_of(data, redis)
    since_ms = None if since is None else parse_since(since)
    with reading(settings) as reader:
        if rejection is not None:
            _show(reader.rejection(rejection), rejection, as_json)
            return
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
    output.draw(output.table(COLUMNS, rows, right=("seq",)))
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


def _show(found: dict[str, Any] | None, rejection: str, as_json: bool) -> None:
    from producers.contract.reasons import Reason

    if found is None:
        raise NotFound(
            f"there is no rejection {rejection}", hint="`statewriter rejections` lists their ids"
        )
    sentence = Reason(found["reason"]).sentence
    if as_json:
        output.emit({**found, "sentence": sentence})
        return
    output.draw(
        output.facts(
            [
                ("id", found["id"]),
                ("run", found["run_id"]),
                ("message", found["message_id"]),
                ("at", output.moment(found["recorded_at"])),
                ("kind", found["kind"]),
                ("producer", found["producer"]),
                ("sequence", found["producer_seq"]),
                ("reason", f"{found['reason']}: {sentence}"),
                ("detail", found["detail"] or None),
                ("size", output.size(found["fields_bytes"])),
                ("SHA-256", found["fields_sha256"]),
            ]
        )
    )
    kept = found["fields"] if found["fields"] is not None else found["head"]
    output.write("" if found["fields"] is not None else "\ntoo large to be kept whole; its head:")
    output.draw(output.document(kept))
