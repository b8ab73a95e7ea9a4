"""`ingest`: a transcript as newline-delimited JSON becomes a run with an entry per line."""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from writer.cli import output
from writer.cli.exits import OK, Refused, Unsettled
from writer.cli.folder import reading, settings_of, shown_path
from writer.cli.options import AsJson, Data, Redis, Timeout, examples
from writer.clock import monotonic
from writer.errors import Usage

if TYPE_CHECKING:
    from writer.cli.commands import Command
    from writer.cli.lines import Line
    from writer.cli.outbox import Ended, Following, Outbox
    from writer.settings import WriterSettings

NAME_CHARS_MAX = 120
REPORTED_MAX = 20
"""How many lines that are passed over are told one by one."""
QUIET_S = 1.0
"""A progress bar comes up after so long."""
SESSION = "transcript"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "ingest",
        epilog=examples(
            "statewriter ingest session.jsonl",
            "statewriter ingest session.jsonl --run fix-4711 --title 'Fix #4711' --complete",
            "statewriter ingest review.jsonl --run fix-4711 --capture-key review",
        ),
    )(ingest)


def ingest(  # noqa: PLR0913 - each is an option
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The transcript; - for stdin, with --run.")
    ],
    run: Annotated[
        str | None,
        typer.Option(
            "--run", metavar="ID", help="The run; else named by the file.", show_default=False
        ),
    ] = None,
    capture_key: Annotated[
        str | None,
        typer.Option(
            "--capture-key", metavar="KEY", help="Under this key of the run.", show_default=False
        ),
    ] = None,
    title: Annotated[
        str | None, typer.Option("--title", metavar="T", help="Title.", show_default=False)
    ] = None,
    complete: Annotated[
        bool, typer.Option("--complete", help="Say at the end that the recording is complete.")
    ] = False,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Only send; do not wait until it is settled.")
    ] = False,
    timeout: Timeout = 60.0,
    data: Data = None,
    redis: Redis = None,
    as_json: AsJson = False,
) -> int:
    """Turn a transcript, one JSON object a line of any shape, into a run.

    Each line becomes an entry, named line-1, line-2, ... by its place, so that
    running it again adds nothing but what the file has gained. A broken or torn
    line is reported and passed over. With --json: one object.
    """
    settings = settings_of(data, redis, log_format="json" if as_json else None)
    run_id = _run_id(file) if run is None else run
    with ExitStack() as stack:
        ingesting = _begin(stack, settings, file, run_id, no_wait, timeout)
        ingesting.quiet = as_json
        ingesting.key = {} if capture_key is None else {"capture_key": capture_key}
        _open_run(ingesting, settings, title)
        with _progress(ingesting.size, as_json) as advance:
            for line in ingesting.lines:
                if line is not None:
                    ingesting.take(line)
                    advance(len(line.text or b"") + 1)
            if complete:
                ingesting.send(
                    0,
                    "session.capture",
                    {"status": "complete", "entry_count": ingesting.entries},
                )
            ingesting.finish()
    return _conclude(ingesting, settings, as_json)


def _run_id(file: Path) -> str:
    """The file's name as a run id: `My notes.jsonl` is `My-notes`. Raises Usage."""
    if str(file) == "-":
        raise Usage("stdin has no name to call the run by", hint="pass --run")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", file.name.partition(".")[0]).strip("-._")
    if not name:
        raise Usage(f"{file.name} gives no run id", hint="pass --run")
    return name[:NAME_CHARS_MAX]


def _begin(
    stack: ExitStack,
    settings: WriterSettings,
    file: Path,
    run_id: str,
    no_wait: bool,
    timeout: float,
) -> Ingesting:
    from producers.contract.keys import Keys
    from writer.cli.lines import read_lines, source
    from writer.cli.outbox import Following, Outbox
    from writer.cli.running import partitions_of, server, writing
    from writer.store.reader import StateReader
    from writer.streams.link import connect

    descriptor, size = stack.enter_context(source(file))
    url = stack.enter_context(server(settings))
    client = stack.enter_context(connect(url))
    keys = Keys(settings.prefix)
    partitions = partitions_of(settings, client)
    check = None if no_wait else stack.enter_context(writing(settings, url))
    reader = stack.enter_context(StateReader(settings.data))
    following = None
    if check is not None:
        following = Following(client, keys, partitions, reader, check, timeout)
    producer = f"ingest-{secrets.token_hex(8)}"
    return Ingesting(
        run_id=run_id,
        lines=read_lines(descriptor),
        size=size,
        outbox=Outbox(client, keys, partitions, producer, reader),
        following=following,
    )


def _open_run(ingesting: Ingesting, settings: WriterSettings, title: str | None) -> None:
    """Create and bind with what never differs, so that doing it again is a duplicate."""
    with reading(settings) as reader:
        known = reader.run(ingesting.run_id)
    if known is None or known["status"] is None:
        ingesting.send(0, "run.create", {"workflow": SESSION})
    if title is not None:
        ingesting.send(0, "run.annotate", {"title": title})
    sessions = [] if known is None else known.get("segments", [])
    key = ingesting.key.get("capture_key")
    if not any(each["capture_key"] == key for each in sessions):
        ingesting.send(0, "session.bind", {"session": key or SESSION, **ingesting.key})


