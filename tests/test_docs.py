"""The documentation is true: what it shows runs, what it lists is what the code has.

A fenced block whose info string is `python runnable`, `sh runnable` or `sql runnable` is executed
as printed, file by file and in order, in a folder in which a daemon runs on `./statewriter-data`. A
block `text` right behind one is what it must print. A block `json <kind>` is that command's body.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import pytest
from pydantic_settings import BaseSettings

from producers import Producer, ProducerSettings
from producers.contract import limits
from producers.contract.commands import MODELS, Auth
from producers.contract.envelope import decode, encode, seal
from producers.contract.keys import Keys, partition_of
from producers.contract.reasons import Reason
from producers.contract.schema import contract_schema
from tests.support.servers import KINDS, Kind, real_server, under_ci
from tests.support.silence import SilentLog
from tests.support.wait import poll
from tests.support.world import FileWorld
from writer import embedded
from writer.core.definition import definition_digest
from writer.daemon import Daemon
from writer.health import read_health
from writer.settings import WriterSettings
from writer.store.reader import StateReader
from writer.streams.control import Asked

TOP = Path(__file__).parent.parent
PAGES = [TOP / "README.md", TOP / "ARCHITECTURE.md", *sorted((TOP / "docs").glob("*.md"))]
CONTRACT = TOP / "docs/wire-contract.md"
OPERATIONS = TOP / "docs/operations.md"
READING = TOP / "docs/reading.md"
CLI = "from writer.cli import main; main()"


class Block(NamedTuple):
    """A fenced block: the words after the fence, its text, whether it follows the one before."""

    info: str
    text: str
    follows: bool


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    end = -1
    for match in re.finditer(r"^```(.*)\n((?:.*\n)*?)```$", text, re.MULTILINE):
        found.append(Block(match[1].strip(), match[2], not text[end : match.start()].strip()))
        end = match.end()
    return found


def tables(text: str) -> list[list[list[str]]]:
    """Tables of a Markdown text, each a list of rows of cells, without the heading."""
    found: list[list[list[str]]] = []
    for table in re.findall(r"(?:^\|.*\n)+", text + "\n", re.MULTILINE):
        lines = table.strip().split("\n")[2:]
        found.append([[cell.strip() for cell in line.split("|")[1:-1]] for line in lines])
    return found


def section(page: Path, title: str) -> str:
    """The text under a heading, up to the next one of its level or above."""
    text = page.read_text(encoding="utf-8")
    match = re.search(rf"^(#+) {re.escape(title)}$", text, re.MULTILINE)
    assert match is not None, f"{page.name} has no section {title}"
    rest = text[match.end() :]
    following = re.search(rf"^#{{1,{len(match[1])}}} ", rest, re.MULTILINE)
    return rest[: following.start()] if following else rest


def listed(text: str) -> list[str]:
    """What stands in backquotes in the first column of a text's tables."""
    return [
        name for table in tables(text) for row in table for name in re.findall(r"`([^`]+)`", row[0])
    ]


# --- what runs --------------------------------------------------------------------------------


