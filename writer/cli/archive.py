"""`replay` and `verify`: what the archive is for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from writer.cli import output
from writer.cli.exits import NotFound, Unsound
from writer.cli.folder import check_folder, reading, settings_of, shown_path
from writer.cli.options import AsJson, Data, Redis, examples
from writer.cli.running import find_url
from writer.errors import Usage

if TYPE_CHECKING:
    from writer.replay import Replay, Until
    from writer.settings import WriterSettings
    from writer.verify import Verdict

MESSAGE_ID = re.compile(r"([0-9]{1,20})-([0-9]{1,20})")
LAST_OF_MS = 2**64 - 1
READ_BYTES = 4 * 1024 * 1024
READ_MESSAGES = 500

Told = Callable[[int, int], None]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        "replay",
        epilog=examples(
            "statewriter replay --into rebuilt",
            "statewriter replay --into rebuilt --until 2026-01-31T12:00:00Z",
            "statewriter replay --from /backup/data --into rebuilt --archive-only",
        ),
    )(replay)
    app.command(
        "verify",
        epilog=examples(
            "statewriter verify",
            "statewriter verify --no-rebuild",
            "statewriter verify --json | jq 'select(.sound | not)'",
        ),
    )(verify)


def replay(
    into: Annotated[
        Path, typer.Option("--into", metavar="DIR", help="New folder.", show_default=False)
    ],
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="WHEN",
            help="Only what arrived up to a message id or an ISO 8601 time.",
            show_default=False,
        ),
    ] = None,
    archive_only: Annotated[
        bool, typer.Option("--archive-only", help="Not what still waits in Redis.")
    ] = False,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="DIR", help="Data folder; the same as --data.", show_default=False
        ),
    ] = None,
    data: Data = None,
    redis: Redis = None,
    as_json: AsJson = False,
) -> None:
    """Build all partitions anew from the archive, in a new folder.

    Also from what waits in Redis past it, if Redis can be reached; nothing there
    is trimmed or marked. The same messages give the digest of the live files.
    With --json: one object.
    """
    settings = settings_of(source or data, redis)
    bound = None if until is None else parse_until(until)
    check_folder(settings)
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise Usage(f"{into} is not empty", hint="name a folder that does not exist yet")
    url = None if archive_only else find_url(settings)
    if url is None and not archive_only:
        output.note("Redis does not run: what waits there is left out")
    told = _rebuild(settings, into.absolute(), bound, url)
    with reading(settings.model_copy(update={"data": into.absolute()})) as reader:
        told["digest"] = reader.digest(runs=False)["digest"]
    for run, cause in told["held"].items():
        output.note(f"run {run} stopped: {cause}")
    if as_json:
        output.emit(told)
        return
    output.write(
        f"{output.counted(told['messages'], 'message')} replayed into {shown_path(into.absolute())}"
        f" ({told['from_redis']:,} of them from Redis), "
        f"{output.counted(told['partitions'], 'partition')}"
    )
    output.write(f"{told['digest']}  whole")


def parse_until(text: str) -> tuple[int, int]:
    """A message id, or the last one of an ISO 8601 time (UTC unless it says). Raises Usage."""
    named = MESSAGE_ID.fullmatch(text)
    if named is not None:
        return int(named[1]), int(named[2])
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise Usage(
            f"--until {text}: neither a message id nor a time",
            hint="1769860800000-0, or 2026-01-31T12:00:00Z",
        ) from None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return int(at.timestamp() * 1000), LAST_OF_MS


def _rebuild(settings: WriterSettings, into: Path, until: Until, url: str | None) -> dict[str, Any]:
    from writer.clock import now_ms
    from writer.collector import look_rarely
    from writer.replay import Bounds, archive_bytes, archived_partitions, rebuilding
    from writer.store.partition import stored_partitions
    from writer.streams.archive import START, archive_folder, segments
    from writer.streams.reach import reaches_back_to

    look_rarely()
    data = settings.data
    partitions = archived_partitions(data) or stored_partitions(data)
    if partitions is None or (url is None and archived_partitions(data) is None):
        raise NotFound(
            f"{data} has no archive", hint="it is written unless the setting `archive` is off"
        )
    for partition in range(partitions):
        folder = archive_folder(data, partition)
        if segments(folder) and not reaches_back_to(folder, START):
            raise NotFound(
                f"the archive of partition {partition} does not reach back to the beginning: its "
                "first segments have expired, or archiving was off for a while",
                hint="restore a backup and start the daemon: it goes on from the archive",
            )
    if url is not None:
        _check_reachable(url)
    into.mkdir(parents=True, exist_ok=True)
    done: list[Replay] = []
    from_redis = 0
    with progress() as begun:
        for partition in range(partitions):
            with rebuilding(
                data, into, (partition, partitions), now=now_ms(), bounds=Bounds(until)
            ) as build:
                build.told = begun(f"p{partition:02d}.sqlite", archive_bytes(build.folder))
                build.archive()
                if url is not None:
                    from_redis += _replay_streams(settings, url, partition, build)
                done.append(build)
    return {
        "into": str(into),
        "partitions": partitions,
        "messages": sum(build.messages for build in done),
        "from_redis": from_redis,
        "held": {run: cause for build in done for run, cause in build.held.items()},
    }


def _check_reachable(url: str) -> None:
    from writer.streams.link import connect, translated

    with connect(url) as client, translated():
        client.ping()


def _replay_streams(settings: WriterSettings, url: str, partition: int, build: Replay) -> int:
    from producers.contract.keys import Keys
    from writer.streams.backlog import streams
    from writer.streams.link import connect
    from writer.streams.read import Reader

    keys = Keys(settings.prefix)
    with connect(url) as client:
        reader = Reader(client, keys, partition, READ_BYTES, READ_MESSAGES)
        return build.streams(reader, streams(client, keys, partition))


def verify(
    no_rebuild: Annotated[
        bool, typer.Option("--no-rebuild", help="Look at the files only, not at the archive.")
    ] = False,
    data: Data = None,
    redis: Redis = None,
    as_json: AsJson = False,
) -> None:
    """Check the files by their own rules, then against a rebuild from the archive.

    Works on a folder that is being written, too. Names each broken rule, and of
    each run that differs the first row. Needs room for one rebuilt partition in
    TMPDIR. With --json: an object per partition.
    """
    from writer.verify import verify as judge

    settings = settings_of(data, redis)
    check_folder(settings)
    wrong = 0
    seen = 0
    with progress() as begun:
        for verdict in judge(settings.data, rebuild=not no_rebuild, begun=begun):
            seen += 1
            wrong += not verdict.sound
            if as_json:
                output.emit(_as_json(verdict))
            else:
                for line in _lines(verdict):
                    output.write(line)
    if not seen:
        raise NotFound(f"there is no partition file in {settings.data}")
    if wrong:
        raise Unsound(
            f"{output.counted(wrong, 'partition')} of {seen} did not pass",
            hint="docs/recovery.md says what to do",
        )


def _as_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "file": verdict.file,
        "sound": verdict.sound,
        "streams": verdict.streams,
        "messages": verdict.messages,
        "violations": [
            {**each._asdict(), "sentence": each.sentence} for each in verdict.violations
        ],
        "compared": verdict.compared,
        "incomparable": verdict.incomparable,
        "differing": verdict.differing,
        "differences": [each._asdict() for each in verdict.differences],
        "notes": verdict.notes,
    }


def _lines(verdict: Verdict) -> Iterator[str]:
    about = (
        f"{verdict.file}: {output.counted(verdict.streams, 'stream')}, "
        f"{output.counted(verdict.messages, 'message')}"
    )
    rules = "every rule holds" if not verdict.violations else "BROKEN"
    if verdict.compared:
        same = "equal to its archive" if not verdict.differing else "NOT equal to its archive"
    else:
        same = f"not compared with its archive: {verdict.incomparable or 'see below'}"
    yield f"{about}: {rules}; {same}"
    for violation in verdict.violations:
        run = f"run {violation.run}: " if violation.run is not None else ""
        yield f"  {violation.sentence} ({violation.rule}) {run}{violation.place}"
    for each in verdict.differences:
        yield f"  run {each.run} differs first in {each.table}, row {each.row}"
        yield f"    live:    {each.here or 'no such row'}"
        yield f"    rebuilt: {each.there or 'no such row'}"
    if verdict.differing > len(verdict.differences):
        yield f"  and {verdict.differing - len(verdict.differences):,} more runs differ"
    yield from (f"  note: {note}" for note in verdict.notes)


@contextmanager
def progress() -> Iterator[Callable[[str, int], Told]]:
    """Bars on a terminal's stderr: what is yielded begins one for so many units."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    screen = output.console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bars:

        def begun(name: str, total: int) -> Told:
            task = bars.add_task(name, total=max(total, 1), note="")

            def told(messages: int, done: int) -> None:
                note = f"{messages:,} messages" if messages else ""
                if done:
                    bars.update(task, completed=done, note=note)
                else:
                    bars.update(task, note=note)

            return told

        yield begun
