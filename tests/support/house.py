"""The house rules, each a function from one parsed source file to what it finds wrong with it.

`tests/test_tidy.py` runs them over the repository, and over a snippet that each must catch.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath

FILE_LINES_MAX = 420
FUNCTION_LINES_MAX = 60
COLUMNS_MAX = 100

CLOCKS = ("writer/clock.py", "producers/clock.py")
BANNED_STEMS = {"utils", "util", "common", "helpers", "helper", "manager", "service", "base"}
PURE = ("writer/core/", "writer/dialects/")
# Not even for something harmless: what a run became must be a function of its messages.
IMPURE = {"time", "random", "uuid", "secrets", "os", "socket", "threading", "asyncio", "logging"}
# Pure functions from JSON to bytes, and what travels.
CORE_MAY_IMPORT = {"orjson", "rfc8785", "producers.contract", "writer.core"}

SQL = re.compile(
    r"\bSELECT\b.+\bFROM\b|\bINSERT\s+(OR\s+\w+\s+)?INTO\b|\bUPDATE\b.+\bSET\b|\bDELETE\s+FROM\b",
    re.DOTALL,
)
# Spelled in two halves, so that this file does not break its own rule.
ELSEWHERE = re.compile(
    r"(?<![\w.~-])/wor"
    r"k/|\.\./shar"
    r"ed\b|pypi\.o"
    r"rg|files\.pythonhos"
    r"ted\.org|registry\.npm"
    r"js\.org|deb\.debi"
    r"an\.org"
)


@dataclass(frozen=True)
class Source:
    """One Python file: its path from the top of the repository, and its text."""

    path: str
    text: str
    tree: ast.Module = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tree", ast.parse(self.text, self.path))

    @property
    def module(self) -> str:
        """Dotted name; a package's is that of its `__init__`."""
        parts = PurePosixPath(self.path).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def under(self, *places: str) -> bool:
        """Whether it lies in one of these folders (`a/b/`) or is one of these files."""
        return self.path.startswith(places)

    def imports(self) -> Iterator[tuple[int, str]]:
        """(line, dotted name) of all it imports; `from a import b` counts as `a` and `a.b`."""
        package = (
            self.module if self.path.endswith("__init__.py") else self.module.rpartition(".")[0]
        )
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                origin = node.module or ""
                if node.level:
                    above = package.split(".")[: len(package.split(".")) - node.level + 1]
                    origin = ".".join([*above, origin] if origin else above)
                yield node.lineno, origin
                yield from ((node.lineno, f"{origin}.{alias.name}") for alias in node.names)


Findings = Iterator[tuple[int, str]]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def is_within(name: str, package: str) -> bool:
    """Whether a dotted name is this package or lies in it."""
    return name == package or name.startswith(f"{package}.")


def file_is_short(source: Source) -> Findings:
    if source.under("producers/", "writer/"):
        lines = source.text.count("\n")
        if lines > FILE_LINES_MAX:
            yield lines, f"has {lines} lines, over {FILE_LINES_MAX}: two files"


def functions_are_short(source: Source) -> Findings:
    if not source.under("producers/", "writer/"):
        return
    for node in ast.walk(source.tree):
        if isinstance(node, Function):
            assert node.end_lineno is not None
            lines = node.end_lineno - node.lineno + 1
            first = node.body[0]
            if ast.get_docstring(node) is not None and first.end_lineno is not None:
                lines -= first.end_lineno - first.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield node.lineno, f"{node.name} has {lines} lines, over {FUNCTION_LINES_MAX}"


def lines_are_short(source: Source) -> Findings:
    for number, line in enumerate(source.text.splitlines(), 1):
        if len(line) > COLUMNS_MAX:
            yield number, f"has {len(line)} columns, over {COLUMNS_MAX}"


def names_say_what_is_inside(source: Source) -> Findings:
    if PurePosixPath(source.path).stem in BANNED_STEMS:
        yield 1, "has a name that fits anything: call it after its noun"


def nothing_is_mocked_or_pickled(source: Source) -> Findings:
    for line, name in source.imports():
        if any(is_within(name, banned) for banned in ("unittest.mock", "mock", "pickle")):
            yield line, f"imports {name}"
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "monkeypatch.setattr":
            yield node.lineno, "replaces code under test: pass it in instead"


