"""What `docs/guarantees.md` and `docs/recovery.md` say can be typed as it stands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from writer.cli import app
from writer.cli.exits import MEANINGS

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "guarantees.md", DOCS / "recovery.md"]


def commands(page: Path) -> list[str]:
    """Every command that a page shows."""
    text = page.read_text(encoding="utf-8")
    shown = re.findall(r"`([^`\n]+)`", text) + re.findall(r"^ {4,}(.+)$", text, re.MULTILINE)
    lines = [re.sub(r"^TOKEN=\S+ ", "", line) for line in shown]
    return [line for line in lines if line.startswith("statewriter ")]


ALL = sorted({line for page in PAGES for line in commands(page)})


@pytest.mark.parametrize("line", ALL)
def test_a_command_exists_with_its_options(line: str) -> None:
    command: Any = typer.main.get_command(app)
    _, *words = shlex.split(line)
    while words and hasattr(command, "commands") and words[0] in command.commands:
        command = command.commands[words.pop(0)]
    assert not hasattr(command, "commands"), f"{line}: no such command"
    known = {name for parameter in command.params for name in parameter.opts}
    for word in words:
        if word.startswith("-"):
            assert word in known, f"{line}: no {word}"


def test_the_pages_show_what_there_is() -> None:
    shown = " ".join(ALL)
    for name in ("verify", "replay", "backup", "restore", "lease break", "quarantine skip",
                 "quarantine resume", "quarantine list", "quarantine show", "rejections redrive",
                 "rejections drop"):  # fmt: skip
        assert f"statewriter {name}" in shown


def test_exit_codes_that_are_named_exist() -> None:
    text = (DOCS / "recovery.md").read_text()
    codes = {int(code) for pair in re.findall(r"codes? (\d+)(?: or (\d+))?", text) for code in pair
             if code}  # fmt: skip
    assert codes
    assert codes <= MEANINGS.keys()


def test_every_promise_says_what_it_rests_on_and_what_it_does_not_say() -> None:
    text = (DOCS / "guarantees.md").read_text()
    promises = re.split(r"^## \d+\. ", text, flags=re.MULTILINE)[1:]
    assert len(promises) == 11
    for promise in promises:
        for part in ("**Rests on**", "**Configure**", "**Not promised**"):
            assert part in promise, promise[:40]
