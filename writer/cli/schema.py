"""`schema`: the wire contract, for hosts in other languages."""

from __future__ import annotations

import sys

import typer

from writer.cli.options import AsJson, Data, Redis, examples


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "schema",
        epilog=examples("statewriter schema > contract.json", "statewriter schema | jq '.reasons'"),
    )(schema)


def schema(data: Data = None, redis: Redis = None, as_json: AsJson = False) -> None:
    """Print the wire contract as JSON Schema.

    It depends on nothing but the version: the options change nothing.
    """
    import orjson

    from producers.contract.schema import contract_schema

    shown = orjson.dumps(contract_schema(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    sys.stdout.buffer.write(shown)
