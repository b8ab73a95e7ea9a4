"""`demo`: the whole system at work for a few seconds, and what to look at afterwards."""

from __future__ import annotations

import secrets
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from writer.cli import output
from writer.cli.exits import DemoFailed
from writer.cli.folder import settings_of, shown_path
from writer.cli.options import AsJson, Redis, examples
from writer.clock import monotonic
from writer.errors import Usage

if TYPE_CHECKING:
    from rich.console import RenderableType

    from writer.demo.demo import Progress, Result
    from writer.settings import WriterSettings

PARTITIONS = 2
PLAIN_S = 1.0
"""Between lines of progress where nobody watches."""
WRONG_MAX = 20


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "demo",
        epilog=examples(
            "statewriter demo",
            "statewriter demo --agents 32 --steps 40 --data demo-data",
            "statewriter demo --json | jq .digest",
        ),
    )(demo)


def demo(
    agents: Annotated[
        int, typer.Option("--agents", metavar="N", min=1, max=256, help="Simulated agents.")
    ] = 8,
    steps: Annotated[
        int, typer.Option("--steps", metavar="N", min=1, max=500, help="Steps of each run.")
    ] = 12,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, help="The same one says the same.")
    ] = 1,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            help="A folder without data; else a new temporary one.",
            show_default=False,
        ),
    ] = None,
    redis: Redis = None,
    as_json: AsJson = False,
) -> None:
    """See it work: a server, a daemon, agents in several processes, and proof.

    Ends with 0 only if applied + rejected + duplicates = commands, and every run
    reads back as its agent said it. On purpose each run sends one command twice
    (a duplicate) and one too late (a rejection). Takes a few seconds.
    With --json: one object.
    """
    folder = _fresh(data)
    settings = settings_of(folder, redis, partitions=PARTITIONS)
    if settings.redis is not None:
        # Beside whatever else that server holds.
        settings = settings.model_copy(update={"prefix": f"demo-{secrets.token_hex(4)}"})
    result = _run(settings, agents, steps, seed, as_json)
    if as_json:
        output.emit(
            {
                **asdict(result),
                "seconds": round(result.seconds, 3),
                "commands_per_second": round(result.commands_per_second, 1),
                "agents": agents,
                "steps": steps,
                "seed": seed,
                "data": str(settings.data),
            }
        )
    else:
        _tell(result, agents)
        if not result.wrong:
            _what_next(settings.data, seed)
    if result.wrong:
        raise DemoFailed("; ".join(result.wrong[:WRONG_MAX]), hint=f"look into {settings.data}")


def _fresh(data: Path | None) -> Path:
    if data is None:
        return Path(tempfile.mkdtemp(prefix="statewriter-demo-"))
    if any(data.glob("p*.sqlite")) or (data / "redis").exists():
        raise Usage(
            f"{data} holds data already, and a demo needs a folder without",
            hint="name another folder, or none for a new temporary one",
        )
    data.mkdir(parents=True, exist_ok=True)
    return data


def _run(settings: WriterSettings, agents: int, steps: int, seed: int, as_json: bool) -> Result:
    from writer.cli.log import make_log
    from writer.cli.running import partitions_of, start_embedded
    from writer.demo.demo import demonstrate
    from writer.demo.fleet import Plan
    from writer.streams.link import connect

    with ExitStack() as stack:
        log_file = stack.enter_context((settings.data / "daemon.log").open("a"))
        if settings.redis is None:
            server = stack.enter_context(start_embedded(settings))
            url, label = server.url, server.endpoint.label
        else:
            url, label = settings.redis, "as given"
            # Here and now: a daemon would wait for a server that is away.
            with connect(url) as client:
                partitions_of(settings, client)
        if not as_json:
            output.note(f"data   {settings.data}")
            output.note(f"redis  {label}")
        show = stack.enter_context(_display(as_json))
        plan = Plan(url, settings.prefix, agents, steps, seed)
        return demonstrate(settings, plan, make_log(log_file, "info", "json"), show)


