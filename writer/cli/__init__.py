"""The command line. Commands import what they need when they run, so that `--help` is fast."""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated, Any

import typer

from writer.cli import (
    acts,
    archive,
    backup,
    daemon,
    demo,
    digest,
    export,
    ingest,
    lease,
    prune,
    quarantine,
    rejections,
    runs,
    schema,
    send,
    spool,
    status,
    trace,
    transcripts,
)
from writer.cli.exits import INTERRUPTED, PIPE_CLOSED, ExtraMissing
from writer.errors import WriterError

OF_THE_EXTRA = frozenset(
    ("apsw", "prometheus_client", "rfc8785", "rq", "starlette", "structlog", "uvicorn", "zstandard")
)

app = typer.Typer(
    name="statewriter",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
    epilog="Start with [bold]statewriter demo[/bold]. Exit codes: docs/cli.md.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            found = version("statewriter")
        except PackageNotFoundError:
            found = "(a source tree that is not installed)"
        sys.stdout.write(f"statewriter {found}\n")
        raise typer.Exit


@app.callback()
def statewriter(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and end."
        ),
    ] = False,
) -> None:
    """Agent hosts push commands to Redis; one writer per partition applies them to SQLite."""


for _module in (
    demo,
    daemon,
    send,
    ingest,
    transcripts,
    runs,
    trace,
    export,
    acts,
    prune,
    rejections,
    quarantine,
    lease,
    status,
    digest,
    archive,
    backup,
    spool,
    schema,
):
    _module.register(app)


def main() -> None:
    """The console script. Ends with the codes of `writer.cli.exits`."""
    code = run(sys.argv[1:])
    # Python gives up its handlers as it ends: a signal that came then would be the exit code.
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """One command; returns its exit code. What is expected to go wrong is told in a line or two."""
    try:
        code = _invoke(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Python flushes stdout once more at its end, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    return code


def _invoke(arguments: list[str]) -> int:
    as_json = "--json" in arguments
    try:
        returned: Any = app(arguments, prog_name="statewriter", standalone_mode=False)
    except WriterError as error:
        return _tell(error, as_json)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in OF_THE_EXTRA:
            raise
        return _tell(
            ExtraMissing(
                f"this command needs the extra: pip install 'statewriter[daemon]' ({missing} is "
                "missing)"
            ),
            as_json,
        )
    except typer.Abort:
        return INTERRUPTED
    except Exception as error:
        # Usage errors: their class moved between versions of typer, their methods did not.
        tell = getattr(error, "format_message", None)
        if tell is None:
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            getattr(error, "show")()  # noqa: B009
            return 2
        return _tell_usage(error, str(tell()), as_json)
    return returned if isinstance(returned, int) else 0


def _tell(error: WriterError, as_json: bool) -> int:
    _print_error(str(error), error.hint, type(error).__name__, error.exit_code, as_json)
    return error.exit_code


def _tell_usage(error: Any, message: str, as_json: bool) -> int:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "statewriter"
    _print_error(message, f"see {command} --help", "Usage", 2, as_json)
    return 2


def _print_error(message: str, hint: str, name: str, code: int, as_json: bool) -> None:
    try:
        sys.stdout.flush()
        if as_json:
            import orjson

            told = {"error": message, "hint": hint, "name": name, "exit_code": code}
            sys.stderr.write(f"{orjson.dumps(told).decode()}\n")
            return
        sys.stderr.write(f"error: {message}\n")
        if hint:
            sys.stderr.write(f"hint: {hint}\n")
    finally:
        sys.stderr.flush()
