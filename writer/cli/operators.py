"""Operator acts on their way: who asks, and what the writer makes of it."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

from writer.cli import output
from writer.cli.exits import Refused, Unsettled
from writer.cli.running import server
from writer.clock import monotonic, sleep
from writer.health import read_health

if TYPE_CHECKING:
    from writer.settings import WriterSettings
    from writer.store.reader.files import Files
    from writer.streams.link import Client

WAIT_S = 10.0
POLL_S = 0.05


class Place(NamedTuple):
    """What an act names: a message, in the file of a partition."""

    partition: int
    run: str
    incarnation: int
    message_id: str


def operator() -> str:
    """Who runs this command, for the audit trail: user and host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def act_at(
    settings: WriterSettings,
    act: str,
    find: Callable[[Files], Place],
    timeout_s: float,
    *,
    follow: bool = False,
) -> dict[str, Any]:
    """Ask for an act at the place that `find` finds, and wait for its outcome if a daemon runs.

    `follow`: where the place has moved on meanwhile, ask again at the new one. Returns the act,
    `outcome` done, refused or sent (no daemon runs). Raises Unsettled, RedisUnavailable.
    """
    from writer.store.reader.files import Files
    from writer.streams.link import connect

    deadline = monotonic() + timeout_s
    with (
        closing(Files(settings.data)) as files,
        server(settings) as url,
        connect(url) as client,
    ):
        while True:
            place = find(files)
            told = ask_at(settings, client, act, place)
            if read_health(settings.data) is None:
                return told
            told |= await_act(files, act, place, told["control_id"], deadline)
            if told["outcome"] == "done" or not follow or monotonic() > deadline:
                return told
            if find(files) == place:
                return told


def ask_at(settings: WriterSettings, client: Client, act: str, place: Place) -> dict[str, Any]:
    """Ask for an act; returns it as it was asked for. Raises RedisUnavailable."""
    from producers.contract.keys import Keys
    from writer.streams.control import ask

    keys = Keys(settings.prefix)
    partition, run, incarnation, message_id = place
    control_id = ask(client, keys, partition, act, run, (incarnation, message_id), operator())
    return {
        "act": act,
        "run": run,
        "incarnation": incarnation,
        "message_id": message_id,
        "control_id": control_id,
        "outcome": "sent",
        "detail": "",
    }


def await_act(
    files: Files, act: str, place: Place, control_id: str, deadline: float
) -> dict[str, Any]:
    """`{outcome: done | refused, detail}` once the writer has said. Raises Unsettled."""
    from writer.store.audit import act_outcome

    while True:
        found = act_outcome(files, place.partition, act, place.run, (control_id, place.message_id))
        if found is not None:
            return found
        if monotonic() > deadline:
            raise Unsettled(
                f"asked for as {control_id}, but not carried out in time",
                hint="it is not lost; `statewriter status` says how the daemon is",
            )
        sleep(POLL_S)


def tell_act(told: dict[str, Any], done: str, as_json: bool) -> None:
    """Say how an act ended. `done`: in words, if it was carried out. Raises Refused."""
    if as_json:
        output.emit(told)
    if told["outcome"] == "refused":
        raise Refused(f"{told['act']} of run {told['run']} was refused: {told['detail']}")
    if as_json:
        return
    if told["outcome"] == "sent":
        output.write(
            f"{told['act']} of run {told['run']} is asked for; no daemon is running: it is carried "
            "out when one runs"
        )
    else:
        output.write(done)
