"""A proxy between the backend and PostgreSQL that loses commits, or only their answers, with the connection."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Literal

from sqlalchemy import make_url

Fate = Literal["pass", "lose the commit", "lose the answer"]

Decide = Callable[[int, bytes], Fate]

_COMMIT = b"Q\x00\x00\x00\x0bCOMMIT\x00"
_COMMITTED = b"COMMIT\x00"
_LOOK_S = 0.2


def pass_all(number: int, sent: bytes) -> Fate:
    """Nothing is lost."""
    return "pass"


class CommitProxy:
    """Relays connections to ``port`` of this machine.

    ``fate`` decides about each commit, given its number from 1 and what its connection sent since the last one.
    """

    def __init__(self, port: int) -> None:
        self.fate: Decide = pass_all
        self.commits = 0
        self.lost: list[Fate] = []
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._accept, name="commit proxy")]
        self._threads[0].start()

    def url(self, database_url: str) -> str:
        """The same database, through the proxy."""
        return make_url(database_url).set(port=self.port).render_as_string(hide_password=False)

    def begin(self, fate: Decide = pass_all) -> None:
        """Count commits from here on, and let ``fate`` decide."""
        with self._lock:
            self.commits, self.fate = 0, fate

    def close(self) -> None:
        """End it with all its connections."""
        self._closing.set()
        # a thread that waits in accept wakes by a connection, not by closing the socket
        with suppress(OSError), socket.create_connection(self._listener.getsockname()):
            pass
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            if self._closing.is_set():
                client.close()
                return
            thread = threading.Thread(target=self._relay, args=(client,), name="commit proxy")
            self._threads.append(thread)
            thread.start()

    def _relay(self, client: socket.socket) -> None:
        with client, suppress(OSError), socket.create_connection(("127.0.0.1", self._target)) as server:
            sent = b""
            while not self._closing.is_set():
                ready, _, _ = select.select([client, server], [], [], _LOOK_S)
                for source, sink in ((client, server), (server, client)):
                    if source in ready:
                        data = source.recv(1 << 16)
                        sent = sent + data if source is client else sent
                        if not data or (source is client and not self._let_pass(sent, data, server)):
                            return
                        sink.sendall(data)
                        sent = b"" if sent.endswith(_COMMIT) else sent

    def _let_pass(self, sent: bytes, data: bytes, server: socket.socket) -> bool:
        if not data.endswith(_COMMIT):
            return True
        with self._lock:
            self.commits += 1
            fate = self.fate(self.commits, sent)
            if fate != "pass":
                self.lost.append(fate)
        if fate == "lose the answer":
            server.sendall(data)
            answer = b""
            while _COMMITTED not in answer:
                answer += server.recv(1 << 16)
        return fate == "pass"


@contextmanager
def commit_proxy(port: int) -> Iterator[CommitProxy]:
    """A proxy, ended at the end."""
    proxy = CommitProxy(port)
    try:
        yield proxy
    finally:
        proxy.close()


def only(at: int, loss: Fate) -> Decide:
    """Commit number ``at`` is lost, or its answer."""
    return lambda number, sent: loss if number == at else "pass"


def every(stride: int) -> Decide:
    """Every ``stride``-th commit is lost, or its answer, in turns."""

    def fate(number: int, sent: bytes) -> Fate:
        if number % stride:
            return "pass"
        return "lose the commit" if number // stride % 2 else "lose the answer"

    return fate
