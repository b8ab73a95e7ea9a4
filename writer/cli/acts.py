"""`annotate`, `interrupt`, `reset`, `delete`: what a person does to a run, sent as a command."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from writer.cli import output
from writer.cli.exits import Refused, Unsettled
from writer.cli.folder import exists, no_run, reading, settings_of
from writer.cli.options import AsJson, Data, OwnerId, OwnerType, Redis, RunId, TokenEnv, examples
from writer.cli.running import partitions_of, server
from writer.clock import monotonic, sleep
from writer.errors import Usage
from writer.health import read_health

if TYPE_CHECKING:
    from producers.contract.commands import Auth
    from writer.settings import WriterSettings

WAIT_S = 10.0
POLL_S = 0.02

Reason = Annotated[
    str | None,
    typer.Option("--reason", metavar="TEXT", help="Why; kept with the event.", show_default=False),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        "annotate",
        epilog=examples(
            "statewriter annotate RUN --title 'Nightly triage'",
            "statewriter annotate RUN --tag team=core --tag pr=128",
            "statewriter annotate RUN --test-case-status succeeded",
        ),
    )(annotate)
    app.command(
        "interrupt",
        epilog=examples(
            "statewriter interrupt RUN --reason 'host was replaced'",
            "TOKEN=... statewriter interrupt RUN --owner-id worker-7 --token-env TOKEN",
        ),
    )(interrupt)
    app.command("reset", epilog=examples("statewriter reset RUN --reason 'try again'"))(reset)
    app.command(
        "delete", epilog=examples("statewriter delete RUN", "statewriter delete RUN --yes")
    )(delete)


def annotate(
    run: RunId,
    title: Annotated[
        str | None,
        typer.Option("--title", metavar="T", help="Title; '' takes it away.", show_default=False),
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(
            "--tag",
            metavar="KEY=VALUE",
            help="Set a tag (repeatable); KEY= takes it away. Others stay.",
            show_default=False,
        ),
    ] = None,
    test_case_status: Annotated[
        str | None,
        typer.Option(
            "--test-case-status",
            metavar="S",
            help="running, succeeded, failed, errored or cancelled; '' takes it away.",
            show_default=False,
        ),
    ] = None,
    data: Data = None,
    redis: Redis = None,
    as_json: AsJson = False,
) -> None:
    """Set a run's title, tags and test-case status."""
    settings = settings_of(data, redis)
    body: dict[str, Any] = {}
    if title is not None:
        body["title"] = title or None
    if test_case_status is not None:
        body["test_case_status"] = test_case_status or None
    found = _find(settings, run)
    if tag:
        body["tags"] = _merged_tags(found.get("tags") or {}, tag)
    if not body:
        raise Usage("nothing to set", hint="--title, --tag or --test-case-status")
    _act(settings, run, "run.annotate", body, None, as_json)


def _merged_tags(present: dict[str, str], given: list[str]) -> dict[str, str] | None:
    tags = dict(present)
    for each in given:
        key, separator, value = each.partition("=")
        if not separator or not key:
            raise Usage(f"--tag {each}: no KEY=VALUE", hint="for example --tag team=core")
        tags.pop(key, None)
        if value:
            tags[key] = value
    return tags or None


def interrupt(  # noqa: PLR0913 - each is an option
    run: RunId,
    reason: Reason = None,
    owner_type: OwnerType = "host",
    owner_id: OwnerId = None,
    token_env: TokenEnv = None,
    data: Data = None,
    redis: Redis = None,
    as_json: AsJson = False,
) -> None:
    """Mark a run as failed because its host is gone.

    Anyone may once its lease has expired, its holder at any time.
    """
    settings = settings_of(data, redis)
    _find(settings, run)
    auth = authority(owner_type, owner_id, token_env)
    _act(settings, run, "run.interrupt", _reason(reason), auth, as_json)


def reset(  # noqa: PLR0913 - each is an option
    run: RunId,
    reason: Reason = None,
    owner_type: OwnerType = "host",
    owner_id: OwnerId = None,
    token_env: TokenEnv = None,
    data: Data = None,
    redis: Redis = None,
    as_json: AsJson = False,
) -> None:
    """Lead a finished run back to running."""
    settings = settings_of(data, redis)
    _find(settings, run)
    auth = authority(owner_type, owner_id, token_env)
    _act(settings, run, "run.reset", _reason(reason), auth, as_json)


