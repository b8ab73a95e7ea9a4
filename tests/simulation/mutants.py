"""Planted bugs: each a small change of one module, made while it is imported, never on disk.

A schedule must fail for each of them within SEEDS_MAX seeds; else the schedules would miss such a
bug, and the generator has to be made better.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

SEEDS_MAX = 300


class Mutant(NamedTuple):
    """In `module`, each first text becomes the second; it must stand there exactly once."""

    name: str
    module: str
    changes: tuple[tuple[str, str], ...]


def _mutant(name: str, module: str, *texts: str) -> Mutant:
    return Mutant(name, module, tuple(zip(texts[::2], texts[1::2], strict=True)))


MUTANTS = {
    mutant.name: mutant
    for mutant in (
        # --- sequences
        _mutant(
            "sequence off by one",
            "writer.core.sequence",
            "    if seq > last:\n",
            "    if seq >= last:\n",
        ),
        _mutant(
            "small gaps are smoothed over",
            "writer.core.sequence",
            "if seq > sequences.last + 1:",
            "if seq > sequences.last + 2:",
        ),
        _mutant(
            "a filled gap forgets what lies before it",
            "writer.core.sequence",
            "rest = [(first, seq - 1)] if first < seq else []",
            "rest: list[tuple[int, int]] = []",
        ),
        _mutant(
            "late commands are never superseded",
            "writer.core.decide",
            "if late and _superseded(",
            "if False and _superseded(",
        ),
        _mutant(
            "a refused command uses up no sequence",
            "writer.core.decide",
            "    use_up(sequences, seq)\n",
            "    if isinstance(outcome, Applied):\n        use_up(sequences, seq)\n",
        ),
        _mutant(
            "a sequence may be used for another command",
            "writer.core.decide",
            "if known is None or known == message.body_hash:",
            "if True:",
        ),
        _mutant(
            "a refused message is refused again when read again",
            "writer.core.decide",
            "if facts.refused.get(message.message_id) == message.body_hash:",
            "if False:",
        ),
        # --- decisions
        _mutant(
            "a deleted run is created again",
            "writer.core.decide",
            "if run.tombstone is not None:",
            "if run.tombstone is not None and not isinstance(command, CreateRun):",
        ),
        _mutant(
            "a finished run takes snapshots",
            "writer.core.snapshot",
            "    merged = _expected(context, command)\n    if context.head.terminal:",
            "    merged = _expected(context, command)\n    if False:",
        ),
        _mutant(
            "the expected revision may be an older one",
            "writer.core.snapshot",
            "if expected is None or expected == now:",
            "if expected is None or expected <= now:",
        ),
        _mutant(
            "a bad message skips those behind it",
            "writer.apply",
            "            if isinstance(outcome, Rejected):\n",
            "            if isinstance(outcome, Rejected) and "
            "outcome.reason is Reason.BODY_NOT_JSON:\n"
            "                break\n"
            "            if isinstance(outcome, Rejected):\n",
        ),
        # --- leases
        _mutant(
            "expiry shuts out the holder",
            "writer.core.authority",
            "        check_match(run.lease, auth)\n        return\n",
            "        check_match(run.lease, auth)\n"
            "        if arrival >= run.lease.expires_at:\n"
            "            raise Refusal(Reason.LEASE_MISSING)\n"
            "        return\n",
        ),
        _mutant(
            "a stale generation may write",
            "writer.core.authority",
            "if auth.generation is not None and auth.generation != lease.generation:",
            "if False:",
        ),
        _mutant(
            "any token will do",
            "writer.core.authority",
            "if auth.token_sha256 != lease.token_sha256:",
            "if False:",
        ),
        _mutant(
            "use moves the expiry back",
            "writer.core.authority",
            "if lease is not None and arrival + lease.lease_ms > lease.expires_at:",
            "if lease is not None:",
        ),
        _mutant(
            "a live lease is claimed away",
            "writer.core.lease",
            "if present is not None and not own and arrival < present.expires_at:",
            "if False:",
        ),
        _mutant(
            "a claim keeps the generation",
            "writer.core.lease",
            "run.lease.generation + 1 if run.lease is not None else 1",
            "run.lease.generation if run.lease is not None else 1",
        ),
        _mutant(
            "a renewal moves the expiry back",
            "writer.core.lease",
            "max(lease.expires_at, context.arrival + command.lease_ms)",
            "context.arrival + command.lease_ms",
        ),
        _mutant(
            "a reclaimed segment still obeys its old binder",
            "writer.core.authority",
            "elif auth is not None and not segment.reclaimed and _same_binder(binder, auth):",
            "elif auth is not None and _same_binder(binder, auth):",
        ),
        # --- the transaction
        _mutant(
            "no fence",
            "writer.store.commit",
            "        check_epoch(connection, epoch)\n",
            "",
        ),
        _mutant(
            "the cursor has a transaction of its own",
            "writer.store.commit",
            '    hook("committed")\n',
            '    hook("committed")\n'
            "    with transaction(connection):\n"
            "        _put(connection, batch.runs)\n",
            "        _put(connection, batch.runs)\n        _put_acts",
            "        _put_acts",
        ),
        _mutant(
            "what failed stays in memory",
            "writer.apply",
            "            self.aggregates.drop(by_run)\n",
            "",
        ),
        _mutant(
            "gaps are never deleted",
            "writer.store.heads",
            '    "delete_gaps",\n',
            "",
            '    "insert_gap",\n',
            "",
        ),
        # --- the archive
        _mutant(
            "archived after the commit",
            "writer.apply",
            "            batch.to_archive = partial(self._append, records)\n",
            "",
            "        self.aggregates.weigh(batch.runs)\n",
            "        if self.archive is not None and records:\n"
            "            self.archive.append(records)\n"
            "        self.aggregates.weigh(batch.runs)\n",
        ),
        _mutant(
            "a failed batch stays archived",
            "writer.apply",
            "                self.archive.take_back()\n",
            "                pass\n",
        ),
        _mutant(
            "an archive is whole if it has a beginning",
            "writer.tenure",
            "reaches_back_to(folder, since) and reaches_up_to(folder, mark.archived)",
            "reaches_back_to(folder, since)",
        ),
        _mutant(
            "the archive's holes are not noted",
            "writer.tenure",
            "            interrupt(folder, self.file.epoch)\n",
            "            pass\n",
        ),
        _mutant(
            "no catching up",
            "writer.replay",
            "in _batches(folder, since, Bounds(until)):\n        beat()\n",
            "in _batches(folder, since, Bounds(until)):\n        break\n",
        ),
        # --- Redis
        _mutant(
            "one message too many is trimmed",
            "writer.streams.settle",
            'return f"{ms}-{int(n) + 1}"',
            'return f"{ms}-{int(n) + 2}"',
        ),
        _mutant(
            "another stream is trimmed",
            "writer.trimming",
            "return Trim(run, upto, last=last)",
            "return Trim(run, upto)",
            "self._begin(trim.run)",
            '""',
        ),
        _mutant(
            "unknown messages below the cursor are not seen",
            "writer.streams.read",
            "if not knows(",
            "if False and not knows(",
        ),
        _mutant(
            "a stream that was replaced is not noticed",
            "writer.trimming",
            "if order_of(stream.last_id) < order_of(cursor):",
            "if False:",
            "return Trim(run, upto, last=last)",
            "return Trim(run, upto)",
            'if run in reached and cursor != "0-0" and self._points.get(run) != cursor',
            "if False",
        ),
        _mutant(
            "ids are compared as texts",
            "writer.apply",
            "return int(ms), int(n)",
            "return ms, n",
        ),
        _mutant(
            "a new incarnation keeps the cursor",
            "writer.core.acts",
            '        cursor.message_id = "0-0"\n',
            "        pass\n",
        ),
        _mutant(
            "a quarantined run goes on",
            "writer.loop",
            "        self.quarantined.add(message.run)\n",
            "",
        ),
        # --- operators
        _mutant(
            "a skip counts anywhere",
            "writer.apply",
            "if waiting is None or (waiting.incarnation, waiting.message_id) != place:",
            "if waiting is None:",
        ),
        _mutant(
            "a break is not remembered",
            "writer.core.decide",
            "if (cursor.incarnation, message.message_id) in run.breaks:",
            "if False:",
        ),
        _mutant(
            "an archived act is forgotten",
            "writer.replay",
            "        applier.restore_acts(acts, now=now, hook=hook)\n",
            "        pass\n",
        ),
    )
}

HANDFUL = (
    "sequence off by one",
    "use moves the expiry back",
    "no fence",
    "what failed stays in memory",
    "archived after the commit",
    "one message too many is trimmed",
)
"""Those of `make test`."""


class _Planter(MetaPathFinder, Loader):
    """Imports one module with its text changed."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        self._origin = Path()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._mutant.module:
            return None
        found = PathFinder.find_spec(name, path)
        assert found is not None
        assert found.origin is not None
        self._origin = Path(found.origin)
        return importlib.util.spec_from_loader(name, self, origin=found.origin)

    def exec_module(self, module: ModuleType) -> None:
        text = mutated(self._origin.read_text(encoding="utf-8"), self._mutant)
        exec(compile(text, str(self._origin), "exec"), module.__dict__)


def mutated(text: str, mutant: Mutant) -> str:
    """The module's text with the bug in it."""
    for old, new in mutant.changes:
        assert text.count(old) == 1, f"{mutant.name}: {mutant.module} has not once:\n{old}"
        text = text.replace(old, new)
    return text


def plant(name: str) -> None:
    """Plant a bug in this process, before its module is imported."""
    mutant = MUTANTS[name]
    assert mutant.module not in sys.modules, "too late: it is imported already"
    sys.meta_path.insert(0, _Planter(mutant))
