"""Stream fields to command and back. Everything a writer knows of a message goes through here.

`seal` comes first and takes the token away; `decode` then says what the message asks for, or why it
is refused. A message of a newer contract version is neither: it waits for the upgrade.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import orjson
from pydantic import ValidationError

from producers.contract import limits
from producers.contract.commands import (
    MODELS,
    AppendEntry,
    AppendEvents,
    Auth,
    Command,
    Model,
    SealedAuth,
    Update,
)
from producers.contract.jsontext import JsonRefused, compact, parse_json, sorted_json
from producers.contract.reasons import Reason

Fields = Mapping[bytes, bytes]

REQUIRED = (b"v", b"kind", b"producer", b"seq", b"body")
KNOWN = frozenset((*REQUIRED, b"auth", b"reply", b"trace"))
_DIGITS = re.compile(rb"[1-9][0-9]{0,15}")
_PRODUCER = re.compile(limits.PRODUCER_PATTERN.removeprefix("^").removesuffix("$"))
_RUN_ID = re.compile(limits.RUN_ID_PATTERN.removeprefix("^").removesuffix("$"))
HIDDEN = "sha256"
"""The only key of what stands in the place of an object that could not be read."""
_REPLY_CHARS_MAX = 200
_TRACE_CHARS_MAX = 512


class Authority(NamedTuple):
    """Who claims the right to write; `token_sha256` is hex, `generation` may be left out."""

    owner_type: str
    owner_id: str
    token_sha256: str
    generation: int | None


class Decoded(NamedTuple):
    """One message, judged by its envelope alone.

    Exactly one of `command`, `reason` and `newer_version` is set. `producer` and `seq` are set
    whenever the fields name them, also for a refused message, because it still uses them up.
    """

    run: str
    message_id: str
    body_hash: bytes
    producer: str | None = None
    seq: int | None = None
    kind: str | None = None
    command: Command | None = None
    body: Mapping[str, Any] | None = None
    auth: Authority | None = None
    reply: str | None = None
    trace: str | None = None
    reason: Reason | None = None
    detail: str = ""
    newer_version: int | None = None


class _Refused(Exception):
    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(reason.value)
        self.reason = reason
        self.detail = detail


def encode(
    kind: str,
    body: Mapping[str, Any],
    *,
    producer: str,
    seq: int,
    auth: Auth | None = None,
    reply: str | None = None,
    trace: str | None = None,
) -> dict[bytes, bytes]:
    """Stream fields of a kind and a body of plain JSON values. Raises TypeError beyond 64 bits."""
    fields = {
        b"v": b"%d" % limits.CONTRACT_VERSION,
        b"kind": kind.encode(),
        b"producer": producer.encode(),
        b"seq": b"%d" % seq,
        b"body": compact(orjson.dumps(body)),
    }
    if auth is not None:
        fields[b"auth"] = orjson.dumps(auth.model_dump(exclude_none=True))
    if reply is not None:
        fields[b"reply"] = reply.encode()
    if trace is not None:
        fields[b"trace"] = trace.encode()
    return fields


def token_sha256(token: str) -> str:
    """What stands for a token everywhere but in a message's `auth`: its SHA-256, hex."""
    return sha256(token.encode(errors="surrogatepass")).hexdigest()


def seal(fields: Fields) -> dict[bytes, bytes]:
    """The same fields with the token replaced by its SHA-256, so that all else may be kept.

    An `auth` that is not a JSON object is replaced whole by its own hash: a token may be inside. So
    is a token that came by mistake as a field of its own, or at the top of a body: no kind has one
    there, so the message is refused all the same.
    """
    sealed = dict(fields)
    if b"auth" in sealed:
        sealed[b"auth"] = _seal_auth(sealed[b"auth"])
    for name in sealed.keys() - KNOWN:
        if b"token" in name.lower():
            sealed[name] = sha256(sealed[name]).hexdigest().encode()
    body = sealed.get(b"body", b"")
    if b'"token"' in body:
        torn = _hidden(body) if sealed.get(b"kind", b"").startswith(b"lease.") else body
        sealed[b"body"] = _seal_body(body, torn)
    return sealed


