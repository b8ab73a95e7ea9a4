"""The one table of what can go wrong: every row is real, and says what it is and what to do."""

from __future__ import annotations

from importlib import import_module

import pytest

from writer.errors import (
    FAULTS,
    Defect,
    Fault,
    RedisUnavailable,
    Retry,
    Stop,
    StoreUnavailable,
    translate,
    translated,
)


def made(name: str) -> BaseException:
    """An exception of a library's class, as it may be raised."""
    module, _, kind = name.rpartition(".")
    error: BaseException = getattr(import_module(module), kind)("as the library says it")
    return error


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.error)
def test_each_row_is_an_exception_that_there_is(fault: Fault) -> None:
    ours = translate(made(fault.error), "p00.sqlite")
    assert type(ours) is fault.becomes
    assert str(ours) == f"p00.sqlite: {fault.cause} (as the library says it)"
    assert ours.hint == fault.hint


def test_each_exception_has_one_row() -> None:
    names = [fault.error for fault in FAULTS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.error)
def test_whatever_may_pass_is_waited_for_and_only_damage_stops(fault: Fault) -> None:
    damage = ("apsw.CorruptError", "apsw.NotADBError")
    family = Stop if fault.error in damage else Retry
    assert issubclass(fault.becomes, family)
    side = StoreUnavailable if fault.error.startswith("apsw") else RedisUnavailable
    assert family is Stop or fault.becomes is side


def test_of_a_class_and_its_bases_the_nearest_counts() -> None:
    """A replica's refusal is a response error of redis-py's, and that an error of it."""
    ours = translate(made("redis.exceptions.ReadOnlyError"), "redis")
    assert "replica" in str(ours)
    assert "answers with an error" in str(
        translate(made("redis.exceptions.ResponseError"), "redis")
    )


def test_what_is_in_no_row_is_unexpected() -> None:
    """Then the batch is halved, down to the command at fault."""
    assert translate(ValueError("x"), "p00.sqlite") is None
    assert translate(made("apsw.ConstraintError"), "p00.sqlite") is None
    with pytest.raises(ValueError, match="x"), translated("p00.sqlite"):
        raise ValueError("x")


def test_ours_goes_through_as_it_is() -> None:
    with pytest.raises(Defect), translated("p00.sqlite"):
        raise Defect("in the core")


def test_each_way_to_end_has_an_exit_code_of_its_own() -> None:
    codes = [kind.exit_code for kind in Stop.__subclasses__()]
    assert len(codes) == len(set(codes))
    assert all(20 < code < 30 for code in codes)
