"""The documentation's host in Node.js: the JSON Schema alone, and the npm `redis` client."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from producers.contract.schema import contract_schema
from tests.producers.test_lifecycle import TOP
from tests.support.proxy import proxy
from tests.support.servers import RealServer, under_ci
from writer.core.definition import definition_digest
from writer.store.reader import StateReader

HOST = TOP / "docs/hosts/node"
pytestmark = pytest.mark.slow


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The host with its one dependency; skipped where its registry does not give it.

    That is the network's business, under CI, too; a missing program is not.
    """
    folder = tmp_path / "node"
    shutil.copytree(HOST, folder, ignore=shutil.ignore_patterns("node_modules"))
    npm = shutil.which("npm")
    reason = "no npm on PATH"
    if npm is not None and shutil.which("node") is not None:
        command = [npm, "install", "--no-audit", "--no-fund", "--prefer-offline"]
        try:
            subprocess.run(
                command, cwd=folder, capture_output=True, text=True, check=True, timeout=300
            )
        except subprocess.CalledProcessError as error:
            pytest.skip(f"npm install failed: {error.stderr[-300:]}")
        except subprocess.TimeoutExpired:
            pytest.skip("npm install hangs")
        return folder
    if under_ci():
        pytest.fail(reason)
    pytest.skip(reason)


def test_a_host_in_node_drives_a_run_with_a_lease_from_the_schema_alone(
    installed: Path, redis_server: RealServer, reader: StateReader, data: Path
) -> None:
    schema = installed / "contract.json"
    schema.write_text(json.dumps(contract_schema()))
    # The server listens on a Unix socket only; the proxy gives it a port.
    with proxy(redis_server.folder) as between:
        done = subprocess.run(
            ["node", "host.mjs", between.url, str(schema)],
            cwd=installed,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    refused = [number for number, (_, outcome) in enumerate(told["told"]) if outcome != "applied"]
    assert (refused, told["told"][3]) == ([3], ["run.snapshot", "rejected"])
    run = reader.run(told["run"])
    assert run is not None
    assert (run["status"], run["entries"], run["session_events"]) == ("completed", 1, 1)
    assert run["lease"]["released_at"]
    assert reader.transcript(told["run"])[0]["entry"]["text"] == "Which tests fail? 😀"
    definition = {
        "name": "triage",
        "nodes": {"plan": {"next": "fix"}, "fix": {}},
        "ключ": "ä😀",
        "size": 3,
    }
    digest = definition_digest(definition)
    assert digest is not None
    assert digest.hex() == told["definition_sha256"]
    stored = set()
    for path in data.glob("p*.sqlite"):
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            stored |= {
                row[0] for row in connection.execute("SELECT definition_digest FROM definitions")
            }
    assert {bytes(each).hex() for each in stored} == {told["definition_sha256"]}