class Playground:
    """A folder with a running daemon, and the shell that the pages assume."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.socket = url.removeprefix("unix://")

    def run(self, block: Block) -> str:
        """What a block prints. It must end well."""
        language = block.info.split()[0]
        if language == "sql":
            return self._query(block.text)
        command = {
            "python": [sys.executable, "-W", "error", "-c", block.text],
            "sh": ["bash", "-euc", self._shell() + block.text],
        }[language]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(TOP), "NO_COLOR": "1", "COLUMNS": "200"},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, f"{block.text}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _shell(self) -> str:
        return (
            f"redis-cli() {{ command redis-cli -e -s '{self.socket}' \"$@\"; }}\n"
            f"statewriter() {{ '{sys.executable}' -c '{CLI}' \"$@\"; }}\n"
        )

    def _query(self, text: str) -> str:
        lines = []
        for path in sorted((self.folder / "statewriter-data").glob("p*.sqlite")):
            with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
                for query in text.split(";"):
                    lines += [str(row) for row in connection.execute(query)]
        return "\n".join(lines)


@contextmanager
def running(settings: WriterSettings, url: str) -> Iterator[Daemon]:
    daemon = Daemon(settings, url, SilentLog())
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop()
        daemon.wait()


@pytest.fixture(scope="module")
def playground() -> Iterator[Playground]:
    # Directly under the temporary folder: a socket's path must be short.
    folder = Path(tempfile.mkdtemp(prefix="sw-"))
    data = folder / "statewriter-data"
    try:
        with (
            embedded.start(data) as server,
            running(WriterSettings(data=data), server.url) as daemon,
        ):
            with Producer(server.url) as producer:
                run = producer.create_run("triage", run_id="seen-before", title="Seen before")
                run.snapshot({"status": "running", "step": "plan"}, event="node_started")
                run.update("progress", "tests", {"completed": 3, "total": 10})
                producer.run("never-created").snapshot({"step": "refused"})
            # The pages read all files with SQLite alone, which finds no view in one being made.
            poll(lambda: states(data) == ["running"] * daemon.total, message="all files to be made")
            with StateReader(data) as reader:
                poll(lambda: (reader.run("seen-before") or {}).get("revision") == 3)
                poll(lambda: reader.rejections().rejections)
            yield Playground(folder, server.url)
    finally:
        shutil.rmtree(folder)


def states(data: Path) -> list[str]:
    """How the partitions of the daemon are."""
    told = read_health(data)
    return [] if told is None else [said["state"] for said in told["partitions"].values()]


def needs_redis_cli(text: str) -> None:
    if "redis-cli" in text and shutil.which("redis-cli") is None:
        reason = "no redis-cli on PATH: install redis-tools"
        if under_ci():
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


RUNNABLE = [page for page in PAGES if any("runnable" in block.info for block in blocks(page))]


@pytest.mark.server
@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: page.name)
def test_what_is_marked_as_runnable_runs(page: Path, playground: Playground) -> None:
    printed: str | None = None
    for block in blocks(page):
        if block.info.endswith(" runnable"):
            needs_redis_cli(block.text)
            printed = playground.run(block)
        elif block.info == "text" and block.follows and printed is not None:
            assert printed.split() == block.text.split()
            printed = None


@pytest.mark.server
def test_the_first_script_does_what_the_readme_says(playground: Playground) -> None:
    script = next(block for block in blocks(TOP / "README.md") if block.info == "python runnable")
    run_id = playground.run(script).strip()
    with StateReader(playground.folder / "statewriter-data") as reader:
        run = poll(lambda: completed(reader, run_id), message="the run to be completed")
        assert [event["type"] for event in reader.trace(run_id)] == [
            "run.create",
            "node_started",
            "run.update",
            "session.bind",
            "run_completed",
        ]
        state = reader.state(run_id)
        assert (state["step"], state["finalOutput"]) == ("plan", {"failing": 3})
        assert run["segments"][0]["status"] == "complete"
        assert (run["entries"], run["session_events"]) == (1, 1)


def completed(reader: StateReader, run_id: str) -> dict[str, Any]:
    """The run once it is completed; nothing before."""
    run = reader.run(run_id)
    return run if run is not None and run["status"] == "completed" else {}


@pytest.mark.server
def test_the_run_from_the_shell_is_completed(playground: Playground) -> None:
    for block in blocks(CONTRACT):
        if block.info == "sh runnable" and "XADD" in block.text:
            needs_redis_cli(block.text)
            playground.run(block)
    with StateReader(playground.folder / "statewriter-data") as reader:
        run = poll(lambda: completed(reader, "triage-1"), message="the run to be completed")
    assert (run["workflow"], run["revision"]) == ("triage", 3)


@pytest.mark.server
def test_every_file_of_the_data_folder_is_described(playground: Playground) -> None:
    names = " ".join(listed(section(OPERATIONS, "The data folder")))
    names += section(OPERATIONS, "The data folder")
    for path in (playground.folder / "statewriter-data").iterdir():
        # `.new`: about to replace the file of that name.
        known = re.sub(r"^p01", "p00", path.name).removesuffix(".new")
        known = re.sub(r"^daemon-\d+", "daemon-<pid>", known)
        assert f"`{known}" in names, f"{path.name} is not described"


@pytest.mark.server
@pytest.mark.parametrize("kind", KINDS)
def test_the_rights_of_the_acl_are_enough(kind: Kind) -> None:
    rights = next(block for block in blocks(OPERATIONS) if "ACL SETUSER" in block.text)
    needs_redis_cli(rights.text)
    folder = Path(tempfile.mkdtemp(prefix="sw-"))
    try:
        with real_server(kind) as server:
            Playground(folder, server.url).run(rights)
            path = server.url.removeprefix("unix://")
            settings = WriterSettings(data=folder / "data", sweep_ms=100)
            with running(settings, f"unix://writer:change-me@{path}") as daemon:
                with Producer(f"unix://host:change-me-too@{path}") as producer:
                    run = producer.create_run("triage", run_id="run-1")
                    run.complete()
                with StateReader(folder / "data") as reader:
                    poll(lambda: completed(reader, "run-1"), message="the run to be completed")
                for command in ("status", "annotate run-1 --title Done"):
                    subprocess.run(
                        [sys.executable, "-c", CLI, *command.split()],
                        cwd=TOP,
                        env={
                            **os.environ,
                            "STATEWRITER_DATA": str(folder / "data"),
                            "STATEWRITER_REDIS": f"unix://writer:change-me@{path}",
                        },
                        check=True,
                    )
                # The sweep removes the stream of an ended run: its rights are enough, too.
                with server.client() as client:
                    stream = Keys().run(partition_of("run-1", daemon.total), "run-1")
                    poll(lambda: not client.exists(stream), message="the stream to be removed")
    finally:
        shutil.rmtree(folder)


# --- the wire contract ------------------------------------------------------------------------


def test_the_schema_file_is_current() -> None:
    text = json.dumps(contract_schema(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    path = TOP / "producers/contract/schema.json"
    assert path.read_text(encoding="utf-8") == text, "write it again: see tests/test_docs.py"


def test_the_schema_command_prints_the_same() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CLI, "schema"], cwd=TOP, capture_output=True, check=True
    )
    assert json.loads(done.stdout) == contract_schema()


def test_every_kind_is_described_and_no_other() -> None:
    described = re.findall(r"^### `([^`]+)`$", section(CONTRACT, "Kinds"), re.MULTILINE)
    assert sorted(described) == sorted(MODELS)


@pytest.mark.parametrize("kind", MODELS)
def test_every_field_of_a_kind_is_described_and_no_other(kind: str) -> None:
    fields = [name for name in MODELS[kind].model_fields if name != "kind"]
    rows = [row for table in tables(section(CONTRACT, f"`{kind}`")) for row in table]
    assert sorted(row[0].strip("`") for row in rows) == sorted(fields)
    required = {row[0].strip("`") for row in rows if row[1] == "yes"}
    assert required == {name for name in fields if MODELS[kind].model_fields[name].is_required()}


def test_the_fields_of_a_message_and_of_auth_are_described() -> None:
    schema = contract_schema()["fields"]
    rows = tables(section(CONTRACT, "Messages"))[0]
    assert [row[0].strip("`") for row in rows] == list(schema["properties"])
    assert [row[0].strip("`") for row in rows if row[1] == "yes"] == schema["required"]
    auth = tables(section(CONTRACT, "Authority"))[0]
    assert [row[0].strip("`") for row in auth] == list(Auth.model_fields)


def test_every_reason_is_described_as_it_is() -> None:
    (rows,) = tables(section(CONTRACT, "How a message ends"))
    assert {row[0].strip("`"): row[1] for row in rows} == {
        reason.value: reason.sentence for reason in Reason
    }


def test_every_limit_is_described_as_it_is() -> None:
    numbers, patterns = tables(section(CONTRACT, "Limits"))
    described: dict[str, Any] = {
        row[0].strip("`"): int(row[1].replace(",", "")) for row in numbers
    } | {row[0].strip("`"): row[1].strip("`") for row in patterns}
    assert described == {
        name: value for name, value in vars(limits).items() if name.isupper() and name != "Final"
    }


def test_the_partitions_of_the_page_are_right() -> None:
    vectors = tables(section(CONTRACT, "Partitions"))[0]
    assert len(vectors) >= 5
    for run, crc, *partitions in vectors:
        name = run.strip("`")
        assert int(crc) == crc32(name.encode())
        assert [int(each) for each in partitions] == [
            partition_of(name, count) for count in (2, 16, 1024)
        ]


def example(kind: str) -> Any:
    (block,) = [block for block in blocks(CONTRACT) if block.info == f"json {kind}"]
    return json.loads(block.text)


@pytest.mark.parametrize("kind", MODELS)
def test_an_example_is_good_json_for_its_kind(kind: str) -> None:
    fields = encode(kind, example(kind), producer="p", seq=1)
    decoded = decode("triage-1", "1-0", seal(fields))
    assert decoded.command is not None, (decoded.reason, decoded.detail)


STORY = (
    "run.create",
    "lease.claim",
    "run.snapshot",
    "run.patch",
    "run.update",
    "session.bind",
    "session.entry",
    "session.events",
    "session.capture",
    "run.annotate",
    "lease.renew",
    "run.resume",
    "run.interrupt",
    "effect.settle",
    "run.reset",
    "lease.release",
    "run.delete",
)


def test_all_examples_sent_in_order_are_applied(tmp_path: Path) -> None:
    assert sorted(STORY) == sorted(MODELS)
    auth = Auth.model_validate(example("auth"))
    world = FileWorld(tmp_path)
    try:
        for kind in STORY:
            bare = kind in ("run.create", "lease.claim", "run.annotate", "run.delete")
            outcome = world.apply("triage-1", kind, example(kind), auth=None if bare else auth)
            assert outcome.kind == "applied", (kind, outcome)
    finally:
        world.close()


def test_the_hash_of_the_token_is_right() -> None:
    token = example("auth")["token"]
    assert example("lease.claim")["token_sha256"] == sha256(token.encode()).hexdigest()


def test_the_digest_of_the_definition_is_right() -> None:
    text = section(CONTRACT, "Definitions")
    given, canonical, digest = re.findall(r"`([^`]+)`", text[text.index("test vector") :])
    assert definition_digest(json.loads(given)) == bytes.fromhex(digest)
    assert sha256(canonical.encode()).hexdigest() == digest


def test_the_forms_of_reply_and_trace_are_as_described() -> None:
    for name, longest in (("reply", 200), ("trace", 512)):
        assert f"1 to {longest} printable characters" in section(CONTRACT, "Messages")
        for length, reason in ((1, None), (longest, None), (longest + 1, Reason.FIELD_INVALID)):
            fields = encode("run.create", {}, producer="p", seq=1)
            fields[name.encode()] = b"x" * length
            assert decode("triage-1", "1-0", seal(fields)).reason == reason


# --- reading ----------------------------------------------------------------------------------


def test_every_view_and_column_is_described_and_no_other(tmp_path: Path) -> None:
    world = FileWorld(tmp_path)
    world.close()
    described = re.findall(r"^### `(\w+)`$", section(READING, "Views"), re.MULTILINE)
    with closing(sqlite3.connect(tmp_path / "p00.sqlite")) as connection:
        views = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'view'").fetchall()
        assert sorted(described) == sorted(name for (name,) in views)
        for view in described:
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({view})")]
            named = listed(section(READING, f"`{view}`"))
            assert sorted(named) == sorted(columns), view


def test_every_method_of_the_reader_is_described_and_no_other() -> None:
    methods = [name for name in dir(StateReader) if not name.startswith("_")]
    assert sorted(listed(section(READING, "StateReader"))) == sorted(methods)


# --- operations and the rest ------------------------------------------------------------------


@pytest.mark.parametrize("settings, place", [(WriterSettings, 0), (ProducerSettings, 1)])
def test_every_setting_is_described_with_its_default(
    settings: type[BaseSettings], place: int
) -> None:
    rows = tables(section(OPERATIONS, "Settings"))[place]
    described = {row[0].strip("`"): row[1].strip("`") for row in rows}
    defaults = {name: field.default for name, field in settings.model_fields.items()}
    assert described == {
        name: "" if value is None else str(value).lower() if value in (True, False) else str(value)
        for name, value in defaults.items()
    }


def test_the_acts_of_operators_have_the_fields_that_are_shown() -> None:
    lines = re.findall(r":control' '\*' (.+)$", OPERATIONS.read_text(), re.MULTILINE)
    assert len(lines) == 2
    for line in lines:
        assert line.split()[::2] == [name for name in Asked._fields if name != "control_id"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        there = page.parent / path if path else page
        assert there.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", there.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = [re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings]
            assert anchor in anchors, target


def test_make_has_the_targets_that_the_readme_names() -> None:
    targets = re.findall(r"^(\w+):", (TOP / "Makefile").read_text(), re.MULTILINE)
    named = re.findall(r"^ {4}make (\w+)", (TOP / "README.md").read_text(), re.MULTILINE)
    assert named == ["demo", "test"]
    assert set(named) <= set(targets)


def test_commands_that_pages_name_exist() -> None:
    named = {
        name
        for page in PAGES
        for name in re.findall(r"statewriter ([a-z]+(?:-[a-z]+)*)\b", "\n".join(code_of(page)))
    }
    helped = subprocess.run(
        [sys.executable, "-c", CLI, "--help"],
        cwd=TOP,
        env={**os.environ, "COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert {name for name in named if not re.search(rf"^\W+{name} ", helped, re.MULTILINE)} == set()


def code_of(page: Path) -> list[str]:
    """What stands in backquotes or is indented by four."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"`([^`\n]+)`", text) + re.findall(r"^(?: {4}|\t)(.+)$", text, re.MULTILINE)
