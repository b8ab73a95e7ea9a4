"""What is expected to go wrong is told in a line or two, never in a traceback."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.console import PROGRAM, TOP, environment, statewriter
from writer.cli.exits import PIPE_CLOSED, ExtraMissing, NotFound
from writer.errors import FileCorrupt, RedisUnavailable, Usage


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    ran = statewriter("runs", data=tmp_path / "nowhere")
    assert ran.code == NotFound.exit_code
    message, hint = ran.err.splitlines()
    assert message == f"error: there is no data folder {tmp_path / 'nowhere'}"
    assert hint.startswith("hint: ")


def test_an_empty_folder_is_no_error(tmp_path: Path) -> None:
    ran = statewriter("runs", data=tmp_path).ok()
    assert (ran.out, ran.err) == ("", f"no runs in {tmp_path}\n")


def test_errors_are_json_where_json_is_asked_for(tmp_path: Path) -> None:
    ran = statewriter("runs", "--limit", "none", "--json", data=tmp_path)
    assert ran.code == Usage.exit_code
    told = json.loads(ran.err)
    assert told["exit_code"] == 2
    assert "--limit" in told["error"]


@pytest.mark.parametrize("url", ["localhost:6379", "http://localhost", "redis://host:port"])
def test_a_redis_url_that_can_not_be_read(tmp_path: Path, url: str) -> None:
    ran = statewriter("send", "-", "--redis", url, data=tmp_path)
    assert ran.code == Usage.exit_code
    assert "redis://" in ran.err


def test_a_redis_that_is_away(tmp_path: Path) -> None:
    ran = statewriter(
        "send", "-", "--redis", "unix:///nonexistent/redis.sock", data=tmp_path, stdin="{}"
    )
    assert ran.code == RedisUnavailable.exit_code
    assert "can not be reached" in ran.err


def test_a_password_is_never_shown(tmp_path: Path) -> None:
    url = "redis://user:very-secret@127.0.0.1:1/0"
    for arguments in (("status",), ("send", "-"), ("annotate", "x", "--title", "y")):
        ran = statewriter(*arguments, "--redis", url, data=tmp_path)
        assert "very-secret" not in ran.out + ran.err


@pytest.mark.parametrize(
    "name, value",
    [("STATEWRITER_PARTITIONS", "many"), ("STATEWRITER_CONFIG", "/nonexistent/config.toml")],
)
def test_a_setting_that_can_not_be_used(tmp_path: Path, name: str, value: str) -> None:
    ran = statewriter("runs", data=tmp_path, env={name: value})
    assert ran.code == Usage.exit_code
    assert name in ran.err


def test_a_configuration_file_that_is_no_toml(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("data = [")
    ran = statewriter("runs", env={"STATEWRITER_CONFIG": str(file)})
    assert ran.code == Usage.exit_code
    assert "no TOML" in ran.err


def test_a_file_that_is_none_of_ours(tmp_path: Path) -> None:
    (tmp_path / "p00.sqlite").write_bytes(b"not a database at all" * 100)
    ran = statewriter("runs", data=tmp_path)
    assert ran.code == FileCorrupt.exit_code
    assert ran.err.startswith("error: p00.sqlite")


@pytest.mark.parametrize("file", ["/nonexistent/file", "/"])
def test_an_input_that_can_not_be_read(tmp_path: Path, file: str) -> None:
    ran = statewriter("ingest", file, "--run", "x", data=tmp_path)
    assert ran.code == Usage.exit_code
    assert ran.err.startswith(f"error: {file} ")


@pytest.mark.parametrize("arguments", [["runs"], ["daemon"]])
def test_without_the_extra_it_says_what_to_install(tmp_path: Path, arguments: list[str]) -> None:
    program = (
        "import sys\n"
        "sys.modules['apsw'] = sys.modules['structlog'] = None\n"
        "from writer.cli import main\n"
        "main()\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, *arguments, "--data", str(tmp_path)],
        capture_output=True,
        text=True,
        env=environment(),
        cwd=TOP,
        check=False,
    )
    assert ran.returncode == ExtraMissing.exit_code
    assert "this command needs the extra: pip install 'statewriter[daemon]'" in ran.stderr


def test_a_reader_that_goes_away_ends_it_quietly(tmp_path: Path) -> None:
    command = shlex.join([*PROGRAM, "schema"])
    ran = subprocess.run(
        ["bash", "-c", f"{command} | head -c 10; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        env=environment(),
        cwd=TOP,
        check=False,
    )
    assert ran.stderr == b""
    assert ran.returncode in (0, PIPE_CLOSED)