@contextmanager
def _display(quiet: bool) -> Iterator[Callable[[Progress], None]]:
    """What shows the progress: a live table on a terminal, else a line a second on stderr."""
    screen = output.console(stderr=True)
    if quiet:
        yield lambda _: None
    elif screen.is_terminal:
        from rich.live import Live

        with Live(console=screen, auto_refresh=False, transient=True) as live:
            yield lambda progress: live.update(_drawn(progress), refresh=True)
    else:
        yield _plain()


def _plain() -> Callable[[Progress], None]:
    said_at = monotonic()

    def show(progress: Progress) -> None:
        nonlocal said_at
        if monotonic() - said_at >= PLAIN_S:
            said_at = monotonic()
            output.note(_line(progress))

    return show


def _line(progress: Progress) -> str:
    return f"{progress.doing}: {sum(progress.said):,} commands said, {progress.settled:,} settled"


def _drawn(progress: Progress) -> RenderableType:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    for number, said in enumerate(progress.said[:16]):
        bar = ProgressBar(total=progress.expected, completed=said, width=30)
        grid.add_row(f"agent {number}", bar, f"{said:,}")
    if len(progress.said) > 16:
        grid.add_row(f"and {len(progress.said) - 16} more", "", "")
    total = progress.expected * len(progress.said)
    grid.add_row(
        Text("settled", style="bold"),
        ProgressBar(total=total, completed=progress.settled, width=30, complete_style="green"),
        f"{progress.settled:,} of {total:,}",
    )
    rate = progress.settled / progress.seconds if progress.seconds else 0
    return Group(grid, Text(f"{progress.doing} · {rate:,.0f} commands/s", style="dim"))


def _tell(result: Result, agents: int) -> None:
    sizes = ", ".join(f"{name} {output.size(count)}" for name, count in result.bytes.items())
    rate = result.commands_per_second
    latency = f"p50 {result.latency_p50_ms} ms, p99 {result.latency_p99_ms} ms"
    rows: list[tuple[str, Any]] = [
        ("commands", f"{result.commands:,} from {agents} agents, to {result.runs} runs"),
        ("applied", result.applied),
        ("rejected", f"{result.rejected:,}, sent too late on purpose: one a run"),
        ("duplicates", f"{result.duplicates:,}, sent twice on purpose: one a run"),
        ("time", f"{result.seconds:.1f} s, {rate:,.0f} commands/s: the agents pause to think"),
        ("latency", f"{latency}, from accepted by Redis to seen by a reader"),
        ("files", sizes),
        ("digest", result.digest),
        ("proof", "every run, at every revision, reads back as its agent said it")
        if not result.wrong
        else ("WRONG", f"{len(result.wrong)} differences"),
    ]
    output.draw(output.facts(rows))


def _what_next(data: Path, seed: int) -> None:
    program, folder = _program(), shlex.quote(shown_path(data))
    run = f"demo-{seed}-a00-plan"
    output.write("\nWhat to try next:")
    steps = (
        ("runs", "what there is"),
        (f"show {run}", "one run: state, attempts, sessions"),
        (f"trace {run}", "what happened to it, revision by revision"),
        (f"transcript {run}", "what was said"),
        ("rejections", "what was refused, and why"),
        ("digest --runs", "the hash that equal histories share"),
        ("daemon", "go on from here; `status` in another terminal"),
    )
    width = max(len(command) for command, _ in steps) + len(folder)
    for command, why in steps:
        shown = f"{command} --data {folder}"
        output.write(f"  {program} {shown:<{width + 8}}  # {why}")


def _program() -> str:
    """How this program is called from here."""
    called = Path(sys.argv[0])
    if called.name != "statewriter":
        return "statewriter"
    on_path = shutil.which("statewriter")
    if on_path is not None and Path(on_path).resolve() == called.resolve():
        return "statewriter"
    return shown_path(called.absolute())