def _seal_body(text: bytes, torn: bytes) -> bytes:
    """The body without a token at its top; `torn` if it is not JSON."""
    try:
        body = orjson.loads(text)
    except orjson.JSONDecodeError:
        return torn
    if not isinstance(body, dict) or "token" not in body:
        return text
    token = body.pop("token")
    body["token_hidden"] = token_sha256(token if isinstance(token, str) else repr(token))
    return _dumped(body, text)


def _seal_auth(text: bytes) -> bytes:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        return _hidden(text)
    if "token_sha256" in value:
        # The hash is readable in the database, so it must never pass for the token.
        del value["token_sha256"]
        value["token_sha256_sent"] = True
    if "token" in value:
        token = value.pop("token")
        if isinstance(token, str):
            value["token_sha256"] = token_sha256(token)
        else:
            value["token_hidden"] = token_sha256(repr(token))
    return _dumped(value, text)


def _dumped(value: dict[str, Any], text: bytes) -> bytes:
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        # orjson reads deeper nesting than it writes.
        return _hidden(text)


def _hidden(text: bytes) -> bytes:
    return orjson.dumps({HIDDEN: sha256(text).hexdigest()})


def decode(run: str, message_id: str, sealed: Fields) -> Decoded:
    """Judge one sealed message by the contract alone. Never raises; never changes anything."""
    producer = _text(sealed, b"producer", _PRODUCER)
    seq = _sequence(sealed.get(b"seq", b""))
    kind_bytes = sealed.get(b"kind", b"")
    kind = kind_bytes.decode(errors="replace")[:100] or None
    text = sealed.get(b"body", b"")
    body = command = auth = trace = reason = newer = None
    detail = ""
    try:
        newer = _check_envelope(run, sealed, producer, seq)
        if newer is None:
            body = parse_json(text)
            command = _check_body(kind or "", body, len(text))
            auth = _authority(sealed)
            _text_field(sealed, b"reply", _REPLY_CHARS_MAX)
            trace = _text_field(sealed, b"trace", _TRACE_CHARS_MAX)
    except JsonRefused as refused:
        reason, detail = refused.reason, "body"
    except _Refused as refused_:
        reason, detail = refused_.reason, refused_.detail
    if reason is not None:
        command = auth = trace = None
    return Decoded(
        run,
        message_id,
        _hash(kind_bytes, text if body is None else sorted_json(body)),
        producer,
        seq,
        kind,
        command,
        None if reason is not None else body,
        auth,
        _reply(sealed),
        trace,
        reason,
        detail,
        newer,
    )


def _hash(kind: bytes, body: bytes) -> bytes:
    digest = sha256(kind)
    digest.update(b"\0")
    digest.update(body)
    return digest.digest()


def _sequence(text: bytes) -> int | None:
    if _DIGITS.fullmatch(text) is None or int(text) > limits.COUNTER_MAX:
        return None
    return int(text)


def _text(fields: Fields, name: bytes, pattern: re.Pattern[str]) -> str | None:
    try:
        text = fields.get(name, b"").decode()
    except UnicodeDecodeError:
        return None
    return text if pattern.fullmatch(text) else None


def _reply(fields: Fields) -> str | None:
    """Where the receipt goes, also that of a message which is refused for something else."""
    try:
        return _text_field(fields, b"reply", _REPLY_CHARS_MAX)
    except _Refused:
        return None


def _text_field(fields: Fields, name: bytes, chars_max: int) -> str | None:
    raw = fields.get(name)
    if raw is None:
        return None
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise _Refused(Reason.FIELD_INVALID, name.decode()) from None
    if not text.isprintable() or not 1 <= len(text) <= chars_max:
        raise _Refused(Reason.FIELD_INVALID, name.decode())
    return text


