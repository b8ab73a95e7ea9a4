"""A kind and a body to the bytes that travel, refusing at the call what the writer would refuse.

The judgement is the writer's (the contract's models and limits), on top of it stands what only the
sending side can see: a value that its JSON text would not say again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from math import isfinite
from types import NoneType
from typing import Any, NoReturn

import orjson
from pydantic import ValidationError

from producers.contract import limits
from producers.contract.commands import MODELS, Auth
from producers.contract.envelope import explain, over_limit
from producers.contract.jsontext import compact
from producers.contract.reasons import Reason
from producers.errors import InvalidCommand

DUMP_OPTIONS = orjson.OPT_PASSTHROUGH_DATACLASS
"""orjson would leave out fields of a dataclass whose names begin with an underscore."""
_SCALARS = frozenset((str, int, bool, NoneType))
_CONTAINERS = frozenset((dict, list, tuple))
_STEP_CHARS_MAX = 60
_PLACE_CHARS_MAX = 200
_RUN_ID = re.compile(limits.RUN_ID_PATTERN.removeprefix("^").removesuffix("$"))
_PRODUCER = re.compile(limits.PRODUCER_PATTERN.removeprefix("^").removesuffix("$"))


def check_run_id(run: Any) -> str:
    """Return the run id if the contract allows it, else raise InvalidCommand."""
    if not isinstance(run, str) or _RUN_ID.fullmatch(run) is None:
        raise InvalidCommand(Reason.RUN_ID_INVALID, "run")
    return run


def check_producer(producer: Any) -> str:
    """Return the producer id if the contract allows it, else raise InvalidCommand."""
    if not isinstance(producer, str) or _PRODUCER.fullmatch(producer) is None:
        raise InvalidCommand(Reason.FIELD_INVALID, "producer")
    return producer


def check_sequence(seq: Any) -> int:
    """Return the sequence if it is a whole number from 1 to 2^53-1, else raise InvalidCommand."""
    if type(seq) is not int or not 1 <= seq <= limits.COUNTER_MAX:
        raise InvalidCommand(Reason.FIELD_INVALID, "seq")
    return seq


def make_auth(**fields: Any) -> Auth:
    """An authority of these fields. Raises InvalidCommand, never naming the token."""
    try:
        return Auth(**fields)
    except ValidationError as error:
        reason, place = explain(error)
    raise InvalidCommand(reason, f"auth.{place}")


def encode_body(kind: str, body: Mapping[str, Any]) -> bytes:
    """JSON text of the body of a command.

    Documents may hold what JSON can say, and tuples, enums, UUIDs and datetimes, which travel as
    their JSON. Raises InvalidCommand for all that the writer would refuse by the contract alone.
    """
    model = MODELS.get(kind)
    if model is None:
        raise InvalidCommand(Reason.KIND_UNKNOWN, "kind")
    if not isinstance(body, dict):
        raise InvalidCommand(Reason.BODY_NOT_JSON, "body")
    if "kind" in body:
        raise InvalidCommand(Reason.FIELD_UNKNOWN, "kind")
    try:
        text = orjson.dumps(body, option=DUMP_OPTIONS)
    except TypeError:
        text = b""
    if len(text) > limits.BODY_BYTES_MAX:
        raise InvalidCommand(Reason.BODY_TOO_LARGE, "body")
    if not text or not is_exact(body):
        _refuse(body)
    try:
        # What `model_validate` calls after looking at arguments that are not given.
        command = model.__pydantic_validator__.validate_python(body)
    except ValidationError as error:
        fault: tuple[Reason, str] | None = explain(error)
    else:
        fault = None
        if len(text) > limits.UPDATE_DATA_BYTES_MAX:
            oversize = over_limit(command, body)
            fault = (oversize, "") if oversize is not None else None
    if fault is not None:
        raise InvalidCommand(*fault)
    return compact(text)


def is_exact(document: dict[str, Any] | list[Any], depth: int = 0) -> bool:
    """Whether text that orjson made of it says the same: it writes NaN as null, for one.

    It must not nest too deep below so many levels.
    """
    level: list[Any] = [document]
    while level:
        depth += 1
        if depth > limits.NESTING_DEPTH_MAX:
            return False
        below: list[Any] = []
        for container in level:
            members = container.values() if isinstance(container, dict) else container
            for member in members:
                kind = type(member)
                if kind in _SCALARS:
                    continue
                if kind in _CONTAINERS:
                    below.append(member)
                elif kind is float:
                    if not isfinite(member):
                        return False
                elif isinstance(member, dict | list):
                    below.append(member)
                elif isinstance(member, orjson.Fragment | Enum) and not _is_exact_leaf(member):
                    return False
        level = below
    return True


def _is_exact_leaf(member: orjson.Fragment | Enum) -> bool:
    # A fragment is text that nobody has judged; an enum may hide a NaN or a container.
    if not isinstance(member, Enum):
        return False
    value = member.value
    return type(value) in _SCALARS or (type(value) is float and isfinite(value))


def _refuse(body: dict[str, Any]) -> NoReturn:
    """Raise InvalidCommand for the first value that can not travel. Slow, so only on refusal."""
    reason, path = _find_fault(body, []) or (Reason.BODY_NOT_JSON, [])
    place = ".".join(step[:_STEP_CHARS_MAX] for step in path)[:_PLACE_CHARS_MAX]
    raise InvalidCommand(reason, place.encode(errors="replace").decode())


def _find_fault(value: Any, path: list[str]) -> tuple[Reason, list[str]] | None:
    if isinstance(value, dict | list) or type(value) is tuple:
        return _find_fault_within(value, path)
    if isinstance(value, float):
        return None if isfinite(value) else (Reason.NUMBER_NOT_EXACT, path)
    if isinstance(value, int) and not limits.INTEGER_MIN <= value <= limits.INTEGER_MAX:
        return Reason.NUMBER_NOT_EXACT, path
    if isinstance(value, str) and not _is_unicode(value):
        return Reason.TEXT_NOT_EXACT, path
    if isinstance(value, Enum):
        inner = _find_fault(value.value, path)
        return inner or (None if _is_exact_leaf(value) else (Reason.BODY_NOT_JSON, path))
    return None if _is_json(value) else (Reason.BODY_NOT_JSON, path)


def _find_fault_within(
    container: dict[Any, Any] | list[Any] | tuple[Any, ...], path: list[str]
) -> tuple[Reason, list[str]] | None:
    if len(path) >= limits.NESTING_DEPTH_MAX:
        return Reason.BODY_TOO_DEEP, path
    members = container.items() if isinstance(container, dict) else enumerate(container)
    for key, member in members:
        if isinstance(container, dict) and type(key) is not str:
            return Reason.BODY_NOT_JSON, path
        if isinstance(key, str) and not _is_unicode(key):
            return Reason.TEXT_NOT_EXACT, path
        fault = _find_fault(member, [*path, str(key)])
        if fault is not None:
            return fault
    return None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_json(value: Any) -> bool:
    if isinstance(value, orjson.Fragment):
        return False
    try:
        orjson.dumps(value, option=DUMP_OPTIONS)
    except TypeError:
        return False
    return True
