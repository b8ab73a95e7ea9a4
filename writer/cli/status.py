"""`status`: how the daemon, the files and Redis stand; `--check` for monitors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from writer.cli import output
from writer.cli.exits import (
    CHECK_NO_DAEMON,
    CHECK_PARTITION_WAITS,
    CHECK_QUARANTINE,
    CHECK_REDIS_AWAY,
    CHECK_REDIS_FULL,
    CHECK_REDIS_LOSES,
    OK,
)
from writer.cli.folder import reading, settings_of
from writer.cli.options import AsJson, Data, Redis, examples
from writer.cli.running import find_url
from writer.errors import RedisUnavailable
from writer.health import last_end, read_health

if TYPE_CHECKING:
    from writer.settings import WriterSettings
    from writer.store.reader import StateReader

NAMED_MAX = 20
"""How many runs are named of each kind; all are in --json."""
COLUMNS = (
    "partition", "daemon", "size", "WAL", "runs", "applied", "duplicate", "rejected", "gaps",
    "quarantined", "backlog",
)  # fmt: skip

_RESTS_ON_REDIS = "redis: "
"""How the causes of what waits for Redis begin, after the partition."""

NARROW = ("partition", "daemon", "size", "applied", "rejected", "quarantined", "backlog")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "status",
        epilog=examples(
            "statewriter status",
            "statewriter status --check || alert",
            "statewriter status --json | jq .totals",
        ),
    )(status)


def status(
    check: Annotated[
        bool,
        typer.Option("--check", help="End with a code that says what is wrong, 0 if all is well."),
    ] = False,
    data: Data = None,
    redis: Redis = None,
    as_json: AsJson = False,
) -> int:
    """Show how the daemon, the partitions and Redis stand.

    The backlog is counted from our own cursors; "unknown" while Redis is away.
    Codes of --check, the first that holds: 30 no daemon runs, 31 a partition is
    not being written, 32 a run is quarantined, 33 Redis can not be reached, 34
    Redis is full, 35 Redis loses accepted commands by its settings.
    Gaps and leaping clocks are shown, but fail no check. With --json: one object.
    """
    from writer.store.reader.troubles import troubles_of

    settings = settings_of(data, redis)
    with reading(settings) as reader:
        found = reader.status()
        found["daemon"] = read_health(settings.data)
        found["ended"] = last_end(settings.data)
        found["redis"] = _look_at_redis(settings, reader, found["partitions"])
        found |= troubles_of(settings.data)
    code, problems = judge(found)
    found |= {"data": str(settings.data), "ok": not problems, "problems": problems}
    if as_json:
        output.emit(found)
    else:
        _show(found)
    return code if check else OK


def judge(found: Mapping[str, Any]) -> tuple[int, list[str]]:
    """The exit code of a check, and each thing that is wrong in a sentence, the worst first."""
    from writer.streams.risks import FULL

    daemon, redis = found["daemon"], found["redis"]
    problems: list[tuple[int, str]] = []
    if daemon is None:
        ended = f"; the last one ended: {found['ended']}" if found["ended"] else ""
        problems.append((CHECK_NO_DAEMON, f"no daemon runs{ended}"))
    elif daemon["waits"]:
        problems.append((CHECK_PARTITION_WAITS, f"the daemon waits to begin: {daemon['waits']}"))
    else:
        problems += [(CHECK_PARTITION_WAITS, text) for text in _not_written(found)]
    if found["quarantined"]:
        first, *others = found["quarantined"]
        more = f", and {output.counted(len(others), 'more run')}" if others else ""
        text = f"run {first['run_id']} is quarantined at message {first['message_id']}{more}"
        problems.append((CHECK_QUARANTINE, text))
    # What keeps the daemon waiting has been told.
    if not redis["reachable"] and not any(_RESTS_ON_REDIS in text for _, text in problems):
        problems.append((CHECK_REDIS_AWAY, redis["cause"]))
    for risk in redis["risks"]:
        if risk["severe"]:
            code = CHECK_REDIS_FULL if risk["setting"] == FULL else CHECK_REDIS_LOSES
            problems.append((code, risk["sentence"]))
    problems.sort(key=lambda problem: problem[0])
    return (problems[0][0] if problems else OK), [text.rstrip(": ") for _, text in problems]


def _not_written(found: Mapping[str, Any]) -> Iterator[str]:
    """Partitions that no daemon writes right now, those of one cause in one sentence."""
    told = found["daemon"]["partitions"]
    alike: dict[tuple[str, str], list[str]] = {}
    for name in sorted(
        told.keys() | {str(row["partition"]) for row in found["partitions"]}, key=int
    ):
        said = told.get(name, {"state": "without a writer", "cause": ""})
        if said["state"] != "running":
            state = said["state"].replace("standby", "left to a stand-by")
            alike.setdefault((state, said["cause"]), []).append(name)
    for (state, cause), names in alike.items():
        which = (
            f"partition {names[0]} is" if len(names) == 1 else f"partitions {', '.join(names)} are"
        )
        yield f"{which} {state}: {cause}"


def _look_at_redis(
    settings: WriterSettings, reader: StateReader, partitions: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """What waits there, by partition. Starts nothing, and an absent server is an answer."""
    from producers.contract.keys import Keys
    from producers.settings import hide_password
    from writer.streams.backlog import backlog
    from writer.streams.link import connect
    from writer.streams.risks import risks

    url = find_url(settings)
    away: dict[str, Any] = {
        "url": None,
        "reachable": False,
        "hint": "",
        "backlog": None,
        "risks": [],
    }
    if url is None:
        return {**away, "cause": "the data folder's Redis server does not run"}

    def cursors(runs: Sequence[str]) -> dict[str, str]:
        return {run: message_id for run, (_, message_id) in reader.settled(runs).items()}

    keys = Keys(settings.prefix)
    shown = hide_password(url)
    try:
        with connect(url) as client:
            waiting = {
                str(row["partition"]): asdict(backlog(client, keys, row["partition"], cursors))
                for row in partitions
            }
            found = [risk._asdict() for risk in risks(client)]
    except RedisUnavailable as error:
        return {**away, "url": shown, "cause": str(error), "hint": error.hint}
    return {
        "url": shown,
        "reachable": True,
        "cause": "",
        "hint": "",
        "backlog": waiting,
        "risks": found,
    }


def _show(found: Mapping[str, Any]) -> None:
    daemon, redis, totals = found["daemon"], found["redis"], found["totals"]
    behind = redis["backlog"]
    waiting = sum(each["messages"] for each in behind.values()) if behind is not None else None
    output.draw(
        output.facts(
            [
                ("data", found["data"]),
                (
                    "daemon",
                    _daemon(daemon)
                    if daemon
                    else f"none; start one: statewriter daemon --data {found['data']}",
                ),
                (
                    "redis",
                    redis["url"]
                    if redis["reachable"]
                    else "; ".join(
                        part for part in (redis["url"], redis["cause"], redis["hint"]) if part
                    ),
                ),
                ("backlog", "unknown" if waiting is None else waiting),
                ("last event", output.age(totals["last_event_at"])),
            ]
        )
    )
    if found["partitions"]:
        output.write("")
        output.draw(output.table(COLUMNS, _partition_rows(found), right=COLUMNS[2:], narrow=NARROW))
    for line in _warnings(found):
        output.write(line)


def _daemon(told: Mapping[str, Any]) -> str:
    pids = ", ".join(str(pid) for pid in told["pids"])
    since = (output.age(told["started_at"]) or "").removesuffix(" ago")
    return f"pid {pids}, up {since}"


def _partition_rows(found: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    told = found["daemon"]["partitions"] if found["daemon"] else {}
    behind = found["redis"]["backlog"]
    for row in found["partitions"]:
        name = str(row["partition"])
        yield (
            row["file"],
            told.get(name, {}).get("state"),
            output.size(row["bytes"]),
            output.size(row["wal_bytes"]),
            sum(row["runs"].values()),
            row["applied"],
            row["duplicates"],
            row["rejected"],
            row["open_gaps"],
            row["quarantined"],
            "unknown" if behind is None else behind[name]["messages"],
        )


def _warnings(found: Mapping[str, Any]) -> Iterator[str]:
    if found["problems"]:
        yield ""
    yield from (f"problem: {problem}" for problem in found["problems"])
    for each in found["quarantined"][:NAMED_MAX]:
        yield (
            f"quarantined: run {each['run_id']} at message {each['message_id']}: {each['cause']}: "
            f"{each['detail']}"
        )
    for each in found["gaps"][:NAMED_MAX]:
        first, last = each["first_seq"], each["last_seq"]
        missing = str(first) if first == last else f"{first} to {last}"
        yield f"gap: run {each['run_id']} misses {missing} of producer {each['producer']}"
    for partition in (found["redis"]["backlog"] or {}).values():
        for run, leap in list(partition["ahead"].items())[:NAMED_MAX]:
            yield (
                f"clock: run {run} has messages {output.duration(leap / 1000)} ahead of Redis' time"
            )
    yield from (f"risk: {risk['sentence']}" for risk in found["redis"]["risks"])
