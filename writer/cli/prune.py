"""`prune`: runs that are kept longer than they are to be, and runs that were abandoned."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from writer.cli import output
from writer.cli.exits import Unsettled
from writer.cli.folder import check_folder, reading, settings_of
from writer.cli.options import AsJson, Data, Limit, Redis, examples
from writer.cli.running import partitions_of, server, writing
from writer.clock import now_ms
from writer.errors import Usage

if TYPE_CHECKING:
    from writer.pruning import Pruned
    from writer.settings import WriterSettings

COLUMNS = ("run", "what", "status", "workflow", "last", "retention")
DURATIONS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

Record = dict[str, Any]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "prune",
        epilog=examples(
            "statewriter prune --dry-run",
            "statewriter prune --keep 30d --yes",
            "statewriter prune --abandoned 2d --keep 30d --yes --json",
        ),
    )(prune)


def prune(  # noqa: PLR0913 - each is an option
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list what would be done.")
    ] = False,
    keep: Annotated[
        str | None,
        typer.Option(
            "--keep",
            metavar="TIME",
            help="How long finished runs stay that name no time: 90s, 30m, 12h, 30d. Else the "
            "setting retention_seconds; without either they stay.",
            show_default=False,
        ),
    ] = None,
    abandoned: Annotated[
        str | None,
        typer.Option(
            "--abandoned",
            metavar="TIME",
            help="Interrupt runs under way of which nothing was heard for so long.",
            show_default=False,
        ),
    ] = None,
    limit: Limit = 1_000,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    data: Data = None,
    redis: Redis = None,
    as_json: AsJson = False,
) -> None:
    """Delete finished runs whose retention is over, the earliest first.

    A run stays while a run below it is under way, its lease is held, an effect of it
    is pending, or it is quarantined. Ids of deleted runs are never used again.
    """
    settings = settings_of(data, redis)
    check_folder(settings)
    default_s = settings.retention_seconds if keep is None else seconds_of("--keep", keep)
    silent_s = None if abandoned is None else seconds_of("--abandoned", abandoned)
    kept: list[Record] = []
    now = now_ms()
    with reading(settings) as reader:
        due = reader.prune_candidates(now, default_seconds=default_s, limit=limit, kept=kept)
        silent = []
        if silent_s is not None:
            silent = reader.silent_runs(now, silent_s * 1000, limit=limit)
    if dry_run:
        _show(due, silent, kept, as_json)
        return
    if not yes and (due or silent):
        _confirm(len(due), len(silent))
    _tell(_carry_out(settings, due, silent), kept, as_json)


def seconds_of(option: str, text: str) -> int:
    """Seconds of `90s`, `30m`, `12h`, `30d`. Raises Usage."""
    number, unit = text[:-1], text[-1:]
    if not number.isdecimal() or unit not in DURATIONS or len(number) > 9 or int(number) < 1:
        raise Usage(f"{option} {text}: no time", hint="for example 90s, 30m, 12h, 30d")
    return int(number) * DURATIONS[unit]


def _confirm(due: int, silent: int) -> None:
    if not sys.stdin.isatty():
        raise Usage("prune asks first, and there is nobody to ask", hint="--dry-run, or --yes")
    both = [f"delete {output.counted(due, 'run')} for ever"] if due else []
    both += [f"interrupt {output.counted(silent, 'run')}"] if silent else []
    typer.confirm(f"{' and '.join(both).capitalize()}?", abort=True, err=True)


def _carry_out(settings: WriterSettings, due: list[Record], silent: list[Record]) -> Pruned:
    from producers.contract.keys import Keys
    from writer.pruning import Pruned, Pruner, Unanswered
    from writer.streams.link import connect
    from writer.streams.publish import Publisher

    if not due and not silent:
        return Pruned([], [], {})
    with server(settings) as url, connect(url) as client, writing(settings, url) as check:
        publisher = Publisher(client, Keys(settings.prefix), partitions_of(settings, client))
        with reading(settings) as reader:
            try:
                return Pruner(reader, publisher, check).prune(due, silent)
            except Unanswered as error:
                raise Unsettled(
                    str(error), hint="nothing is lost; `statewriter status` says how the daemon is"
                ) from error


def _show(due: list[Record], silent: list[Record], kept: list[Record], as_json: bool) -> None:
    if as_json:
        output.emit({"delete": due, "interrupt": silent, "kept": kept})
        return
    rows = [
        *((run, "delete", run["finished_at"]) for run in due),
        *((run, "interrupt", run["heard_at"]) for run in silent),
        *((run, f"kept: {run['kept_by']}", run["finished_at"]) for run in kept),
    ]
    if not rows:
        output.note("nothing is due")
        return
    shown = [
        (
            run["run_id"],
            what,
            run["status"],
            run["workflow"],
            output.age(last),
            _duration(run.get("retention_seconds")),
        )
        for run, what, last in rows
    ]
    output.draw(output.table(COLUMNS, shown))


def _duration(seconds: int | None) -> str | None:
    return None if seconds is None else output.duration(seconds)


def _tell(pruned: Pruned, kept: list[Record], as_json: bool) -> None:
    if as_json:
        output.emit({**pruned._asdict(), "kept": kept})
        return
    said = [f"{output.counted(len(pruned.deleted), 'run')} deleted"]
    if pruned.interrupted:
        said.append(f"{len(pruned.interrupted):,} interrupted")
    causes = Counter(run["kept_by"] for run in kept) + Counter(pruned.left.values())
    if causes:
        told = ", ".join(f"{cause} {count:,}" for cause, count in sorted(causes.items()))
        said.append(f"{causes.total():,} kept ({told})")
    output.write("; ".join(said))
