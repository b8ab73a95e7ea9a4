"""`send`: commands as newline-delimited JSON, from a file or a pipe. The black-box entrance."""

from __future__ import annotations

import secrets
import sys
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from writer.cli import output
from writer.cli.exits import LINES_SKIPPED, OK, Refused, Unsettled
from writer.cli.folder import settings_of, shown_path
from writer.cli.options import AsJson, Data, Redis, Timeout, examples
from writer.health import read_health

if TYPE_CHECKING:
    from writer.cli.lines import Line
    from writer.cli.outbox import Ended, Following, Outbox
    from writer.settings import WriterSettings


def register(app: typer.Typer) -> None:
    """Add the command."""
    create = '{"run": "r1", "kind": "run.create", "body": {"state": {"n": 1}}}'
    app.command(
        "send",
        epilog=examples(
            f"echo '{create}' | statewriter send --wait",
            "statewriter send commands.ndjson --wait --strict",
            "tail -f commands.ndjson | statewriter send -",
        ),
    )(send)


def send(  # noqa: PLR0913 - each is an option
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The commands; - for stdin.")] = Path(
        "-"
    ),
    wait: Annotated[
        bool,
        typer.Option(
            "--wait", help="Wait until all is settled and tell how, with a daemon if none runs."
        ),
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="With --wait: code 4 if any was rejected.")
    ] = False,
    timeout: Timeout = 60.0,
    check: Annotated[
        bool, typer.Option("--check", help="Skip what the contract refuses, instead of sending it.")
    ] = False,
    data: Data = None,
    redis: Redis = None,
    as_json: AsJson = False,
) -> int:
    """Send commands: {"run": ..., "kind": ..., "body": {...}}, one a line.

    Optional: "auth" {"owner_type", "owner_id", "token", "generation"}, "producer",
    "seq", "reply", "trace". Or {"run": ..., "fields": {...}}: the raw stream
    fields. Nothing but the line's form is judged here: the writer says the rest.
    Lines of a run keep their order. With --json: an object a command, then
    {"summary": {...}}.
    """
    settings = settings_of(data, redis, log_format="json" if as_json else None)
    with ExitStack() as stack:
        sending = _begin(stack, settings, file, wait, timeout, as_json)
        for line in sending.lines:
            sending.take(line, check)
        sending.finish()
    return sending.conclude(strict, settings)


def _begin(
    stack: ExitStack,
    settings: WriterSettings,
    file: Path,
    wait: bool,
    timeout: float,
    as_json: bool,
) -> Sending:
    """Everything that has to run, opened in the order in which it depends on each other."""
    from producers.contract.keys import Keys
    from writer.cli.lines import read_lines, source
    from writer.cli.outbox import Following, Outbox
    from writer.cli.running import partitions_of, server, writing
    from writer.store.reader import StateReader
    from writer.streams.link import connect

    descriptor, _ = stack.enter_context(source(file))
    url = stack.enter_context(server(settings))
    client = stack.enter_context(connect(url))
    keys = Keys(settings.prefix)
    partitions = partitions_of(settings, client)
    check = stack.enter_context(writing(settings, url)) if wait else None
    reader = stack.enter_context(StateReader(settings.data))
    producer = f"send-{secrets.token_hex(8)}"
    following = None
    if check is not None:
        following = Following(client, keys, partitions, reader, check, timeout)
    return Sending(
        lines=read_lines(descriptor),
        outbox=Outbox(client, keys, partitions, producer, reader),
        following=following,
        as_json=as_json,
    )