def the_core_is_pure(source: Source) -> Findings:
    if not source.under(*PURE):
        return
    banned = IMPURE | {"datetime"} if source.under("writer/core/") else IMPURE
    for line, name in source.imports():
        if any(is_within(name, module) for module in banned):
            yield line, f"imports {name} where decisions are made"
        elif (
            source.under("writer/core/")
            and name.partition(".")[0] not in sys.stdlib_module_names
            and not any(is_within(name, allowed) for allowed in CORE_MAY_IMPORT)
            and name not in ("producers", "writer")
        ):
            yield line, f"the core imports {name}"


def one_file_asks_for_the_time(source: Source) -> Findings:
    if not source.under("producers/", "writer/") or source.path in CLOCKS:
        return
    for line, name in source.imports():
        if is_within(name, "time"):
            yield line, f"imports time: ask {CLOCKS[0]} or {CLOCKS[1]}"
    for node in ast.walk(source.tree):
        if (
            isinstance(node, ast.Attribute)
            and node.attr in ("now", "utcnow", "today")
            and ast.unparse(node.value).split(".")[-1] in ("datetime", "date")
        ):
            yield node.lineno, f"{ast.unparse(node)}: ask {CLOCKS[0]} or {CLOCKS[1]}"


def drivers_have_one_home(source: Source) -> Findings:
    if not source.under("producers/", "writer/"):
        return
    homes = {
        "apsw": ("writer/store/",),
        "sqlite3": ("writer/store/",),
        "redis": ("producers/", "writer/streams/", "writer/embedded.py"),
    }
    for line, name in source.imports():
        home = homes.get(name.partition(".")[0])
        if home is not None and not source.under(*home):
            yield line, f"imports {name}, which only {' and '.join(home)} may"


def sql_stands_in_the_store(source: Source) -> Findings:
    if not source.under("producers/", "writer/") or source.under("writer/store/"):
        return
    prose = {id(node.value) for node in ast.walk(source.tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.JoinedStr):
            text = "?".join(
                part.value
                for part in node.values
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if id(node) not in prose and SQL.search(text):
            yield node.lineno, "holds SQL outside writer/store"


def no_error_is_swallowed(source: Source) -> Findings:
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        if node.type is None:
            yield node.lineno, "has a bare except"
            continue
        caught = {ast.unparse(name) for name in getattr(node.type, "elts", [node.type])}
        silent = all(
            isinstance(step, ast.Pass | ast.Continue)
            or (isinstance(step, ast.Expr) and isinstance(step.value, ast.Constant))
            for step in node.body
        )
        if silent and caught & {"Exception", "BaseException"}:
            yield node.lineno, "swallows every error"


def what_is_public_is_described(source: Source) -> Findings:
    if not source.under("producers/", "writer/"):
        return
    if source.text.strip() and ast.get_docstring(source.tree) is None:
        yield 1, "the module has no docstring"
    yield from _undescribed(source.tree.body)


def _undescribed(body: list[ast.stmt]) -> Findings:
    for node in body:
        if not isinstance(node, ast.ClassDef | Function) or node.name.startswith("_"):
            continue
        if ast.get_docstring(node) is None and not _described_elsewhere(node):
            yield node.lineno, f"{node.name} has no docstring"
        if isinstance(node, ast.ClassDef):
            yield from _undescribed(node.body)


def _described_elsewhere(node: ast.ClassDef | Function) -> bool:
    """Overloads, overrides and the other halves of a property."""
    decorators = {ast.unparse(each).split(".")[-1] for each in node.decorator_list}
    return bool(decorators & {"overload", "override", "setter", "deleter"})


RULES = (
    file_is_short,
    functions_are_short,
    lines_are_short,
    names_say_what_is_inside,
    nothing_is_mocked_or_pickled,
    the_core_is_pure,
    one_file_asks_for_the_time,
    drivers_have_one_home,
    sql_stands_in_the_store,
    no_error_is_swallowed,
    what_is_public_is_described,
)


def dead_modules(sources: list[Source], entrances: set[str]) -> list[str]:
    """Modules of the packages that no other module of them imports, nor names in a string.

    A string counts since the command line imports its commands late, by name.
    """
    packages = [source for source in sources if source.under("producers/", "writer/")]
    alive = set(entrances)
    for source in packages:
        for _, name in source.imports():
            if name != source.module:
                alive.add(name)
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                alive.add(node.value)
    return [
        source.path
        for source in packages
        if source.module not in alive and not source.path.endswith(("__init__.py", "__main__.py"))
    ]
