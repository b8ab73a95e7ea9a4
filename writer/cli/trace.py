"""`trace` and `transcript`: a run's events and its sessions' entries, in order."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from writer.cli import output
from writer.cli.exits import NotFound
from writer.cli.folder import exists, no_run, reading, settings_of
from writer.cli.options import AsJson, Data, Redis, RunId, examples
from writer.clock import sleep

if TYPE_CHECKING:
    from writer.store.reader import StateReader

FOLLOW_S = 0.2
PAGE = 1000
ENDED = frozenset(("completed", "failed", "timed_out", "cancelled"))

After = Annotated[
    int, typer.Option("--after", metavar="N", min=0, help="Begin behind this revision or seq.")
]
Most = Annotated[
    int | None,
    typer.Option("--limit", metavar="N", min=1, help="At most N.", show_default=False),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        "trace",
        epilog=examples(
            "statewriter trace RUN",
            "statewriter trace RUN --follow",
            "statewriter trace RUN --json | jq -r .type | sort | uniq -c",
        ),
    )(trace)
    app.command(
        "transcript",
        epilog=examples(
            "statewriter transcript RUN",
            "statewriter transcript RUN --capture-key review",
            "statewriter transcript RUN --json | jq .entry",
        ),
    )(transcript)


def trace(
    run: RunId,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what happens, until the run ends.")
    ] = False,
    after: After = 0,
    limit: Most = None,
    data: Data = None,
    redis: Redis = None,
    as_json: AsJson = False,
) -> None:
    """Print a run's events, the oldest first.

    With --json: an object per line.
    """
    settings = settings_of(data, redis)
    with reading(settings) as reader:
        if not follow and not exists(reader.run(run)):
            raise no_run(settings, run)
        try:
            _print_events(reader, run, after, limit, follow, as_json)
        except KeyboardInterrupt:
            if not follow:
                raise


def _print_events(
    reader: StateReader, run: str, after: int, limit: int | None, follow: bool, as_json: bool
) -> None:
    left = limit
    while left is None or left > 0:
        # Looked at before the events: what ends the run is among them then.
        found = reader.run(run)
        rows = reader.trace(run, after=after, limit=min(left or PAGE, PAGE))
        for row in rows:
            if as_json:
                output.emit(row)
            else:
                output.write(_event_line(row))
        if rows:
            after = rows[-1]["revision"]
            left = None if left is None else left - len(rows)
            continue
        if not follow or (found is not None and _is_over(found)):
            return
        sys.stdout.flush()
        sleep(FOLLOW_S)


def _is_over(run: dict[str, Any]) -> bool:
    return run["status"] in ENDED or "deleted" in run


def _event_line(row: dict[str, Any]) -> str:
    where = "/".join(part for part in (row["node_id"], row["attempt_id"]) if part)
    payload = "" if row["payload"] is None else output.compact(row["payload"])
    shown = (
        f"{row['revision']:>5}  {output.moment(row['recorded_at'])}  {row['type']:<22}  {where}  "
        f"{payload}"
    )
    return shown.rstrip()


def transcript(
    run: RunId,
    capture_key: Annotated[
        str | None,
        typer.Option(
            "--capture-key",
            metavar="KEY",
            help="The session under this key; else the run's own.",
            show_default=False,
        ),
    ] = None,
    after: After = 0,
    limit: Most = None,
    data: Data = None,
    redis: Redis = None,
    as_json: AsJson = False,
) -> None:
    """Print a session's entries, the oldest first.

    With --json: an object per line, the whole entry in it.
    """
    settings = settings_of(data, redis)
    with reading(settings) as reader:
        found = reader.run(run)
        if found is None or not exists(found):
            raise no_run(settings, run)
        keys = [each["capture_key"] for each in found.get("segments", ())]
        if capture_key not in keys:
            raise _no_session(run, capture_key, keys)
        left = limit
        while left is None or left > 0:
            rows = reader.transcript(
                run, capture_key=capture_key, after=after, limit=min(left or PAGE, PAGE)
            )
            if not rows:
                break
            for row in rows:
                if as_json:
                    output.emit(row)
                else:
                    _print_entry(row)
            after = rows[-1]["seq"]
            left = None if left is None else left - len(rows)


def _no_session(run: str, capture_key: str | None, keys: list[str | None]) -> NotFound:
    named = [key for key in keys if key is not None]
    under = "without a capture key" if capture_key is None else f"under {capture_key}"
    hint = f"there is: {', '.join(f'--capture-key {key}' for key in named[:10])}" if named else ""
    if capture_key is not None and None in keys:
        hint = f"{hint}{' and ' if hint else 'there is: '}the run's own, without the option"
    return NotFound(f"run {run} has no session {under}", hint=hint or "it has no session at all")


def _print_entry(row: dict[str, Any]) -> None:
    entry = row["entry"]
    name = f" {output.printable(row['entry_id'])}" if row["entry_id"] else ""
    head = f"[{row['seq']}] {_speaker(entry)}{name}"
    output.write(head)
    for line in _spoken(entry).splitlines():
        output.write(f"    {output.printable(line)}")


def _speaker(entry: dict[str, Any]) -> str:
    """Who speaks, as far as the common shapes of transcripts tell."""
    message = entry.get("message")
    said = message if isinstance(message, dict) else entry
    for name in (said.get("role"), entry.get("type"), entry.get("kind")):
        if isinstance(name, str) and name:
            return output.printable(name)
    return "entry"


def _spoken(entry: dict[str, Any]) -> str:
    """What is said, as far as the common shapes of transcripts tell; else the entry itself."""
    message = entry.get("message")
    said = message if isinstance(message, dict) else entry
    content = said.get("content", said.get("text", message))
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [_block(block) for block in content]
        return "\n".join(text for text in texts if text)
    return output.compact(entry, 400)


def _block(block: Any) -> str:
    if isinstance(block, dict) and isinstance(block.get("text"), str):
        return str(block["text"])
    return block if isinstance(block, str) else output.compact(block, 200)
