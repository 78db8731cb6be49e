"""HTTP without much around it: one connection a thread, kept open. It costs a third of what a general client does."""

from __future__ import annotations

import http.client
import os
import threading
from typing import Any
from urllib.parse import urlencode, urlsplit

import orjson

from refold.answers import Answer, Away, read_answer
from refold.errors import NotFound, RefoldError, Unavailable

_BROKEN = (OSError, http.client.HTTPException)


class DirectTransport:
    """A way to a backend at a plain ``http://`` address, no proxy between; any number of threads may use it."""

    def __init__(self, url: str, ack: str, org: str, api_key: str, timeout_s: float) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._prefix = parts.path.rstrip("/")
        self._url, self._timeout_s = url, timeout_s
        self._publish = f"/v1/events?{urlencode({'ack': ack})}"
        self._headers = {"content-type": "application/json"}
        if org:
            self._headers["x-refold-org"] = org.encode().decode("latin-1")
        if api_key:
            self._headers["authorization"] = f"Bearer {api_key}"
        self._local = threading.local()
        self._lock = threading.Lock()
        self._all: list[http.client.HTTPConnection] = []

    def send(self, lines: list[bytes]) -> Answer:
        """Publish events, each one JSON object, in order."""
        try:
            status, body, retry_after = self._ask("POST", self._publish, b"[" + b",".join(lines) + b"]")
        except _BROKEN as error:
            return Away(self._no_answer(error))
        return read_answer(status, body, len(lines), retry_after)

    def get(self, path: str, params: dict[str, Any]) -> Any:
        """Read a JSON document. Raises NotFound for 404, Unavailable when there is no answer."""
        try:
            status, body, _ = self._ask("GET", f"{path}?{urlencode(params)}" if params else path)
        except _BROKEN as error:
            raise Unavailable(self._no_answer(error)) from None
        if status == 200:
            return orjson.loads(body)
        message = f"{self._url}{path}: HTTP {status}: {body[:300].decode('utf-8', 'replace')}"
        raise (NotFound if status == 404 else Unavailable if status >= 500 else RefoldError)(message)

    def close(self) -> None:
        """Let connections go."""
        with self._lock:
            for connection in self._all:
                connection.close()
            self._all.clear()

    def _ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes, str]:
        """Status, body and Retry-After. A connection that the backend closed while idle is opened again, once."""
        fresh = self._connection().sock is None
        try:
            return self._exchange(method, path, body)
        except _BROKEN as error:
            self._connection().close()
            # what has no effect twice (reads, and events with ids) may be sent again
            if fresh or isinstance(error, TimeoutError):
                raise
        try:
            return self._exchange(method, path, body)
        except _BROKEN:
            self._connection().close()
            raise

    def _exchange(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes, str]:
        connection = self._connection()
        connection.request(method, self._prefix + path, body, self._headers)
        response = connection.getresponse()
        return response.status, response.read(), response.headers.get("retry-after", "")

    def _connection(self) -> http.client.HTTPConnection:
        pid, connection = getattr(self._local, "connection", (0, None))
        if connection is None or pid != os.getpid():  # a forked process leaves its parent's connection alone
            connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
            self._local.connection = os.getpid(), connection
            with self._lock:
                self._all.append(connection)
        return connection

    def _no_answer(self, error: Exception) -> str:
        reason = str(error) or type(error).__name__
        return f"no answer from {self._url} ({reason}): is `refold up` running there? REFOLD_URL names another"
