"""Decisions about a run: in which order they are judged, and what each command does to it."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from producers.contract.commands import MODELS
from tests.support.host import Host
from tests.support.workload import base_state, iso, workflow
from tests.support.world import DUPLICATE, HELD, START_MS, CoreWorld, StoredWorld
from writer.core.decide import RULES
from writer.core.parts import document
from writer.core.run import Effect, Head

RUN = "run-1"
NEWER = {b"v": b"2", b"kind": b"run.paint", b"color": b"red"}


@pytest.fixture
def world() -> CoreWorld:
    return CoreWorld()


def head(world: CoreWorld, run: str = RUN) -> Head:
    found = world.run(run).head
    assert found is not None
    return found


def state(world: CoreWorld) -> Any:
    node = world.run(RUN).state
    assert node is not None
    return document(node)


def effects(world: CoreWorld) -> list[Effect]:
    return list(world.run(RUN).effects.values())


def test_every_kind_of_the_contract_has_a_rule() -> None:
    assert RULES.keys() == MODELS.keys()


class TestOrderOfChecks:
    """Envelope, sequence, run exists, authority, expected revision, rules: the first one tells."""

    WRONG: ClassVar = {"state": {"status": "running"}, "expected_revision": 99}

    def test_the_envelope_comes_before_the_sequence(self, world: CoreWorld) -> None:
        world.create(RUN)
        broken = {b"color": b"red"}
        assert world.apply(RUN, "run.resume", seq=2**40, raw=broken).reason == "field_unknown"

    def test_the_sequence_comes_before_the_run(self, world: CoreWorld) -> None:
        assert world.apply(RUN, "run.resume", seq=2**40).reason == "sequence_jump"

    def test_the_run_comes_before_the_authority(self, world: CoreWorld) -> None:
        auth = Host("host-a").auth()
        assert world.apply(RUN, "run.snapshot", self.WRONG, auth=auth).reason == "run_unknown"

    def test_the_authority_comes_before_the_expected_revision(self, world: CoreWorld) -> None:
        world.create(RUN)
        auth = Host("host-a").auth()
        assert world.apply(RUN, "run.snapshot", self.WRONG, auth=auth).reason == "lease_missing"

    def test_the_expected_revision_comes_before_the_rules(self, world: CoreWorld) -> None:
        world.create(RUN, state=base_state(RUN) | {"status": "completed"})
        assert world.apply(RUN, "run.snapshot", self.WRONG).reason == "revision_conflict"
        del (wrong := dict(self.WRONG))["expected_revision"]
        assert world.apply(RUN, "run.snapshot", wrong).reason == "run_terminal"


def test_a_newer_version_holds_the_run_and_changes_nothing(world: CoreWorld) -> None:
    world.create(RUN)
    run = world.run(RUN)
    before, before_state = copy.deepcopy(replace(run, state=None)), run.state
    assert world.apply(RUN, "run.resume", raw=NEWER) == HELD
    assert replace(run, state=None) == before
    assert run.state is before_state


class TestCreate:
    """A run begins once."""

    def test_its_head_is_what_it_was_created_with(self, world: CoreWorld) -> None:
        body = {
            "workflow": "triage",
            "definition": workflow(),
            "input": None,
            "source": {"type": "builtin", "ref": "triage"},
            "state": {"title": "from the state"},
            "parent": {"run": "run-0"},
            "title": "given",
            "tags": {"b": "2", "a": "1"},
            "retention_seconds": 60,
            "effects": ["run.parked", "run.parked", "run.settled"],
        }
        assert world.must(RUN, "run.create", body, at=5).revision == 1
        made = head(world)
        assert (made.dialect, made.workflow, made.status) == ("generic", "triage", "running")
        assert (made.created_at, made.updated_at) == (START_MS + 5, START_MS + 5)
        assert (made.parent_run, made.parent_relation) == ("run-0", "child")
        assert made.input == "null"
        assert made.title == "from the state"
        assert made.effects == '["run.parked","run.settled"]'
        assert made.retention_seconds == 60

    def test_without_an_input_it_has_none(self, world: CoreWorld) -> None:
        world.must(RUN, "run.create", {})
        assert head(world).input is None

    def test_in_the_pi_dialect_workflow_and_source_come_from_the_definition(
        self, world: CoreWorld
    ) -> None:
        world.create(RUN)
        made = head(world)
        assert (made.workflow, made.source_ref) == ("bench", "inline:bench")

    def test_a_definition_without_canonical_json_is_refused(self, world: CoreWorld) -> None:
        refused = world.apply(RUN, "run.create", {"definition": {"n": 2**53}})
        assert refused.reason == "definition_invalid"
        assert world.run(RUN).head is None

    @pytest.mark.parametrize(
        "wrong, detail",
        [
            ({"schema": "other"}, "schema"),
            ({"runId": "run-2"}, "runId"),
            ({"status": "done"}, "status"),
            ({"status": None}, "status"),
            ({"steps": {}}, "steps"),
        ],
        ids=str,
    )
    def test_a_pi_state_names_its_schema_run_and_status(
        self, world: CoreWorld, wrong: dict[str, Any], detail: str
    ) -> None:
        body = {"dialect": "pi_workflows", "state": base_state(RUN) | wrong}
        refused = world.apply(RUN, "run.create", body)
        assert (refused.reason, refused.detail) == ("state_invalid", detail)
        assert world.run(RUN).head is None
        world.create(RUN)

    def test_equality_is_of_content_not_of_keys_order_or_defaults(self, world: CoreWorld) -> None:
        world.must(RUN, "run.create", {"state": {"a": 1, "b": 2}})
        same = {"state": {"b": 2, "a": 1}, "dialect": "generic", "title": None}
        assert world.apply(RUN, "run.create", same, producer="q") == DUPLICATE
        other = {"state": {"a": 1.0, "b": 2}}
        assert world.apply(RUN, "run.create", other, producer="q").reason == "run_conflict"

    def test_a_run_that_begins_finished_has_no_effect(self, world: CoreWorld) -> None:
        body = {"state": {"status": "completed"}, "effects": ["run.settled"]}
        world.must(RUN, "run.create", body)
        assert effects(world) == []


class TestReserve:
    """`status: queued` reserves an id; a second create adopts it."""

    RESERVED: ClassVar = {"dialect": "pi_workflows", "definition": workflow(), "status": "queued"}

    def adopting(self, **changed: Any) -> dict[str, Any]:
        usual = {"dialect": "pi_workflows", "definition": workflow(), "state": base_state(RUN)}
        return usual | changed

    def test_a_reserved_run_is_queued_and_then_adopted(self, world: CoreWorld) -> None:
        world.must(RUN, "run.create", self.RESERVED | {"title": "kept"})
        assert (head(world).status, head(world).reserved) == ("queued", True)
        assert world.must(RUN, "run.create", self.adopting()).revision == 2
        assert (head(world).status, head(world).reserved) == ("running", False)
        assert head(world).title == "kept"

    def test_another_definition_does_not_adopt(self, world: CoreWorld) -> None:
        world.must(RUN, "run.create", self.RESERVED)
        other = self.adopting(definition=workflow("other"))
        assert world.apply(RUN, "run.create", other).reason == "definition_conflict"
        assert world.apply(RUN, "run.create", {"definition": workflow()}).reason == "run_conflict"
        assert head(world).reserved

    def test_a_broken_state_does_not_adopt(self, world: CoreWorld) -> None:
        world.must(RUN, "run.create", self.RESERVED)
        broken = self.adopting(state=base_state(RUN) | {"status": "done"})
        assert world.apply(RUN, "run.create", broken).reason == "state_invalid"
        assert (head(world).status, head(world).reserved) == ("queued", True)
        world.must(RUN, "run.create", self.adopting())

    def test_reserving_again_is_a_duplicate_or_a_conflict(self, world: CoreWorld) -> None:
        world.must(RUN, "run.create", self.RESERVED)
        assert world.apply(RUN, "run.create", self.RESERVED, producer="q") == DUPLICATE
        other = self.RESERVED | {"title": "t"}
        assert world.apply(RUN, "run.create", other).reason == "run_conflict"

    def test_adopting_again_is_a_duplicate_or_a_conflict(self, world: CoreWorld) -> None:
        world.must(RUN, "run.create", self.RESERVED)
        world.must(RUN, "run.create", self.adopting())
        assert world.apply(RUN, "run.create", self.adopting(), producer="q") == DUPLICATE
        other = self.adopting(title="t")
        assert world.apply(RUN, "run.create", other).reason == "run_conflict"

    def test_adopting_without_a_state_runs_with_the_reserved_one(self, world: CoreWorld) -> None:
        world.must(RUN, "run.create", {"status": "queued", "state": {"a": 1}})
        world.must(RUN, "run.create", {})
        assert head(world).status == "running"
        assert state(world) == {"a": 1}

    def test_a_queued_run_is_neither_resumed_nor_interrupted(self, world: CoreWorld) -> None:
        world.must(RUN, "run.create", self.RESERVED)
        for kind in ("run.resume", "run.interrupt"):
            assert world.apply(RUN, kind).reason == "run_not_running"

    def test_a_reserved_run_that_went_on_by_itself_is_not_adopted(self, world: CoreWorld) -> None:
        world.must(RUN, "run.create", self.RESERVED)
        world.must(RUN, "run.snapshot", {"state": base_state(RUN)})
        assert world.apply(RUN, "run.create", self.adopting()).reason == "run_conflict"


class TestAnnotate:
    """Only what is named changes."""

    def test_null_takes_away_and_silence_keeps(self, world: CoreWorld) -> None:
        world.must(RUN, "run.create", {"title": "t", "tags": {"a": "1"}})
        world.must(RUN, "run.annotate", {"title": None, "test_case_status": "failed"})
        made = head(world)
        assert (made.title, made.tags, made.test_case_status) == (None, '{"a":"1"}', "failed")

    def test_nothing_new_is_a_duplicate(self, world: CoreWorld) -> None:
        world.must(RUN, "run.create", {"title": "t", "tags": {"b": "2", "a": "1"}})
        for body in ({}, {"title": "t"}, {"tags": {"a": "1", "b": "2"}}):
            assert world.apply(RUN, "run.annotate", body) == DUPLICATE
        assert head(world).revision == 1

    def test_a_finished_run_may_be_annotated(self, world: CoreWorld) -> None:
        world.must(RUN, "run.create", {"state": {"status": "failed"}})
        world.must(RUN, "run.annotate", {"title": "flaky"})


class TestInterruptAndReset:
    """How a run ends that its host left, and how a finished one goes on."""

    def test_interrupted_it_has_failed_with_nothing_under_way(self, world: CoreWorld) -> None:
        under_way = {
            "currentNode": "work",
            "currentAttemptId": "a1",
            "currentNodeStartedAt": iso(0),
            "statusDetail": "busy",
            "paused": True,
        }
        world.create(RUN, state=base_state(RUN) | under_way)
        world.must(RUN, "run.interrupt", {"reason": "gone"}, at=7)
        made = head(world)
        assert (made.status, made.error, made.finished_at) == ("failed", "gone", START_MS + 7)
        assert (made.current_node, made.current_attempt, made.status_detail) == (None,) * 3
        left = state(world)
        assert (left["status"], left["error"]) == ("failed", "gone")
        assert not under_way.keys() & left.keys()

    def test_a_document_that_shows_no_status_is_left_alone(self, world: CoreWorld) -> None:
        world.must(RUN, "run.create", {"state": {"a": 1}})
        world.must(RUN, "run.interrupt")
        assert (head(world).status, state(world)) == ("failed", {"a": 1})
        world.must(RUN, "run.reset")
        made = head(world)
        assert (made.status, made.error, made.finished_at) == ("running", None, None)
        assert state(world) == {"a": 1}

    def test_a_parked_run_is_not_interrupted(self, world: CoreWorld) -> None:
        world.must(RUN, "run.create", {"state": {"status": "waiting"}})
        assert world.apply(RUN, "run.interrupt").reason == "run_not_running"

    def test_a_running_run_has_nothing_to_reset(self, world: CoreWorld) -> None:
        world.create(RUN)
        assert world.apply(RUN, "run.reset").reason == "run_not_terminal"

    def test_an_interrupted_attempt_is_taken_up_again_after_a_resume(
        self, world: CoreWorld
    ) -> None:
        active = base_state(RUN) | {"currentNode": "work", "currentAttemptId": "a1"}
        world.create(RUN, state=active)
        world.must(RUN, "run.resume")
        assert world.run(RUN).attempts["a1"].status == "interrupted"
        world.must(
            RUN,
            "run.update",
            {"type": "note", "key": "k", "data": {}, "node_id": "work", "attempt_id": "a1"},
        )
        assert world.run(RUN).attempts["a1"].status == "running"


class TestDelete:
    """A deleted run leaves a tombstone."""

    def deleted(self, world: CoreWorld) -> None:
        world.create(RUN)
        world.must(RUN, "session.bind", {"session": "s"})
        world.must(RUN, "session.entry", {"entry": {"id": "a"}})
        assert world.must(RUN, "run.delete", {"reason": "old"}).revision == 3

    def test_it_counts_what_went(self, world: CoreWorld) -> None:
        self.deleted(world)
        run = world.run(RUN)
        grave = run.tombstone
        assert grave is not None
        assert (grave.revision, grave.events, grave.segments) == (3, 3, 1)
        assert (grave.reason, run.head, run.segments) == ("old", None, {})

    def test_its_id_is_never_used_again(self, world: CoreWorld) -> None:
        self.deleted(world)
        for kind in ("run.create", "run.resume", "run.delete"):
            assert world.apply(RUN, kind).reason == "run_deleted"

    def test_known_sequences_stay_duplicates(self, world: CoreWorld) -> None:
        self.deleted(world)
        assert world.apply(RUN, "run.create", {}, seq=1) == DUPLICATE
        assert world.apply(RUN, "run.annotate", {"title": "x"}, seq=2) == DUPLICATE
        assert world.apply(RUN, "run.delete", {"reason": "other"}, seq=4).reason == (
            "sequence_reused"
        )


class TestEffects:
    """Effects follow real transitions, for the kinds that the run asked for."""

    def run_with(self, world: CoreWorld, *kinds: str) -> None:
        world.must(RUN, "run.create", {"state": {"status": "running"}, "effects": list(kinds)})

    def turn(self, world: CoreWorld, status: str) -> int:
        return world.must(RUN, "run.snapshot", {"state": {"status": status}}).revision

    def test_each_transition_makes_one(self, world: CoreWorld) -> None:
        self.run_with(world, "run.parked", "run.settled")
        for status in ("waiting", "waiting", "running", "waiting", "completed"):
            self.turn(world, status)
        seen = [(effect.kind, effect.occurrence, effect.revision) for effect in effects(world)]
        assert seen == [("run.parked", 1, 2), ("run.parked", 2, 5), ("run.settled", 1, 6)]
        assert len({effect.effect_id for effect in effects(world)}) == 3

    def test_only_of_kinds_that_were_asked_for(self, world: CoreWorld) -> None:
        self.run_with(world, "run.settled")
        self.turn(world, "waiting")
        assert effects(world) == []

    def test_an_interrupt_settles_too_and_a_reset_makes_room_for_another(
        self, world: CoreWorld
    ) -> None:
        self.run_with(world, "run.settled")
        world.must(RUN, "run.interrupt")
        world.must(RUN, "run.reset")
        self.turn(world, "completed")
        assert [effect.occurrence for effect in effects(world)] == [1, 2]

    def test_one_is_settled_once(self, world: CoreWorld) -> None:
        self.run_with(world, "run.settled")
        self.turn(world, "completed")
        (effect,) = effects(world)
        settled = {
            "effect_id": effect.effect_id,
            "occurrence": 1,
            "status": "applied",
            "result": {"b": 1, "a": 2},
        }
        world.must(RUN, "effect.settle", settled, producer="job", at=9)
        assert (effect.status, effect.result) == ("applied", '{"a":2,"b":1}')
        assert effect.settled_at == START_MS + 9
        assert world.apply(RUN, "effect.settle", settled, producer="again") == DUPLICATE
        other = settled | {"status": "rejected"}
        assert world.apply(RUN, "effect.settle", other).reason == "effect_conflict"

    def test_an_unknown_one_is_refused(self, world: CoreWorld) -> None:
        self.run_with(world, "run.settled")
        self.turn(world, "completed")
        (effect,) = effects(world)
        settled = {"effect_id": effect.effect_id, "occurrence": 2, "status": "applied"}
        assert world.apply(RUN, "effect.settle", settled).reason == "effect_unknown"
        settled |= {"effect_id": "effect-x", "occurrence": 1}
        assert world.apply(RUN, "effect.settle", settled).reason == "effect_unknown"


class TestSnapshot:
    """A new state, and the event that it brings along."""

    def test_without_a_draft_it_is_named_by_its_dialect(self, world: CoreWorld) -> None:
        world.create(RUN)
        assert world.must(RUN, "run.snapshot", {"state": base_state(RUN)}).revision == 2

    @pytest.mark.parametrize(
        "document_, expected",
        [
            ({"status": "thinking"}, "thinking"),
            ({"status": 7}, "running"),
            ({"status": "a\0b"}, "running"),
            ({"status": "x" * 65}, "running"),
            ({}, "running"),
        ],
        ids=str,
    )
    def test_a_generic_status_is_any_short_text(
        self, world: CoreWorld, document_: dict[str, Any], expected: str
    ) -> None:
        world.must(RUN, "run.create", {})
        world.must(RUN, "run.snapshot", {"state": document_})
        assert head(world).status == expected

    def test_a_terminal_status_has_an_end(self, world: CoreWorld) -> None:
        world.must(RUN, "run.create", {})
        world.must(RUN, "run.snapshot", {"state": {"status": "failed"}}, at=3)
        assert head(world).finished_at == START_MS + 3
        world.must("run-2", "run.create", {})
        ended = {"status": "failed", "finishedAt": "2026-08-23T00:00:00.001Z"}
        world.must("run-2", "run.snapshot", {"state": ended})
        assert head(world, "run-2").finished_at == 1_787_443_200_001

    def test_steps_become_attempts(self, world: CoreWorld) -> None:
        world.create(RUN)
        outcomes = {"ok": "completed", "timed_out": "timed_out", "cancelled": "cancelled"}
        outcomes |= {"failed": "failed", "whatever": "failed"}
        steps = [
            {"attemptId": outcome, "nodeId": "work", "outcome": outcome} for outcome in outcomes
        ]
        world.must(RUN, "run.snapshot", {"state": base_state(RUN) | {"steps": steps}})
        attempts = world.run(RUN).attempts
        assert {name: attempts[name].status for name in outcomes} == outcomes
        assert [attempts[name].number for name in outcomes] == [1, 2, 3, 4, 5]

    def test_a_step_is_found_also_behind_others_that_slid_away(self, world: CoreWorld) -> None:
        steps = [
            {"attemptId": f"a{n}", "nodeId": "work", "outcome": "failed", "pad": "x" * 300}
            for n in range(10)
        ]
        world.create(RUN, state=base_state(RUN) | {"steps": steps})
        slid = [*steps[1:], {**steps[0], "attemptId": "a10"}]
        world.must(RUN, "run.snapshot", {"state": base_state(RUN) | {"steps": slid}})
        mended = [*slid[:-1], {**slid[-1], "outcome": "ok"}]
        world.must(RUN, "run.snapshot", {"state": base_state(RUN) | {"steps": mended}})
        attempts = world.run(RUN).attempts
        assert (attempts["a9"].status, attempts["a10"].status) == ("failed", "completed")
        assert (attempts["a9"].step, attempts["a10"].step) == (9, 10)
        assert (attempts["a9"].revision, attempts["a10"].revision) == (1, 3)

    def test_carried_steps_are_the_parents(self, world: CoreWorld) -> None:
        world.create(RUN)
        steps = [{"attemptId": f"a{n}", "nodeId": "work", "outcome": "ok"} for n in range(3)]
        carried = base_state(RUN) | {"steps": steps, "carriedStepCount": 2}
        world.must(RUN, "run.snapshot", {"state": carried})
        assert list(world.run(RUN).attempts) == ["a2"]


def test_an_event_keeps_the_span_that_its_message_names(stored: StoredWorld) -> None:
    span = f"00-{1:032x}-{2:016x}-01"
    stored.must(RUN, "run.create", {}, raw={b"trace": span.encode()})
    stored.must(RUN, "run.snapshot", {"state": {}})
    assert [event["trace_parent"] for event in stored.reader.trace(RUN)] == [span, None]
