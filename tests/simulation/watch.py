"""Sees each commit, on a connection of its own, and tells the oracle what was settled by it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from tests.simulation.actor import Actor, Violation
from tests.simulation.archived import between, place_of
from tests.simulation.folders import EXPIRED, FILE, has_file
from tests.simulation.oracle import Account, Acted, Oracle, Restart, Settled, order
from tests.simulation.server import Fields, Item

FREES = ("skip", "resume")
Standing = tuple[int, str, int, int, int]
"""Incarnation, message id, and how many messages were applied, duplicates and rejected."""


class Stand(NamedTuple):
    """What a file says of itself."""

    epoch: int
    commit_seq: int
    archived: str


class Watch:
    """Follows one data folder; `sent` finds messages as hosts sent them, by run and id."""

    def __init__(self, data: Path, oracle: Oracle, sent: dict[tuple[str, str], list[Item]]) -> None:
        self.data = data
        self.oracle = oracle
        self._sent = sent
        self._connection: apsw.Connection | None = None
        self.stand = Stand(0, 0, "0:0:0")
        self.quarantined: dict[str, str] = {}
        self._acts = self._seen = 0
        if has_file(data) and self.rows("SELECT 1 FROM file"):
            self.stand = self._stand()
            self.quarantined = self._quarantines()
            rows = self.rows("SELECT max(act_seq) FROM acts")
            self._acts = rows[0][0] or 0
            self.check_cursors()

    def rows(self, query: str, *bindings: Any) -> list[tuple[Any, ...]]:
        """What is committed now."""
        if self._connection is None:
            self._connection = apsw.Connection(
                str(self.data / FILE), flags=apsw.SQLITE_OPEN_READONLY
            )
        return self._connection.execute(query, bindings).fetchall()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def cursors(self) -> dict[str, Standing]:
        """Where each stream stands, and how many of its messages ended how."""
        found = self.rows(
            "SELECT run_id, incarnation, message_id, applied, duplicates, rejected FROM cursors"
        )
        return {run: (incarnation, *rest) for run, incarnation, *rest in found}

    def check_cursors(self) -> None:
        """I4, I7: what is stored is what was seen to be committed, no more and no less."""
        self._check(self.cursors())

    def _check(self, cursors: Mapping[str, Standing]) -> None:
        start = (1, "0-0", 0, 0, 0)
        stored = {run: place for run, place in cursors.items() if place != start}
        known = {
            run: (each.incarnation, each.cursor, *each.ended.values())
            for run, each in self.oracle.runs.items()
        }
        known = {run: place for run, place in known.items() if place != start}
        if stored != known:
            since = "\n".join(map(self.oracle.told, self.oracle.log[self._seen :]))
            raise Violation(f"I4: cursors are {stored}, must be {known}; the last were\n{since}")

    def committed(self, actor: Actor) -> None:
        """A commit of this actor has just come through."""
        stand = self._stand()
        if stand.epoch != actor.epoch:
            raise Violation(f"I5: {actor.name} of epoch {actor.epoch} wrote under {stand.epoch}")
        if stand.commit_seq <= self.stand.commit_seq:
            raise Violation(f"I4: commit {stand.commit_seq} after {self.stand.commit_seq}")
        quarantined, before = self._quarantines(), self.quarantined
        self._seen = len(self.oracle.log)
        self._see_acts(before, restored=actor.loop is None)
        if actor.loop is None and stand.archived != self.stand.archived:
            self._caught_up(stand)
        cursors = self.cursors()
        for run, (incarnation, message_id, *_) in cursors.items():
            if (incarnation, message_id) == self._known(run):
                continue
            waits = run in before and run in quarantined
            # It may be found that it has to be read from the start of its stream once it goes on.
            if waits and message_id != "0-0":
                raise Violation(f"{run} moved although it is quarantined")
            self._see_moved(actor, run, incarnation, message_id)
        self.stand, self.quarantined = stand, quarantined
        self._check(cursors)

    def _known(self, run: str) -> tuple[int, str] | None:
        account = self.oracle.runs.get(run)
        return None if account is None else (account.incarnation, account.cursor)

    def _stand(self) -> Stand:
        return Stand(*self.rows("SELECT epoch, commit_seq, archived FROM file")[0])

    def _quarantines(self) -> dict[str, str]:
        return dict(
            self.rows("SELECT run_id, q.message_id FROM quarantines q JOIN cursors USING (run_key)")
        )

    def _see_moved(self, actor: Actor, run: str, incarnation: int, message_id: str) -> None:
        account = self.oracle.account(run)
        while account.incarnation < incarnation:
            self.oracle.note(Restart(run, account.incarnation + 1))
        if account.incarnation > incarnation:
            raise Violation(f"I4: {run} went back to incarnation {incarnation}")
        if account.cursor == message_id:
            return
        if order(message_id) < order(account.cursor):
            raise Violation(f"I4: the cursor of {run} went back to {message_id}")
        begin, end = order(account.cursor), order(message_id)
        passed = [item for item in actor.views.get(run, ()) if begin < item.place <= end]
        if not passed or passed[-1].id != message_id:
            raise Violation(f"I4: {run} is at {message_id}, which {actor.name} did not read there")
        for item in passed:
            self.oracle.note(Settled(run, incarnation, item.id, item.fields))

    def _caught_up(self, stand: Stand) -> None:
        """Messages that came out of the archive."""
        first, last = place_of(self.stand.archived), place_of(stand.archived)
        # What expired since it was read was applied all the same.
        folders = (self.data / EXPIRED, self.data / "archive" / "p00")
        for line in between(folders, first, last):
            if "act" in line and not self._knows(line["act"]):
                raise Violation(f"{line['act']} stands in the archive, and is not known")
            if "run" not in line:
                continue
            run, incarnation, message_id = line["run"], line["inc"], line["id"]
            account = self.oracle.account(run)
            if (account.incarnation, order(account.cursor)) >= (incarnation, order(message_id)):
                continue
            while account.incarnation < incarnation:
                self.oracle.note(Restart(run, account.incarnation + 1))
            fields = self._fields(run, message_id, line["fields"])
            self.oracle.note(Settled(run, incarnation, message_id, fields))

    def _knows(self, act: Mapping[str, Any]) -> bool:
        named = [act[name] for name in ("id", "act", "run", "message_id")]
        query = "SELECT 1 FROM acts WHERE (control_id, act, run_id, message_id) = (?, ?, ?, ?)"
        return bool(self.rows(query, *named))

    def _fields(self, run: str, message_id: str, archived: dict[str, str]) -> Fields:
        """The message as it was sent; the archive holds it without its token."""
        for item in self._sent.get((run, message_id), ()):
            named = {name.decode(): value.decode() for name, value in item.fields.items()}
            kept = {name: value for name, value in named.items() if name != "auth"}
            if kept == {name: value for name, value in archived.items() if name != "auth"}:
                return item.fields
        raise Violation(f"I7: the archive has {archived} of {run}, which nobody sent")

    def _see_acts(self, quarantined: dict[str, str], *, restored: bool) -> None:
        for seq, control, act, run, incarnation, message_id, outcome in self.rows(
            "SELECT act_seq, control_id, act, run_id, incarnation, message_id, outcome "
            "FROM acts WHERE act_seq > ? AND run_id != '' ORDER BY act_seq",
            self._acts,
        ):
            self._acts = seq
            if not restored:
                account = self.oracle.runs.get(run, Account(run))
                at = (account.incarnation, account.cursor)
                if act in FREES:
                    expected = quarantined.get(run) == message_id
                    expected = expected and account.incarnation == incarnation
                else:
                    held = account.story.held() is not None
                    expected = at == (incarnation, message_id) and held
                if expected != (outcome == "done"):
                    raise Violation(f"act {act} on {run} at {message_id} was {outcome}: {at}")
            if outcome == "done":
                if act in FREES:
                    quarantined.pop(run, None)
                self.oracle.note(Acted(act, run, incarnation, message_id, control))