def delete(  # noqa: PLR0913 - each is an option
    run: RunId,
    reason: Reason = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    owner_type: OwnerType = "host",
    owner_id: OwnerId = None,
    token_env: TokenEnv = None,
    data: Data = None,
    redis: Redis = None,
    as_json: AsJson = False,
) -> None:
    """Delete a run and all that hangs on it. Its id is never used again."""
    settings = settings_of(data, redis)
    found = _find(settings, run)
    auth = authority(owner_type, owner_id, token_env)
    if found.get("deleted"):
        _tell({"run": run, "kind": "run.delete"}, {"outcome": "duplicate"}, as_json)
        return
    if not yes:
        _confirm(run, found)
    _act(settings, run, "run.delete", _reason(reason), auth, as_json)


def _confirm(run: str, found: dict[str, Any]) -> None:
    if not sys.stdin.isatty():
        raise Usage("delete asks first, and there is nobody to ask", hint="pass --yes")
    entries = sum(each["entry_count"] for each in found.get("segments", ()))
    typer.confirm(
        f"Delete run {run} ({found.get('revision', 0):,} revisions, {entries:,} entries) for ever?",
        abort=True,
        err=True,
    )


def _reason(reason: str | None) -> dict[str, Any]:
    return {} if reason is None else {"reason": reason}


def _find(settings: WriterSettings, run: str) -> dict[str, Any]:
    with reading(settings) as reader:
        found = reader.run(run)
    if found is None or not exists(found):
        raise no_run(settings, run)
    return found


def authority(owner_type: str, owner_id: str | None, token_env: str | None) -> Auth | None:
    """The authority that the options name; None without them. Raises Usage."""
    if owner_id is None and token_env is None:
        return None
    if owner_id is None or token_env is None:
        raise Usage("--owner-id and --token-env belong together")
    token = os.environ.get(token_env)
    if not token:
        raise Usage(f"the environment variable {token_env} holds no token")
    from pydantic import ValidationError

    from producers.contract.commands import Auth

    try:
        return Auth.model_validate({"owner_type": owner_type, "owner_id": owner_id, "token": token})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise Usage(f"the authority's {first['loc'][0]}: {first['msg']}") from None


def _act(
    settings: WriterSettings,
    run: str,
    kind: str,
    body: Mapping[str, Any],
    auth: Auth | None,
    as_json: bool,
) -> None:
    """Send one command as a producer of its own, and wait for its outcome if a daemon runs."""
    from producers.contract.envelope import decode, encode, seal
    from producers.contract.keys import Keys
    from writer.streams.link import connect
    from writer.streams.publish import Outgoing, Publisher

    producer = f"cli-{secrets.token_hex(8)}"
    fields = encode(kind, body, producer=producer, seq=1, auth=auth)
    judged = decode(run, "0-1", seal(fields))
    if judged.reason is not None:
        raise Usage(f"{judged.reason.value}: {judged.reason.sentence}", hint=judged.detail)
    with server(settings) as url, connect(url) as client:
        keys = Keys(settings.prefix)
        publisher = Publisher(client, keys, partitions_of(settings, client))
        (message_id,) = publisher.publish([Outgoing(run, fields)])
        outcome = None
        if read_health(settings.data) is not None:
            outcome = _await_outcome(settings, run, message_id, producer)
    sent = {"run": run, "kind": kind, "producer": producer, "seq": 1, "message_id": message_id}
    _tell(sent, outcome, as_json)


def _await_outcome(
    settings: WriterSettings, run: str, message_id: str, producer: str
) -> dict[str, Any]:
    deadline = monotonic() + WAIT_S
    with reading(settings) as reader:
        while True:
            outcome = reader.outcome(run, message_id, producer, 1)
            if outcome is not None:
                return outcome
            if monotonic() > deadline:
                raise Unsettled(
                    f"sent as message {message_id}, but not settled within {WAIT_S:g} s",
                    hint="it is not lost; `statewriter status` says how the daemon is",
                )
            sleep(POLL_S)


def _tell(sent: dict[str, Any], outcome: dict[str, Any] | None, as_json: bool) -> None:
    from producers.contract.reasons import Reason

    kind = sent["kind"]
    if outcome is not None and outcome["outcome"] == "rejected":
        if as_json:
            output.emit({**sent, **outcome})
        reason = outcome["reason"]
        detail = f" ({outcome['detail']})" if outcome["detail"] else ""
        raise Refused(
            f"{kind} was refused: {reason}: {Reason(reason).sentence}{detail}",
            hint="pass --owner-id and --token-env, or wait until the lease has expired"
            if reason.startswith("lease_")
            else "",
        )
    if as_json:
        output.emit({**sent, **(outcome or {"outcome": "sent"})})
    elif outcome is None:
        output.write(
            f"{kind} sent to {sent['run']}; no daemon is running: it applies when one runs"
        )
    elif outcome["outcome"] == "applied":
        output.write(f"{kind} applied to {sent['run']}, revision {outcome['revision']}")
    else:
        output.write(f"{kind} changed nothing: {sent['run']} is so already")
