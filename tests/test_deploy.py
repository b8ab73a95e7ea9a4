"""What `deploy/` and the Procfile say is true: servers take it, systemd takes it, options exist."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers import KINDS, Kind, real_server

TOP = Path(__file__).parent.parent
DEPLOY = TOP / "deploy"


@pytest.fixture(scope="module")
def daemon_help() -> str:
    """What `statewriter daemon --help` says, unwrapped."""
    helped = subprocess.run(
        [sys.executable, "-c", "from writer.cli import main; main()", "daemon", "--help"],
        cwd=TOP,
        env={**os.environ, "COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert helped.returncode == 0, helped.stderr
    return helped.stdout


@pytest.mark.server
@pytest.mark.parametrize("kind", KINDS)
def test_a_server_takes_the_redis_configuration(kind: Kind) -> None:
    # Its own settings come after the include: they win, and keep the test off the real port.
    with (
        real_server(kind, {"include": str(DEPLOY / "redis.conf"), "port": "0"}) as server,
        server.client(decode_responses=True) as client,
    ):
        promised = {
            "appendfsync": "everysec",
            "maxmemory": str(2 * 1024**3),
            "maxmemory-policy": "noeviction",
            "no-appendfsync-on-rewrite": "no",
            "aof-load-truncated": "yes",
            "protected-mode": "yes",
        }
        assert client.config_get(*promised) == promised


def test_the_procfile_passes_options_that_exist(daemon_help: str) -> None:
    lines = dict(re.findall(r"^(\w+): (.+)$", (TOP / "Procfile").read_text(), re.MULTILINE))
    assert set(lines) == {"redis", "daemon"}
    assert (TOP / "deploy/redis.conf").exists()
    for option in re.findall(r"--[\w-]+", lines["daemon"]):
        assert option in daemon_help


def test_each_setting_of_the_environment_file_is_an_option(daemon_help: str) -> None:
    settings = (DEPLOY / "statewriter.env").read_text()
    names = re.findall(r"^STATEWRITER_(\w+)=", settings, re.MULTILINE)
    assert names
    for name in names:
        assert f"--{name.lower().replace('_', '-')}" in daemon_help


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze on PATH")
    unit = (DEPLOY / "statewriter.service").read_text()
    installed = tmp_path / "statewriter.service"
    # The program is not installed where the unit expects it.
    installed.write_text(re.sub(r"(?m)^ExecStart=.*$", "ExecStart=/bin/true", unit))
    verified = subprocess.run(
        ["systemd-analyze", "verify", installed], capture_output=True, text=True, check=False
    )
    assert verified.returncode == 0, verified.stderr
    assert verified.stderr == ""
