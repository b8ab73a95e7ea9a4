"""`lease break`: an operator frees a run, whatever clocks say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from writer.cli.folder import check_folder, no_run, settings_of
from writer.cli.operators import WAIT_S, Place, act_at, tell_act
from writer.cli.options import AsJson, Data, Redis, RunId, Timeout, examples

if TYPE_CHECKING:
    from writer.store.reader.files import Files


def register(app: typer.Typer) -> None:
    """Add the command."""
    group = typer.Typer(
        no_args_is_help=True,
        help="Write authority over runs.",
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    group.command("break", epilog=examples("statewriter lease break RUN"))(break_)
    # A group with one command only would be that command.
    group.callback()(_nothing)
    app.add_typer(group, name="lease")


def _nothing() -> None:
    return


def break_(
    run: RunId,
    timeout: Timeout = WAIT_S,
    data: Data = None,
    redis: Redis = None,
    as_json: AsJson = False,
) -> None:
    """Free a run whose lease is held, before it expires.

    For a host that will not come back, or a clock that leapt. Another host may claim
    the run at once; from its claim on, nothing of the old holder applies.
    """
    settings = settings_of(data, redis)
    check_folder(settings)

    def find(files: Files) -> Place:
        from writer.store.audit import cursor_of

        found = cursor_of(files, run)
        if found is None:
            raise no_run(settings, run)
        return Place(found["partition"], run, found["incarnation"], found["message_id"])

    told = act_at(settings, "break", find, timeout, follow=True)
    tell_act(told, f"run {run} is free: nobody holds its lease", as_json)
