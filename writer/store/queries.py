"""Named queries out of `.sql` files: each begins with a line `-- :name load_run`."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- :name (\w+)\s*$", re.MULTILINE)


@cache
def script(name: str) -> str:
    """The text of a file below `writer/store/sql`."""
    return files("writer.store").joinpath("sql", name).read_text(encoding="utf-8")


def named(name: str) -> dict[str, str]:
    """The named queries of a file, each without its name line."""
    pieces = _NAME.split(script(name))
    return {title: query.strip() for title, query in zip(pieces[1::2], pieces[2::2], strict=True)}
