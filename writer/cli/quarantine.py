"""`quarantine`: runs that wait at a message which the writer could not settle."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import typer

from writer.cli import output
from writer.cli.exits import NotFound
from writer.cli.folder import check_folder, settings_of
from writer.cli.operators import WAIT_S, Place, act_at, tell_act
from writer.cli.options import AsJson, Data, Redis, RunId, Timeout, examples
from writer.cli.running import find_url
from writer.errors import RedisUnavailable

if TYPE_CHECKING:
    from writer.settings import WriterSettings
    from writer.store.reader.files import Files

COLUMNS = ("run", "message", "since", "cause", "detail")
CURES = {
    "version_newer": "it goes on by itself once a statewriter runs that knows this version; or "
    "`statewriter quarantine skip` refuses the message",
    "unexpected": "after an upgrade that cures it, `statewriter quarantine resume`; or `skip` "
    "refuses the message, which is kept among the rejections",
}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        no_args_is_help=True,
        help="Runs that wait at a message which could not be settled. Nothing of them is lost.",
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    group.command(
        "list",
        epilog=examples(
            "statewriter quarantine list", "statewriter quarantine list --json | jq -r .run_id"
        ),
    )(listed)
    group.command("show", epilog=examples("statewriter quarantine show RUN"))(show)
    group.command(
        "resume",
        epilog=examples(
            "statewriter quarantine resume RUN",
            "statewriter quarantine list --json | jq -r .run_id | xargs -n1 statewriter "
            "quarantine resume",
        ),
    )(resume)
    group.command("skip", epilog=examples("statewriter quarantine skip RUN"))(skip)
    app.add_typer(group, name="quarantine")


def listed(data: Data = None, redis: Redis = None, as_json: AsJson = False) -> None:
    """List the runs that wait, the longest first.

    With --json: an object per line.
    """
    found = _found(settings_of(data, redis))
    if as_json:
        for row in found:
            output.emit(row)
        return
    if not found:
        output.note("no run is quarantined")
        return
    rows = [
        (row["run_id"], row["message_id"], output.age(row["since"]), row["cause"], row["detail"])
        for row in found
    ]
    output.draw(output.table(COLUMNS, rows))


def show(run: RunId, data: Data = None, redis: Redis = None, as_json: AsJson = False) -> None:
    """Show why a run waits, and the message that it waits at, if Redis can be reached."""
    settings = settings_of(data, redis)
    found = _found(settings, run)
    if not found:
        raise _not_quarantined(run)
    shown = {**found[0], "fields": None, "redis": ""}
    try:
        shown["fields"] = _message(settings, found[0])
    except RedisUnavailable as error:
        shown["redis"] = str(error)
    if as_json:
        output.emit(shown)
        return
    output.draw(
        output.facts(
            [
                ("run", run),
                ("at message", f"{shown['message_id']}, incarnation {shown['incarnation']}"),
                ("since", output.moment(shown["since"])),
                ("cause", f"{shown['cause']}: {shown['detail']}"),
                ("cure", CURES.get(shown["cause"])),
            ]
        )
    )
    if shown["fields"] is None:
        output.note(f"the message could not be read: {shown['redis'] or 'it is not in Redis'}")
    else:
        output.write("")
        output.draw(output.document(shown["fields"]))


def resume(
    run: RunId,
    timeout: Timeout = WAIT_S,
    data: Data = None,
    redis: Redis = None,
    as_json: AsJson = False,
) -> None:
    """Let a run go on: its message is tried again, and all behind it."""
    told = _free(settings_of(data, redis), "resume", run, timeout)
    tell_act(told, f"run {run} goes on at message {told['message_id']}", as_json)


def skip(
    run: RunId,
    timeout: Timeout = WAIT_S,
    data: Data = None,
    redis: Redis = None,
    as_json: AsJson = False,
) -> None:
    """Refuse the message that a run waits at, and go on behind it.

    The message is kept as a rejection with the reason `skipped`, and can be redriven.
    """
    told = _free(settings_of(data, redis), "skip", run, timeout)
    tell_act(
        told, f"message {told['message_id']} of run {run} is refused as skipped, and it goes on",
        as_json,
    )  # fmt: skip


def _free(settings: WriterSettings, act: str, run: str, timeout: float) -> dict[str, Any]:
    check_folder(settings)

    def find(files: Files) -> Place:
        from writer.store.audit import quarantined

        for row in quarantined(files, run):
            return Place(row["partition"], run, row["incarnation"], row["message_id"])
        raise _not_quarantined(run)

    return act_at(settings, act, find, timeout)


def _found(settings: WriterSettings, run: str | None = None) -> list[dict[str, Any]]:
    from writer.store.audit import quarantined
    from writer.store.reader.files import Files

    check_folder(settings)
    with closing(Files(settings.data)) as files:
        return quarantined(files, run)


def _message(settings: WriterSettings, row: dict[str, Any]) -> dict[str, Any] | None:
    from producers.contract.keys import Keys
    from writer.streams.backlog import waiting_message
    from writer.streams.link import connect

    url = find_url(settings)
    if url is None:
        raise RedisUnavailable("the data folder's Redis server does not run")
    with connect(url) as client:
        keys = Keys(settings.prefix)
        return waiting_message(client, keys, row["partition"], row["run_id"], row["message_id"])


def _not_quarantined(run: str) -> NotFound:
    return NotFound(
        f"run {run} is not quarantined", hint="`statewriter quarantine list` shows those that are"
    )
