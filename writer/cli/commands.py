"""One line of `send` to the stream fields that it stands for. The writer judges them, not we."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from producers.contract.envelope import decode, seal
from producers.contract.limits import CONTRACT_VERSION, COUNTER_MAX
from writer.cli.lines import BadLine, parse_object, text_of

OURS = frozenset(("run", "fields", "producer", "seq"))
ABSENT = b"null"
NUMBERS = {b"producer": b"p", b"seq": b"1"}
"""What stands for numbers that are not given yet."""


@dataclass(slots=True)
class Command:
    """A message to be sent. `producer` and `seq` are what its fields say of them, if it is usable.

    `whole`: its fields are given as they are, and nothing may be filled in.
    """

    line: int
    run: str
    kind: str | None
    fields: dict[bytes, bytes]
    producer: str | None = None
    seq: int | None = None
    whole: bool = False
    message_id: str = ""

    @property
    def size_bytes(self) -> int:
        """Bytes of its fields."""
        return sum(len(name) + len(value) for name, value in self.fields.items())


def parse_command(number: int, text: bytes) -> Command:
    """The command of a line. Raises BadLine unless it is a JSON object with a `run`.

    `producer`, `kind` and the like travel as they are; a value of a wrong type travels as its JSON
    text, and members that we do not know as fields: the writer says what is wrong with them.
    """
    members = parse_object(text)
    run = text_of(members["run"]) if "run" in members else None
    if not run:
        raise BadLine("no `run`, or one that is no text")
    if "fields" in members:
        return _raw_command(number, run, members)
    fields = {b"v": b"%d" % CONTRACT_VERSION}
    for name, member in members.items():
        if name in OURS or (member == ABSENT and name in ("auth", "reply", "trace")):
            continue
        as_text = None if name in ("body", "auth") else text_of(member)
        fields[name.encode()] = member if as_text is None else as_text.encode()
    command = Command(number, run, _shown(fields.get(b"kind")), fields)
    _take_numbers(command, members)
    return command


def _take_numbers(command: Command, members: Mapping[str, bytes]) -> None:
    """Producer and sequence that the line names, right or wrong."""
    producer, seq = members.get("producer", ABSENT), members.get("seq", ABSENT)
    if producer != ABSENT:
        command.producer = text_of(producer)
        named = producer if command.producer is None else command.producer.encode()
        command.fields[b"producer"] = named
    if seq != ABSENT:
        command.seq = int(seq) if _is_counter(seq) else None
        command.fields[b"seq"] = seq


def _is_counter(text: bytes) -> bool:
    return text.isdigit() and len(text) <= 16 and not text.startswith(b"0") and _small(text)


def _small(text: bytes) -> bool:
    return int(text) <= COUNTER_MAX


def _raw_command(number: int, run: str, members: Mapping[str, bytes]) -> Command:
    """Fields as they are; a value that is not UTF-8 is `{"hex": "..."}`, as rejections show it."""
    try:
        given: Any = orjson.loads(members["fields"])
    except orjson.JSONDecodeError:
        raise BadLine("`fields` can not be kept exactly") from None
    if not isinstance(given, dict) or not given:
        raise BadLine("`fields` is no JSON object with members")
    fields = {_name(name): _value(value) for name, value in given.items()}
    command = Command(number, run, _shown(fields.get(b"kind")), fields, whole=True)
    command.producer = _shown(fields.get(b"producer"))
    seq = fields.get(b"seq", b"")
    command.seq = int(seq) if _is_counter(seq) else None
    return command


def _name(name: str) -> bytes:
    try:
        return name.encode("latin-1")
    except UnicodeEncodeError:
        return name.encode()


def _value(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"hex"} and isinstance(value["hex"], str):
        try:
            return bytes.fromhex(value["hex"])
        except ValueError:
            raise BadLine("`fields` has a `hex` that is none") from None
    return orjson.dumps(value)


def _shown(value: bytes | None) -> str | None:
    return None if value is None else value[:200].decode(errors="replace")


def check(command: Command) -> None:
    """Raise BadLine if the writer would refuse the command by the contract alone.

    Before it is numbered: what is passed over must not leave a gap.
    """
    filled = command.fields if command.whole else {**NUMBERS, **command.fields}
    judged = decode(command.run, "0-1", seal(filled))
    if judged.reason is not None:
        place = f" ({judged.detail})" if judged.detail else ""
        raise BadLine(f"{judged.reason.value}: {judged.reason.sentence}{place}")
    if judged.newer_version is not None:
        raise BadLine(f"version {judged.newer_version} of the contract is newer than this one's")
