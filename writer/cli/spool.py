"""`spool list` and `spool drain`: what producers left on disk while Redis was away."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from writer.cli import output
from writer.cli.exits import OK, Unsettled
from writer.cli.folder import settings_of
from writer.cli.options import AsJson, Data, Redis, Timeout, examples

if TYPE_CHECKING:
    from writer.settings import WriterSettings

Folder = Annotated[
    Path | None,
    typer.Option(
        "--spool",
        metavar="DIR",
        help="The spool. Else STATEWRITER_SPOOL, `spool` in the data folder.",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        no_args_is_help=True,
        help="Commands that producers put on disk while Redis was away.",
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    group.command("list", epilog=examples("statewriter spool list"))(list_)
    group.command("drain", epilog=examples("statewriter spool drain --timeout 60"))(drain)
    app.add_typer(group, name="spool")


def list_(
    spool: Folder = None, data: Data = None, redis: Redis = None, as_json: AsJson = False
) -> None:
    """Show what lies on disk, by producer. A dead one's goes out with the next producer."""
    from producers.spool import list_spool

    listed = list_spool(_folder(settings_of(data, redis), spool))
    if as_json:
        for each in listed:
            output.emit(each._asdict())
        return
    columns = ("producer", "destination", "process", "runs", "commands", "size", "torn")
    rows = [
        (
            each.producer,
            each.destination,
            "lives" if each.alive else "gone",
            each.runs,
            each.commands,
            output.size(each.bytes),
            output.size(each.torn_bytes),
        )
        for each in listed
    ]
    if rows:
        output.draw(output.table(columns, rows, right=("runs", "commands", "size", "torn")))
    else:
        output.note("nothing is spooled")


def drain(
    spool: Folder = None,
    timeout: Timeout = 30.0,
    data: Data = None,
    redis: Redis = None,
    as_json: AsJson = False,
) -> int:
    """Send what producers that live no more left on disk, in order, under their own numbers."""
    from producers import Producer, ProducerSettings
    from producers.spool import list_spool

    settings = settings_of(data, redis)
    folder = _folder(settings, spool)
    wanted = sum(each.commands for each in list_spool(folder) if not each.alive)
    # Whoever drains says where to: a server may have moved.
    how = ProducerSettings(
        redis=settings.redis,
        data=settings.data,
        prefix=settings.prefix,
        spool=folder,
        spool_adopts="all",
    )
    with Producer(settings=how) as told:
        told.start()
        _await_adoption(told, wanted, timeout)
        flushed = told.flush(timeout)
    left = wanted - flushed.accepted
    if as_json:
        output.emit({"sent": flushed.accepted, "left": left, "error": flushed.error})
    else:
        output.note(f"sent {output.counted(flushed.accepted, 'command')}")
    if left:
        raise Unsettled(
            f"{output.counted(left, 'command')} still on disk: {flushed.error or 'too slow'}",
            hint="start Redis and a daemon, then drain again; nothing is lost",
        )
    return OK


def _await_adoption(producer: object, wanted: int, timeout_s: float) -> None:
    from producers import Producer
    from writer.clock import monotonic, sleep

    assert isinstance(producer, Producer)
    deadline = monotonic() + timeout_s
    while monotonic() < deadline:
        status = producer.status()
        if status.accepted + status.waiting >= wanted:
            return
        sleep(0.01)


def _folder(settings: WriterSettings, spool: Path | None) -> Path:
    if spool is not None:
        return spool.absolute()
    from producers.settings import make_settings

    return make_settings(None, {"data": settings.data}).spool_folder