@dataclass(slots=True)
class Sending:
    """One invocation: lines in, commands out, and what became of them."""

    lines: Any
    outbox: Outbox
    following: Following | None
    as_json: bool
    read: int = 0
    skipped: int = 0
    runs: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)

    def take(self, line: Line | None, check: bool) -> None:
        """One line, or a moment without one: then what is waiting goes out."""
        if line is None:
            self._sent(self.outbox.flush())
            if self.following is not None:
                self._report(self.following.poll())
                sys.stdout.flush()
            return
        from writer.cli import commands
        from writer.cli.lines import BadLine, content

        self.read += 1
        try:
            command = commands.parse_command(line.number, content(line))
            if check:
                commands.check(command)
        except BadLine as error:
            self.skip(line, str(error))
            return
        self._sent(self.outbox.put(command))

    def skip(self, line: Line, why: str) -> None:
        """Say that a line is passed over, and why."""
        self.skipped += 1
        why = f"{why} (torn: no line end)" if line.torn else why
        if self.as_json:
            output.emit({"line": line.number, "skipped": why})
        else:
            output.note(f"line {line.number}: skipped: {why}")

    def finish(self) -> None:
        """Send the rest, and wait for it."""
        self._sent(self.outbox.flush())
        if self.following is not None:
            self._report(self.following.drain())

    def _sent(self, batch: list[Any]) -> None:
        from writer.cli.outbox import FOLLOWED_MAX

        if not batch:
            return
        self.runs.update(command.run for command in batch)
        if self.following is None:
            for command in batch:
                self._print(command, None)
            return
        self.following.add(batch)
        self._report(self.following.poll())
        self._report(self.following.drain(down_to=FOLLOWED_MAX))

    def _report(self, ended: Any) -> None:
        each: Ended
        for each in ended:
            self.counts[each.outcome["outcome"]] += 1
            self._print(each.command, each.outcome)

    def _print(self, command: Any, outcome: dict[str, Any] | None) -> None:
        if self.as_json:
            sent = {
                "line": command.line,
                "run": command.run,
                "kind": command.kind,
                "producer": command.producer,
                "seq": command.seq,
                "message_id": command.message_id,
            }
            output.emit({**sent, **(outcome or {})})
        else:
            output.write(_line(command, outcome))

    def conclude(self, strict: bool, settings: WriterSettings) -> int:
        """The summary, and the exit code. Raises Unsettled and Refused."""
        counts = self.counts
        unsettled = counts["pending"] + counts["held"]
        summary: dict[str, Any] = {
            "lines": self.read,
            "skipped": self.skipped,
            "commands": self.outbox.sent,
            "runs": len(self.runs),
            "producer": self.outbox.producer,
        }
        if self.following is not None:
            summary |= {name: counts[name] for name in ("applied", "rejected")}
            summary |= {"duplicates": counts["duplicate"], "unsettled": unsettled}
        if self.as_json:
            output.emit({"summary": summary})
        else:
            output.write(_summary(summary))
            if self.following is None and read_health(settings.data) is None:
                output.note(
                    "no daemon is running: it applies when one runs: "
                    f"statewriter daemon --data {shown_path(settings.data)}"
                )
        if unsettled:
            raise Unsettled(
                f"{output.counted(unsettled, 'command')} not settled"
                + (f", {counts['held']:,} of them in quarantined runs" if counts["held"] else ""),
                hint="nothing is lost; `statewriter status` says what is in the way",
            )
        if strict and counts["rejected"]:
            raise Refused(
                f"{output.counted(counts['rejected'], 'command')} rejected",
                hint="`statewriter rejections` keeps them, with what they carried",
            )
        return LINES_SKIPPED if self.skipped else OK


def _line(command: Any, outcome: dict[str, Any] | None) -> str:
    name = (
        f"{output.printable(command.run)}  {output.printable(command.kind or '-')}  "
        f"{output.printable(command.producer or '-')} {command.seq or '-'}  {command.message_id}"
    )
    if outcome is None:
        return f"sent  {name}"
    how = outcome["outcome"]
    if how == "applied":
        segment = outcome.get("segment")
        place = f" of segment {segment}" if segment else ""
        revision = outcome["revision"]
        return f"applied    {name}  " + (f"revision {revision}{place}" if revision else "")
    if how == "rejected":
        detail = f" ({output.printable(outcome['detail'])})" if outcome["detail"] else ""
        return f"rejected   {name}  {outcome['reason']}{detail}"
    return f"{how:<9}  {name}"


def _summary(summary: dict[str, Any]) -> str:
    told = (
        f"sent {output.counted(summary['commands'], 'command')} to "
        f"{output.counted(summary['runs'], 'run')}"
    )
    if "applied" in summary:
        told += (
            f": {summary['applied']:,} applied, {summary['rejected']:,} rejected, "
            f"{summary['duplicates']:,} duplicates"
        )
        if summary["unsettled"]:
            told += f", {summary['unsettled']:,} not settled"
    if summary["skipped"]:
        told += f"; {output.counted(summary['skipped'], 'line')} skipped"
    return told
