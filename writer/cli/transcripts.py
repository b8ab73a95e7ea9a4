"""`tail-transcripts`: follows the transcripts that coding agents write."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from writer.cli import output
from writer.cli.exits import OK, NotFound
from writer.cli.folder import settings_of
from writer.cli.options import AsJson, Data, Redis, examples

SAVE_S = 5.0


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "tail-transcripts",
        epilog=examples(
            "statewriter tail-transcripts ~/.agent/sessions",
            "statewriter tail-transcripts logs --pattern '*.ndjson' --once",
        ),
    )(tail_transcripts)


def tail_transcripts(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the transcripts.")],
    pattern: Annotated[
        str, typer.Option("--pattern", metavar="GLOB", help="Which files below it.")
    ] = "**/*.jsonl",
    interval: Annotated[
        float, typer.Option("--interval", metavar="S", min=0.01, help="Between two looks.")
    ] = 0.5,
    once: Annotated[bool, typer.Option("--once", help="Look once, then end.")] = False,
    data: Data = None,
    redis: Redis = None,
    as_json: AsJson = False,
) -> int:
    """Follow newline-delimited JSON files as they grow: a run per file, an entry per line.

    Rotated, truncated and half-written files are understood. After a restart nothing is
    missing and nothing is stored twice. Ctrl-C and SIGTERM end it.
    """
    from producers import Producer
    from producers.integrations.transcripts import Follower
    from writer.clock import monotonic, sleep

    if not folder.is_dir():
        raise NotFound(f"there is no folder {folder}", hint="name the folder of the transcripts")
    settings = settings_of(data, redis)
    lines = unreadable = 0
    with (
        _heeding() as signals,
        Producer(settings.redis, data=settings.data, prefix=settings.prefix) as producer,
    ):
        follower = Follower(producer, folder, pattern=pattern)
        saved_s = monotonic()
        try:
            while not signals:
                sent = follower.look()
                lines, unreadable = lines + sent.lines, unreadable + sent.unreadable
                if sent.lines and not once:
                    output.note(f"{output.counted(sent.lines, 'line')} sent")
                if once:
                    break
                if monotonic() - saved_s > SAVE_S:
                    follower.save(SAVE_S)
                    saved_s = monotonic()
                sleep(interval)
        finally:
            follower.save()
            follower.close()
    if as_json:
        output.emit({"lines": lines, "unreadable": unreadable})
    else:
        output.note(f"{output.counted(lines, 'line')} sent, {unreadable:,} of them no JSON")
    return OK


@contextmanager
def _heeding() -> Iterator[list[int]]:
    """Signals that ask for the end, as they come. An exception amid a look could get lost."""
    came: list[int] = []
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    for each, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(each, lambda number, _: came.append(number))
    try:
        yield came
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
