"""What a newer statewriter wrote is refused in words, and nothing is written."""

from __future__ import annotations

import shutil
from pathlib import Path

import apsw
import pytest

from tests.operations.site import Site
from tests.operations.test_replay import some_history
from writer.errors import FileTooNew

COMMANDS = [
    ["runs"],
    ["show", "run-1"],
    ["trace", "run-1"],
    ["transcript", "run-1"],
    ["export", "run-1"],
    ["annotate", "run-1", "--title", "x"],
    ["interrupt", "run-1"],
    ["reset", "run-1"],
    ["delete", "run-1", "--yes"],
    ["rejections"],
    ["rejections", "show", "0:1"],
    ["rejections", "redrive", "0:1"],
    ["rejections", "drop", "0:1", "--yes"],
    ["quarantine", "list"],
    ["quarantine", "show", "run-1"],
    ["quarantine", "resume", "run-1"],
    ["quarantine", "skip", "run-1"],
    ["lease", "break", "run-1"],
    ["status"],
    ["status", "--check"],
    ["digest"],
    ["verify"],
    ["backup", "{new}"],
    ["daemon"],
]


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a folder of a newer schema is put by the first test that needs it."""
    return tmp_path_factory.mktemp("newer") / "data"


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def refused(site: Site, newer: Path) -> Site:
    if not newer.exists():
        site.start()
        some_history(site)
        site.stop()
        connection = apsw.Connection(str(site.data / "p00.sqlite"))
        connection.pragma("user_version", connection.pragma("user_version") + 1)
        connection.close()
        shutil.copytree(site.data, newer)
    site.data = newer
    return site


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_newer_schema_is_refused_untouched(
    refused: Site, command: list[str], tmp_path: Path
) -> None:
    before = contents(refused.data)
    sent = sorted(refused.client.keys("sw:*:run:*"))
    told = refused.cli(*(part.format(new=tmp_path / "new") for part in command))
    assert told.code == FileTooNew.exit_code
    assert "schema version" in told.err
    assert "upgrade statewriter" in told.err
    assert contents(refused.data) == before
    assert sorted(refused.client.keys("sw:*:run:*")) == sent
