"""The house rules, as a test. What each means stands in `tests/support/house.py`."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import house
from tests.support.house import RULES, Findings, Source, dead_modules

TOP = Path(__file__).parent.parent
SKIPPED = {"__pycache__", "node_modules"}
SKIPPED_AT_TOP = {"build", "data", "demo-data", "dist"}

# Imported by hosts and users rather than by us. Each is documented as an entrance.
ENTRANCES = {
    "writer.cli",
    "producers.integrations.agents",
    "producers.integrations.langgraph",
    "producers.integrations.logs",
}


def files() -> Iterator[Path]:
    """Every file that a commit could hold, in order."""
    for folder, folders, names in os.walk(TOP):
        folders[:] = sorted(
            name
            for name in folders
            if name not in SKIPPED
            and not (Path(folder) == TOP and name in SKIPPED_AT_TOP)
            and not name.endswith(".egg-info")
            and (not name.startswith(".") or name in (".ci", ".github"))
        )
        yield from (Path(folder, name) for name in sorted(names))


@pytest.fixture(scope="module")
def sources() -> list[Source]:
    """Every Python file of the packages and the tests."""
    found = []
    for path in files():
        place = path.relative_to(TOP).as_posix()
        if path.suffix == ".py" and place.startswith(("producers/", "writer/", "tests/")):
            found.append(Source(place, path.read_text(encoding="utf-8")))
    return found


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_house_rule(rule: Callable[[Source], Findings], sources: list[Source]) -> None:
    found = [f"{source.path}:{line}: {what}" for source in sources for line, what in rule(source)]
    assert not found, "\n" + "\n".join(found)


def test_no_module_is_dead(sources: list[Source]) -> None:
    dead = dead_modules(sources, ENTRANCES)
    assert not dead, "imported by nobody:\n" + "\n".join(dead)


def test_the_repository_stands_alone() -> None:
    found = []
    for path in files():
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        found += [
            f"{path.relative_to(TOP)}:{number}: {match[0]}"
            for number, line in enumerate(lines, 1)
            if (match := house.ELSEWHERE.search(line))
        ]
    assert not found, "names a place that others do not have:\n" + "\n".join(found)


def test_files_that_are_not_python_are_packaged() -> None:
    declared = tomllib.loads((TOP / "pyproject.toml").read_text())["tool"]["setuptools"]
    packaged = {
        path
        for package, patterns in declared["package-data"].items()
        for pattern in patterns
        for path in TOP.joinpath(*package.split(".")).glob(pattern)
    }
    others = [
        path
        for path in files()
        if path.relative_to(TOP).parts[0] in ("producers", "writer") and path.suffix != ".py"
    ]
    forgotten = [str(path.relative_to(TOP)) for path in others if path not in packaged]
    assert not forgotten, "add to package-data in pyproject.toml:\n" + "\n".join(forgotten)


def test_packages_need_no_luck_to_be_found() -> None:
    """Setuptools leaves out folders without `__init__.py` only sometimes."""
    missing = {
        path.parent.relative_to(TOP).as_posix()
        for package in ("producers", "writer")
        for path in (TOP / package).rglob("*.py")
        if not (path.parent / "__init__.py").exists()
    }
    assert not missing


LONG_FUNCTION = "def f():\n" + "    x = 1\n" * 60
DESCRIBED = '"""Why."""\n'


@pytest.mark.parametrize(
    "rule, path, text",
    [
        (house.file_is_short, "writer/x.py", "\n" * 421),
        (house.functions_are_short, "writer/x.py", LONG_FUNCTION),
        (house.lines_are_short, "tests/x.py", "#" * 101),
        (house.names_say_what_is_inside, "writer/utils.py", ""),
        (house.nothing_is_mocked_or_pickled, "tests/x.py", "from unittest import mock"),
        (house.nothing_is_mocked_or_pickled, "tests/x.py", "from unittest.mock import patch"),
        (house.nothing_is_mocked_or_pickled, "writer/x.py", "import pickle"),
        (house.nothing_is_mocked_or_pickled, "tests/x.py", "monkeypatch.setattr(x, 'y', 1)"),
        (house.the_core_is_pure, "writer/core/x.py", "import time"),
        (house.the_core_is_pure, "writer/core/x.py", "from datetime import UTC"),
        (house.the_core_is_pure, "writer/core/x.py", "from os import urandom"),
        (house.the_core_is_pure, "writer/core/x.py", "import apsw"),
        (house.the_core_is_pure, "writer/core/x.py", "from writer import store"),
        (house.the_core_is_pure, "writer/core/x.py", "from ..store import load"),
        (house.the_core_is_pure, "writer/core/x.py", "from producers.client import Producer"),
        (house.the_core_is_pure, "writer/dialects/x.py", "import uuid"),
        (house.one_file_asks_for_the_time, "writer/daemon.py", "from time import sleep"),
        (house.one_file_asks_for_the_time, "producers/x.py", "x = datetime.datetime.now()"),
        (house.drivers_have_one_home, "writer/cli/x.py", "import apsw"),
        (house.drivers_have_one_home, "writer/store/x.py", "from redis import Redis"),
        (house.sql_stands_in_the_store, "writer/cli.py", "q = 'SELECT a FROM b'"),
        (house.sql_stands_in_the_store, "writer/cli.py", "q = f'DELETE FROM {x}'"),
        (house.sql_stands_in_the_store, "writer/cli.py", "q = f'UPDATE {x} SET a = 1'"),
        (house.no_error_is_swallowed, "tests/x.py", "try: pass\nexcept: raise"),
        (house.no_error_is_swallowed, "tests/x.py", "try: x\nexcept (A, Exception): pass"),
        (house.what_is_public_is_described, "writer/x.py", DESCRIBED + "def f(): pass"),
        (house.what_is_public_is_described, "writer/x.py", "x = 1"),
        (
            house.what_is_public_is_described,
            "writer/x.py",
            DESCRIBED + "class A:\n    'Why.'\n    def f(self): pass",
        ),
    ],
)
def test_a_rule_catches(rule: Callable[[Source], Findings], path: str, text: str) -> None:
    assert list(rule(Source(path, text)))


@pytest.mark.parametrize(
    "path, text",
    [
        ("writer/clock.py", DESCRIBED + "import time"),
        (
            "writer/core/x.py",
            DESCRIBED + "import zlib, orjson\nfrom producers.contract import kind",
        ),
        ("writer/store/x.py", DESCRIBED + "import apsw\nq = 'SELECT a FROM b'"),
        ("writer/cli.py", '"""How to SELECT rows FROM it."""\nhint = "select a run from the list"'),
        ("writer/x.py", DESCRIBED + "try: x\nexcept Exception: raise Y from None"),
    ],
)
def test_rules_leave_alone(path: str, text: str) -> None:
    assert [found for rule in RULES for found in rule(Source(path, text))] == []


@pytest.mark.parametrize("halves", [("see /wor", "k/main"), ("../shar", "ed/x"), ("pypi.o", "rg")])
def test_a_place_that_others_do_not_have_is_found(halves: tuple[str, str]) -> None:
    assert house.ELSEWHERE.search("".join(halves))


def test_a_dead_module_is_found() -> None:
    tree = {
        "writer/__init__.py": "",
        "writer/cli.py": "from . import late\nload('writer.named')",
        "writer/late.py": "",
        "writer/named.py": "",
        "writer/dead.py": "import writer.dead",
    }
    sources = [Source(path, text) for path, text in tree.items()]
    assert dead_modules(sources, {"writer.cli"}) == ["writer/dead.py"]