def _check_envelope(run: str, fields: Fields, producer: str | None, seq: int | None) -> int | None:
    """The contract version if it is newer than ours, None if it is ours; else refuse."""
    if _RUN_ID.fullmatch(run) is None:
        raise _Refused(Reason.RUN_ID_INVALID)
    version = fields.get(b"v")
    if version is None:
        raise _Refused(Reason.FIELD_MISSING, "v")
    if _DIGITS.fullmatch(version) is None or int(version) > limits.CONTRACT_VERSION_MAX:
        raise _Refused(Reason.VERSION_INVALID)
    if int(version) > limits.CONTRACT_VERSION:
        return int(version)
    for name in REQUIRED:
        if name not in fields:
            raise _Refused(Reason.FIELD_MISSING, name.decode())
    if not fields.keys() <= KNOWN:
        unknown = min(fields.keys() - KNOWN).decode(errors="replace")
        raise _Refused(Reason.FIELD_UNKNOWN, unknown[:100])
    if producer is None:
        raise _Refused(Reason.FIELD_INVALID, "producer")
    if seq is None:
        raise _Refused(Reason.FIELD_INVALID, "seq")
    if fields[b"kind"].decode(errors="replace") not in MODELS:
        raise _Refused(Reason.KIND_UNKNOWN)
    if len(fields[b"body"]) > limits.BODY_BYTES_MAX:
        raise _Refused(Reason.BODY_TOO_LARGE)
    return None


def _check_body(kind: str, body: Any, body_bytes: int) -> Command:
    if not isinstance(body, dict) or body.keys() == {HIDDEN}:
        raise _Refused(Reason.BODY_NOT_JSON, "body is no object")
    if "kind" in body:
        raise _Refused(Reason.FIELD_UNKNOWN, "body.kind")
    try:
        command = MODELS[kind].model_validate(body)
    except ValidationError as error:
        raise _Refused(*explain(error)) from None
    if body_bytes > limits.UPDATE_DATA_BYTES_MAX:
        oversize = over_limit(command, body)
        if oversize is not None:
            raise _Refused(oversize)
    return command  # type: ignore[return-value]


def over_limit(command: Model, body: Mapping[str, Any]) -> Reason | None:
    """The reason if a part of the body is over its own limit (bytes of its JSON, keys sorted)."""
    match command:
        case Update():
            if len(sorted_json(command.data)) > limits.UPDATE_DATA_BYTES_MAX:
                return Reason.UPDATE_TOO_LARGE
        case AppendEntry():
            if len(sorted_json(command.entry)) > limits.ENTRY_BYTES_MAX:
                return Reason.ENTRY_TOO_LARGE
        case AppendEvents():
            if any(
                len(sorted_json(event)) > limits.SESSION_EVENT_BYTES_MAX for event in body["events"]
            ):
                return Reason.EVENT_TOO_LARGE
    return None


def explain(error: ValidationError) -> tuple[Reason, str]:
    """Reason and place of a model's first complaint, without the offending value."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(step)[:60] for step in first["loc"])[:200]
    reason = {
        "missing": Reason.FIELD_MISSING,
        "extra_forbidden": Reason.FIELD_UNKNOWN,
    }.get(first["type"], Reason.FIELD_INVALID)
    return reason, place


def _authority(fields: Fields) -> Authority | None:
    text = fields.get(b"auth")
    if text is None:
        return None
    try:
        value = parse_json(text)
        if isinstance(value, dict) and value.keys() == {HIDDEN}:
            raise _Refused(Reason.FIELD_INVALID, "auth")
        auth = SealedAuth.model_validate(value)
    except JsonRefused:
        raise _Refused(Reason.FIELD_INVALID, "auth") from None
    except ValidationError as error:
        reason, place = explain(error)
        raise _Refused(reason, f"auth.{place}") from None
    return Authority(auth.owner_type, auth.owner_id, auth.token_sha256, auth.generation)


def fields_text(fields: Fields) -> str:
    """Sealed fields as a JSON object, byte for byte: what rejections and archives keep.

    A value that is not UTF-8 becomes `{"hex": "..."}`; names are read as Latin-1.
    """
    named = {name.decode("latin-1"): _value_text(value) for name, value in fields.items()}
    return orjson.dumps(named).decode()


def _value_text(value: bytes) -> str | dict[str, str]:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"hex": value.hex()}


def fields_of(named: Mapping[str, Any]) -> dict[bytes, bytes]:
    """The fields that `fields_text` made an object of."""
    return {
        name.encode("latin-1"): value.encode()
        if isinstance(value, str)
        else bytes.fromhex(value["hex"])
        for name, value in named.items()
    }