@dataclass(slots=True)
class Ingesting:
    """One invocation: lines in, entries out, and what became of them."""

    run_id: str
    lines: Any
    size: int | None
    outbox: Outbox
    following: Following | None
    key: dict[str, str] = field(default_factory=dict)
    quiet: bool = False
    read: int = 0
    entries: int = 0
    skipped: list[tuple[int, str]] = field(default_factory=list)
    skips: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)

    def take(self, line: Line) -> None:
        """One line of the transcript."""
        from writer.cli.commands import check
        from writer.cli.lines import BadLine, content, parse_object

        self.read += 1
        try:
            text = content(line)
            parse_object(text)
            command = self._entry(line.number, text)
            check(command)
        except BadLine as error:
            self._skip(line, str(error))
            return
        self.entries += 1
        self._follow(self.outbox.put(command))

    def send(self, number: int, kind: str, body: dict[str, Any]) -> None:
        """A command of ours around the entries."""
        import orjson

        self._put(self._command(number, kind, orjson.dumps({**body, **self._place(kind)})))

    def finish(self) -> None:
        """Send the rest, and wait for it."""
        self._follow(self.outbox.flush())
        if self.following is not None:
            self._count(self.following.drain())

    def _place(self, kind: str) -> dict[str, str]:
        return self.key if kind.startswith("session.") else {}

    def _entry(self, number: int, text: bytes) -> Command:
        import orjson

        named = orjson.dumps({"entry_id": f"line-{number}", **self.key})
        # The line goes as it stands: nothing of it is lost on the way.
        body = b'{"entry":%b,%b' % (text.strip(), named[1:])
        return self._command(number, "session.entry", body)

    def _command(self, number: int, kind: str, body: bytes) -> Command:
        from producers.contract.limits import CONTRACT_VERSION
        from writer.cli.commands import Command

        fields = {b"v": b"%d" % CONTRACT_VERSION, b"kind": kind.encode(), b"body": body}
        return Command(number, self.run_id, kind, fields)

    def _put(self, command: Command) -> None:
        from writer.cli.commands import check
        from writer.cli.lines import BadLine

        try:
            check(command)
        except BadLine as error:
            raise Usage(
                f"{command.kind}: {error}", hint="see --run, --title, --capture-key"
            ) from None
        self._follow(self.outbox.put(command))

    def _skip(self, line: Line, why: str) -> None:
        self.skips += 1
        if line.torn:
            why = f"{why} (torn: no line end)"
        if len(self.skipped) < REPORTED_MAX:
            self.skipped.append((line.number, why))
            if not self.quiet:
                output.note(f"line {line.number}: skipped: {why}")

    def _follow(self, batch: list[Command]) -> None:
        from writer.cli.outbox import FOLLOWED_MAX

        if batch and self.following is not None:
            self.following.add(batch)
            self._count(self.following.poll())
            self._count(self.following.drain(down_to=FOLLOWED_MAX))

    def _count(self, ended: Iterator[Ended]) -> None:
        for command, outcome in ended:
            how = outcome["outcome"]
            if how == "rejected":
                self.reasons[f"{command.kind}: {outcome['reason']}"] += 1
                self.counts["rejected"] += 1
            elif how in ("held", "pending"):
                self.counts["unsettled"] += 1
            elif command.kind == "session.entry":
                self.counts[how] += 1


@contextmanager
def _progress(size: int | None, quiet: bool) -> Iterator[Any]:
    """A bar on stderr for what takes long; yields what moves it on by so many bytes."""
    from rich.progress import Progress

    screen = output.console(stderr=True)
    if quiet or not screen.is_terminal:
        yield lambda _: None
        return
    started = monotonic()
    with Progress(console=screen, transient=True) as bar:
        task = bar.add_task("ingesting", total=size, visible=False)

        def advance(count: int) -> None:
            bar.update(task, advance=count, visible=monotonic() - started > QUIET_S)

        yield advance


def _conclude(ingesting: Ingesting, settings: WriterSettings, as_json: bool) -> int:
    counts = ingesting.counts
    summary: dict[str, Any] = {
        "run": ingesting.run_id,
        **ingesting.key,
        "lines": ingesting.read,
        "sent": ingesting.entries,
        "skipped": ingesting.skips,
    }
    if ingesting.following is not None:
        summary |= {"added": counts["applied"], "already_there": counts["duplicate"]}
        summary |= {"rejected": counts["rejected"], "unsettled": counts["unsettled"]}
    if as_json:
        summary["skipped_lines"] = [
            {"line": number, "why": why} for number, why in ingesting.skipped
        ]
        output.emit(summary)
    else:
        shown = {name: value for name, value in summary.items() if value or name in SHOWN}
        output.draw(output.facts((name.replace("_", " "), value) for name, value in shown.items()))
        output.note(
            f"see it: statewriter transcript {ingesting.run_id} --data {shown_path(settings.data)}"
        )
    if counts["unsettled"]:
        raise Unsettled(
            f"{output.counted(counts['unsettled'], 'command')} not settled",
            hint="nothing is lost; `statewriter status` says what is in the way",
        )
    if counts["rejected"]:
        told = ", ".join(f"{count:,} {reason}" for reason, count in ingesting.reasons.items())
        raise Refused(f"the writer refused {told}", hint="see `statewriter rejections`")
    return OK


SHOWN = frozenset(("run", "lines", "sent", "added", "already_there", "skipped"))
