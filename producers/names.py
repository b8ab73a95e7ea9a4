"""What new things are called. The only randomness of the package."""

from __future__ import annotations

import os
import re
import secrets
import socket

from producers.clock import compact

_NOT_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")
_NAME_CHARS_MAX = 80


def new_producer_id() -> str:
    """`<host>-<pid>-<16 hex>`: never used before, also after a fork or a restart."""
    host = _plain(socket.gethostname()) or "host"
    return f"{host}-{os.getpid()}-{secrets.token_hex(8)}"


def new_run_id(workflow: str, at_ms: int) -> str:
    """`<20260131T120000123Z>-<workflow>-<8 hex>`."""
    return f"{compact(at_ms)}-{_plain(workflow) or 'workflow'}-{secrets.token_hex(4)}"


def new_token() -> str:
    """A lease token: 256 random bits as text."""
    return secrets.token_urlsafe(32)


def _plain(name: str) -> str:
    return _NOT_PLAIN.sub("-", name).strip("-._")[:_NAME_CHARS_MAX]
