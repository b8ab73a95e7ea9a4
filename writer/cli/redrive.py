"""Refused commands on their way back into their streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from writer.cli import output
from writer.cli.exits import NotFound, Unsettled
from writer.cli.operators import Place, ask_at, await_act
from writer.cli.running import partitions_of, server
from writer.clock import monotonic, sleep
from writer.errors import Usage
from writer.health import read_health

if TYPE_CHECKING:
    from producers.contract.commands import Auth
    from writer.settings import WriterSettings
    from writer.store.reader.files import Files
    from writer.streams.link import Client

POLL_S = 0.05
AT_ONCE = 100
"""Acts that are asked for before the daemon has answered: about what it takes in half a second."""
WITHOUT_DAEMON_MAX = 5_000
"""The control stream is capped, so that many may wait in it."""
AS_IT_WAS = (b"v", b"kind", b"body", b"trace")
"""Fields that a redriven command has from the refused one."""


def in_turn(ids: Sequence[str], running: bool) -> Iterator[Sequence[str]]:
    """Rejections in portions that the control stream holds. Raises Usage."""
    if not running and len(ids) > WITHOUT_DAEMON_MAX:
        raise Usage(
            f"{len(ids):,} are too many to wait for a daemon",
            hint="start one, or name fewer with --run, --reason or --since",
        )
    for start in range(0, len(ids), AT_ONCE):
        yield ids[start : start + AT_ONCE]


def place_of(files: Files, rejection_id: str) -> Place:
    """What acts on a rejection name. Raises NotFound if its run was deleted meanwhile."""
    return _place(_whole(files, rejection_id))


def _place(rejection: dict[str, Any]) -> Place:
    partition = int(rejection["id"].partition(":")[0])
    run, incarnation = rejection["run_id"], rejection["incarnation"]
    return Place(partition, run, incarnation, rejection["message_id"])


def _whole(files: Files, rejection_id: str) -> dict[str, Any]:
    from writer.store.reader.rejections import whole_rejection

    found = whole_rejection(files, rejection_id)
    if found is None:
        raise NotFound(f"rejection {rejection_id} is gone", hint="its run was deleted")
    return found


@dataclass(slots=True)
class Redrive:
    """Sends refused commands again, and waits for what becomes of them."""

    settings: WriterSettings
    auth: Auth | None
    timeout_s: float

    def send(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        """What became of each: applied, rejected, settled, sent (no daemon runs), before (it was
        redriven already) or impossible. Raises Unsettled, NotFound, RedisUnavailable.
        """
        from writer.store.reader.files import Files
        from writer.streams.link import connect

        told: list[dict[str, Any]] = []
        with (
            closing(Files(self.settings.data)) as files,
            server(self.settings) as url,
            connect(url) as client,
        ):
            partitions = partitions_of(self.settings, client)
            running = read_health(self.settings.data) is not None
            for some in in_turn(ids, running):
                sent = [self._send_one(files, client, partitions, each) for each in some]
                if running:
                    self._await(files, [(each, *noted) for each, noted in sent if noted])
                told += [each for each, _ in sent]
        return told

    def _send_one(
        self, files: Files, client: Client, partitions: int, rejection_id: str
    ) -> tuple[dict[str, Any], tuple[Place, str] | None]:
        """What is to be told of one, and where and as what it was noted, if it was sent."""
        from producers.contract.keys import Keys
        from writer.store.audit import redriven
        from writer.streams.publish import Outgoing, Publisher

        rejection = _whole(files, rejection_id)
        told = {"id": rejection_id, "run": rejection["run_id"], "kind": rejection["kind"]}
        known = redriven(files, rejection)
        if known is not None:
            was = {"outcome": "before", "was": known["outcome"], "as": known.pop("id", None)}
            return {**known, **told, **was}, None
        fields, why_not = _composed(rejection, self.auth)
        if why_not:
            return {**told, "outcome": "impossible", "detail": why_not}, None
        place = _place(rejection)
        # First the note of who sends it, so that nothing is sent that the trail does not have.
        noted = ask_at(self.settings, client, "redrive", place)
        publisher = Publisher(client, Keys(self.settings.prefix), partitions)
        (message_id,) = publisher.publish([Outgoing(rejection["run_id"], fields)])
        told |= {
            "producer": fields[b"producer"].decode(),
            "message_id": message_id,
            "outcome": "sent",
        }
        return told, (place, noted["control_id"])

    def _await(self, files: Files, sent: Sequence[tuple[dict[str, Any], Place, str]]) -> None:
        """Until each is settled, and its note is on record. Raises Unsettled."""
        from writer.store.audit import redriven

        deadline = monotonic() + self.timeout_s
        pending = [(told, place) for told, place, _ in sent]
        while pending:
            rest = []
            for told, place in pending:
                refused = {"run_id": place.run, "message_id": place.message_id}
                known = redriven(files, refused)
                if known is None:
                    rest.append((told, place))
                else:
                    told |= {"as": known.pop("id", None), **known}
            if len(rest) < len(pending):
                deadline = monotonic() + self.timeout_s
            pending = rest
            if pending and monotonic() > deadline:
                raise Unsettled(
                    f"sent, but {output.counted(len(pending), 'command')} not settled",
                    hint="nothing is lost; `statewriter status` says how the daemon is",
                )
            sleep(POLL_S if pending else 0)
        for _, place, control_id in sent:
            await_act(files, "redrive", place, control_id, monotonic() + self.timeout_s)


def _composed(rejection: dict[str, Any], auth: Auth | None) -> tuple[dict[bytes, bytes], str]:
    """The stream fields of a redrive, and why there can be none, or nothing."""
    import orjson

    from producers.contract.envelope import decode, fields_of, seal
    from writer.store.audit import redrive_producer

    if rejection["fields"] is None:
        return {}, (
            f"its bytes are not kept: {output.size(rejection['fields_bytes'])} were too many, or "
            "they were dropped"
        )
    kept = fields_of(rejection["fields"])
    fields: dict[bytes, bytes] = {name: kept[name] for name in AS_IT_WAS if name in kept}
    fields[b"producer"] = redrive_producer(rejection["message_id"]).encode()
    fields[b"seq"] = b"1"
    if auth is not None:
        fields[b"auth"] = orjson.dumps(auth.model_dump(exclude_none=True))
    judged = decode(rejection["run_id"], "0-1", seal(fields))
    if judged.reason is not None:
        place = f" ({judged.detail})" if judged.detail else ""
        return {}, f"it would be refused again: {judged.reason.value}{place}"
    return fields, ""
