"""The contract as JSON Schema, for hosts in other languages. `schema.json` beside it is this,
committed.
"""

from __future__ import annotations

from typing import Any

from producers.contract import limits
from producers.contract.commands import COMMANDS, Auth
from producers.contract.reasons import Reason

_FIELDS: dict[str, dict[str, Any]] = {
    "v": {"type": "string", "const": str(limits.CONTRACT_VERSION)},
    "kind": {"type": "string", "description": "One of the kinds in `commands`."},
    "producer": {"type": "string", "pattern": limits.PRODUCER_PATTERN},
    "seq": {"type": "string", "pattern": "^[1-9][0-9]{0,15}$"},
    "body": {"type": "string", "contentMediaType": "application/json"},
    "auth": {"type": "string", "contentMediaType": "application/json"},
    "reply": {"type": "string", "minLength": 1},
    "trace": {"type": "string", "minLength": 1},
}


def contract_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of the stream fields, every command's body, and `auth`.

    A body is one of `commands` without its `kind`, which travels as a field of its own.
    """
    commands = COMMANDS.json_schema(ref_template="#/$defs/{model}")
    definitions = commands.pop("$defs")
    authority = Auth.model_json_schema(ref_template="#/$defs/{model}")
    definitions.update(authority.pop("$defs", {}))
    definitions["Auth"] = authority
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "statewriter wire contract",
        "version": limits.CONTRACT_VERSION,
        "fields": {
            "type": "object",
            "properties": _FIELDS,
            "required": ["v", "kind", "producer", "seq", "body"],
            "additionalProperties": False,
        },
        "run_id": {"type": "string", "pattern": limits.RUN_ID_PATTERN},
        "auth": {"$ref": "#/$defs/Auth"},
        "commands": commands,
        "reasons": {reason.value: reason.sentence for reason in Reason},
        "$defs": definitions,
    }
