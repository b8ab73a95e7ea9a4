"""`export`: one run as newline-delimited JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from writer.cli import output
from writer.cli.folder import no_run, reading, settings_of
from writer.cli.options import AsJson, Data, Redis, RunId, examples
from writer.errors import Usage


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "export",
        epilog=examples(
            "statewriter export RUN -o run.ndjson",
            "statewriter export RUN | jq -c 'select(.type == \"entry\") | .entry.entry'",
        ),
    )(export)


def export(
    run: RunId,
    to: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="A file instead of stdout.", show_default=False
        ),
    ] = None,
    data: Data = None,
    redis: Redis = None,
    as_json: AsJson = False,
) -> None:
    """Export one run whole, as newline-delimited JSON.

    Each line is {"type": T, T: {...}}; T is run, event, state, update, attempt,
    invocation, work_item, suspension, effect, lease, producer, definition, segment,
    entry, session_event or rejection. --json changes nothing.
    """
    settings = settings_of(data, redis)
    with reading(settings) as reader:
        lines = reader.export_run(run)
        first = next(lines, None)
        if first is None:
            raise no_run(settings, run)
        if to is None:
            output.emit(first)
            _write(sys.stdout.buffer, lines)
            return
        try:
            with to.open("wb") as file:
                count = _write(file, [first]) + _write(file, lines)
        except OSError as error:
            raise Usage(f"{to} can not be written: {error.strerror}") from error
    output.note(f"{output.counted(count, 'line')} in {to}")


def _write(file: BinaryIO, lines: Iterable[dict[str, Any]]) -> int:
    import orjson

    count = 0
    for line in lines:
        file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
        count += 1
    return count
