"""A TCP proxy before a server's Unix socket that can eat replies, cut, delay and refuse."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

CHUNK = 1 << 16


class Proxy:
    """Forwards both ways. What a test sets holds from the next bytes on, for every connection."""

    def __init__(self, server: Path) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._replies_to_eat = 0
        self._refusing = False
        self.delay_s = 0.0
        """Each reply comes this much later."""
        self.eaten = 0
        """How often a reply was eaten: the request had been forwarded."""
        self.accepted = 0
        """Connections that were taken and forwarded."""
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"

    def eat_replies(self, count: int) -> None:
        """Forward requests, but instead of the next replies cut the connection."""
        with self._lock:
            self._replies_to_eat = count

    def refuse(self) -> None:
        """Cut what there is, and close each new connection at once."""
        with self._lock:
            self._refusing = True
        self.cut()

    def allow(self) -> None:
        """Undo `refuse`."""
        self._refusing = False

    def cut(self) -> None:
        """Cut all connections now."""
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            _hang_up(*pair)

    def close(self) -> None:
        """Stop listening, cut all."""
        self._ended.set()
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing:
                client.close()
                continue
            upstream = socket.socket(socket.AF_UNIX)
            try:
                upstream.connect(str(self._server))
            except OSError:
                client.close()
                upstream.close()
                continue
            pair = (client, upstream)
            with self._lock:
                # Taken just before `refuse`, it is not among those that are cut.
                if self._refusing:
                    client.close()
                    upstream.close()
                    continue
                self._pairs.add(pair)
            self.accepted += 1
            threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, client: socket.socket, upstream: socket.socket) -> None:
        with suppress(OSError, ValueError):
            while not self._ended.is_set():
                ready, _, _ = select.select([client, upstream], [], [], 0.2)
                if client in ready:
                    data = client.recv(CHUNK)
                    if not data:
                        break
                    upstream.sendall(data)
                if upstream in ready:
                    data = upstream.recv(CHUNK)
                    if not data or self._eats():
                        break
                    time.sleep(self.delay_s)
                    client.sendall(data)
        with self._lock:
            self._pairs.discard((client, upstream))
        _hang_up(client, upstream)
        client.close()
        upstream.close()

    def _eats(self) -> bool:
        with self._lock:
            if not self._replies_to_eat:
                return False
            self._replies_to_eat -= 1
            self.eaten += 1
            return True


def _hang_up(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxy(server: Path) -> Iterator[Proxy]:
    """A proxy before the Unix socket of a `RealServer` (its folder's `s`)."""
    made = Proxy(server / "s")
    try:
        yield made
    finally:
        made.close()
