"""`runs` and `show`: what there is, and one run with what stands around it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from writer.cli import output
from writer.cli.exits import NotFound
from writer.cli.folder import no_run, reading, settings_of
from writer.cli.options import AsJson, Data, Limit, Redis, RunId, examples
from writer.clock import sleep
from writer.errors import Usage

if TYPE_CHECKING:
    from rich.console import Group

    from writer.settings import WriterSettings
    from writer.store.reader import RunPage, StateReader

COLUMNS = (
    "run", "status", "workflow", "title", "revision", "entries", "attempts", "created", "updated"
)  # fmt: skip
NARROW = ("run", "status", "title", "revision", "updated")
WATCH_S = 1.0
SIDE_ROWS = 10
"""How many segments, effects and producers `show` lists of each."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        "runs",
        epilog=examples(
            "statewriter runs",
            "statewriter runs --status running --watch",
            "statewriter runs --json --limit 1000 | jq -r '.runs[].run_id'",
        ),
    )(runs)
    app.command(
        "show",
        epilog=examples(
            "statewriter show RUN",
            "statewriter show RUN --revision 7",
            "statewriter show RUN --json | jq .state",
        ),
    )(show)


def runs(  # noqa: PLR0913 - each is an option
    status: Annotated[
        str | None,
        typer.Option("--status", metavar="STATUS", help="Only runs in it.", show_default=False),
    ] = None,
    workflow: Annotated[
        str | None,
        typer.Option("--workflow", metavar="NAME", help="Only its runs.", show_default=False),
    ] = None,
    limit: Limit = 50,
    after: Annotated[
        str | None,
        typer.Option(
            "--after", metavar="TOKEN", help="Go on after an earlier page.", show_default=False
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep the list on the screen and up to date.")
    ] = False,
    data: Data = None,
    redis: Redis = None,
    as_json: AsJson = False,
) -> None:
    """List runs, the newest first.

    With --json: one object, {"runs": [...], "next": TOKEN or null}.
    """
    settings = settings_of(data, redis)
    if watch and as_json:
        raise Usage(
            "--watch draws a table, which is no JSON", hint="use `statewriter trace RUN --follow`"
        )
    with reading(settings) as reader:

        def page() -> RunPage:
            return reader.list_runs(status=status, workflow=workflow, after=after, limit=limit)

        if watch:
            with _until_interrupted():
                _watch(reader, page)
            return
        found = page()
    if as_json:
        output.emit({"runs": found.runs, "next": found.next})
        return
    if not found.runs:
        output.note(f"no runs in {settings.data}")
        return
    output.draw(_table(found.runs))
    if found.next is not None:
        output.note(f"more with --after {found.next}")


def _table(rows: list[dict[str, Any]]) -> Any:
    shown = (
        {
            **row,
            "run": row["run_id"],
            "created": output.clock(row["created_at"]),
            "updated": output.age(row["updated_at"]),
        }
        for row in rows
    )
    return output.table(
        COLUMNS,
        ([row[column] for column in COLUMNS] for row in shown),
        right=("revision", "entries", "attempts"),
        narrow=NARROW,
    )


def _watch(reader: StateReader, page: Any) -> None:
    from rich.live import Live

    with Live(console=output.console(), auto_refresh=False, screen=False) as live:
        while True:
            live.update(_watched(reader, page().runs), refresh=True)
            sleep(WATCH_S)


def _watched(reader: StateReader, rows: list[dict[str, Any]]) -> Group:
    from rich.console import Group
    from rich.text import Text

    totals = reader.status()["totals"]
    by_status = ", ".join(f"{count:,} {status}" for status, count in totals["runs"].items())
    settled = totals["applied"] + totals["duplicates"] + totals["rejected"]
    head = (
        f"{by_status or 'no runs'} · {settled:,} messages settled, {totals['rejected']:,} refused"
    )
    return Group(Text(head, style="bold"), _table(rows), Text("Ctrl-C ends it", style="dim"))


@contextmanager
def _until_interrupted() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        return


def show(
    run: RunId,
    revision: Annotated[
        int | None,
        typer.Option(
            "--revision", metavar="N", min=1, help="Its state as of then.", show_default=False
        ),
    ] = None,
    data: Data = None,
    redis: Redis = None,
    as_json: AsJson = False,
) -> None:
    """Show one run: head, lease, cursor, gaps, sessions, effects, quarantine and state.

    With --revision: only the state as of that revision. With --json: one object.
    """
    settings = settings_of(data, redis)
    with reading(settings) as reader:
        found = reader.run(run)
        if found is None:
            raise no_run(settings, run)
        if revision is not None:
            _show_revision(reader, settings, found, revision, as_json)
            return
        state = reader.state(run)
        attempts = reader.attempts(run)
        updates = reader.updates(run)
    if as_json:
        output.emit({**found, "attempts": attempts, "updates": updates, "state": state})
        return
    output.draw(_head(found))
    for title, shown in _sections(found, attempts, updates):
        _headline(title)
        output.draw(shown)
    if found["status"] is not None:
        _headline(f"state at revision {found['revision']}")
        output.draw(output.document(state))


def _show_revision(
    reader: StateReader,
    settings: WriterSettings,
    found: dict[str, Any],
    revision: int,
    as_json: bool,
) -> None:
    run_id = found["run_id"]
    last = found.get("revision")
    if found["status"] is None:
        raise NotFound(f"run {run_id} has no state", hint=f"see `statewriter show {run_id}`")
    state = reader.state(run_id, revision)
    if state is None:
        raise NotFound(
            f"run {run_id} has no revision {revision}", hint=f"its revisions are 1 to {last}"
        )
    if as_json:
        output.emit({"run_id": run_id, "revision": revision, "state": state})
    else:
        output.draw(output.document(state))


def _headline(title: str) -> None:
    from rich.text import Text

    output.draw(Text(f"\n{title}", style="bold underline"))


def _head(run: dict[str, Any]) -> Any:
    cursor = run["cursor"]
    settled = cursor["applied"] + cursor["duplicates"] + cursor["rejected"]
    ends = ", ".join(f"{cursor[name]:,} {name}" for name in ("applied", "duplicates", "rejected"))
    deleted = run.get("deleted")
    status = run["status"] or ("deleted" if deleted else "never created")
    return output.facts(
        [
            ("run", run["run_id"]),
            ("status", status),
            ("detail", run.get("status_detail")),
            ("error", run.get("error")),
            ("title", run.get("title")),
            ("workflow", run.get("workflow")),
            ("dialect", run.get("dialect")),
            ("tags", output.compact(run["tags"]) if run.get("tags") else None),
            ("test case", run.get("test_case_status")),
            ("node", run.get("current_node")),
            ("attempt", run.get("current_attempt")),
            ("parent", run.get("parent_run")),
            ("source", run.get("source_ref")),
            ("revision", run.get("revision")),
            ("created", output.moment(run.get("created_at"))),
            ("updated", output.moment(run.get("updated_at"))),
            ("finished", output.moment(run.get("finished_at"))),
            ("deleted", output.moment(deleted["deleted_at"]) if deleted else None),
            ("lease", _lease(run.get("lease"))),
            ("messages", f"{settled:,} settled: {ends}"),
            ("cursor", _cursor(cursor)),
        ]
    )


def _cursor(cursor: dict[str, Any]) -> str:
    if cursor["message_id"] == "0-0" and cursor["incarnation"] > 1:
        return f"at the end, its stream is gone; incarnation {cursor['incarnation']}"
    return f"{cursor['message_id']}, incarnation {cursor['incarnation']}"


def _lease(lease: dict[str, Any] | None) -> str | None:
    if lease is None:
        return None
    owner = f"{lease['owner_type']} {lease['owner_id']}, generation {lease['generation']}"
    if lease["released_at"] is not None:
        return f"free; last held by {owner}"
    when = output.age(lease["expires_at"])
    return f"{owner}, {'expired' if when and when.endswith('ago') else 'expires'} {when}"


def _sections(
    run: dict[str, Any], attempts: list[dict[str, Any]], updates: list[dict[str, Any]]
) -> Iterator[tuple[str, Any]]:
    if run["quarantine"]:
        held = run["quarantine"]
        yield (
            "quarantined",
            output.facts(
                [
                    ("at message", held["message_id"]),
                    ("cause", f"{held['cause']}: {held['detail']}"),
                    ("since", output.moment(held["since"])),
                ]
            ),
        )
    gaps = [
        (producer["producer"], first if first == last else f"{first} to {last}")
        for producer in run["producers"]
        for first, last in producer["gaps"]
    ]
    if gaps:
        yield f"sequences that are missing ({len(gaps)})", _cut(("producer", "sequence"), gaps)
    rows: list[tuple[Any, ...]]
    if attempts:
        rows = [
            (each["attempt_id"], each["node_id"], each["status"], output.moment(each["started_at"]))
            for each in attempts
        ]
        yield f"attempts ({len(rows)})", _cut(("attempt", "node", "status", "started"), rows)
    if updates:
        rows = [
            (f"{each['type']} {each['key']}", each["attempt_id"], output.compact(each["data"]))
            for each in updates
        ]
        yield f"updates ({len(rows)})", _cut(("update", "attempt", "data"), rows)
    yield from _engine_sections(run)
    if run.get("segments"):
        rows = [
            (
                each["session"],
                each["capture_key"],
                each["status"],
                each["entry_count"],
                each["event_count"],
            )
            for each in run["segments"]
        ]
        columns = ("session", "capture key", "status", "entries", "events")
        yield f"sessions ({len(rows)})", _cut(columns, rows, ("entries", "events"))
    if run.get("effects"):
        rows = [
            (each["effect_id"], each["kind"], each["occurrence"], each["status"])
            for each in run["effects"]
        ]
        yield f"effects ({len(rows)})", _cut(("effect", "kind", "occurrence", "status"), rows)


def _engine_sections(run: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What a workflow engine has to do, whom it waits for, what its nodes have called."""
    lists: tuple[tuple[str, str, tuple[str, ...]], ...] = (
        ("work_items", "work items", ("kind", "node_id", "batch_id", "port", "items")),
        ("suspensions", "suspensions", ("task_id", "node_id", "item_index", "on_timeout")),
        ("invocations", "invocations", ("invocation_id", "node_id", "attempt_id", "status")),
    )
    for name, title, columns in lists:
        rows = [tuple(each[column] for column in columns) for each in run.get(name) or ()]
        if rows:
            shown = tuple(column.removesuffix("_id").replace("_", " ") for column in columns)
            right = ("items", "item index")
            yield f"{title} ({len(rows)})", _cut(shown, rows, right, first=name == "work_items")


def _cut(
    columns: tuple[str, ...],
    rows: list[Any],
    right: tuple[str, ...] = (),
    *,
    first: bool = False,
) -> Any:
    """The last rows of a long list, or its first ones; all of them are in --json."""
    left = len(rows) - SIDE_ROWS
    shown = rows[:SIDE_ROWS] if first else rows[-SIDE_ROWS:]
    if left > 0:
        more = (f"… {left:,} {'behind' if first else 'before'} these", *[""] * (len(columns) - 1))
        shown = [*shown, more] if first else [more, *shown]
    return output.table(columns, shown, right=right)
