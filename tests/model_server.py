"""A real OpenAI-compatible HTTP server on loopback, which answers well, badly, slowly or not at all, as it is told."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PATIENCE_S = 60.0

GOOD = {
    "session_state": {"goal": "fix it", "current_phase": "done", "completed_actions": [{"path": "a", "summary": "b"}]},
    "memories": [{"content": "The user prefers metric units.", "kind": "preference", "confidence": 0.9}],
    "reflections": ["it went well"],
    "learnings": [{"content": "run the tests first", "confidence": 0.7}],
}


@dataclass(frozen=True)
class Reply:
    """What one request gets, after ``after_s``, and when ``until`` is set. ``status`` 0: the connection is cut."""

    body: Any
    status: int = 200
    after_s: float = 0.0
    headers: Mapping[str, str] = field(default_factory=dict)
    until: threading.Event | None = None


def says(text: str, *, finish: str = "stop", refusal: str | None = None, after_s: float = 0.0) -> Reply:
    """A chat completion."""
    message = {"role": "assistant", "content": text, "refusal": refusal}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    return Reply(body, after_s=after_s)


def good(after_s: float = 0.0, **changes: Any) -> Reply:
    """A settlement as it should be."""
    return says(json.dumps(GOOD | changes, ensure_ascii=False), after_s=after_s)


def problem(status: int, message: str = "no", code: str = "", **headers: str) -> Reply:
    """An error as such endpoints tell it."""
    return Reply({"error": {"message": message, "type": "error", "code": code or None}}, status, headers=headers)


CUT = Reply({}, status=0)


class ModelServer:
    """``requests`` are the bodies it got. It answers with what ``plan`` holds, in order, then with ``answer(body)``."""

    def __init__(self, answer: Callable[[dict[str, Any]], Reply] | None = None) -> None:
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.plan: list[Reply] = []
        self.at_once = self.most_at_once = 0
        self.answer = answer or (lambda body: good())
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def reply_to(self, body: dict[str, Any], key: str) -> Reply:
        with self._lock:
            self.requests.append(body)
            self.keys.append(key)
            return self.plan.pop(0) if self.plan else self.answer(body)

    @contextmanager
    def busy(self) -> Iterator[None]:
        with self._lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            yield
        finally:
            with self._lock:
                self.at_once -= 1


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def _handler(server: ModelServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with server.busy():
                reply = server.reply_to(body, self.headers.get("authorization", ""))
                time.sleep(reply.after_s)
                if reply.until is not None:
                    reply.until.wait(PATIENCE_S)
            raw = json.dumps(reply.body).encode()
            if reply.status == 0:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            try:
                self.wfile.write(raw)
            except OSError:  # whoever asked has gone
                self.close_connection = True

        def log_message(self, *args: Any) -> None:
            pass

    return Handler


@contextmanager
def model_server(answer: Callable[[dict[str, Any]], Reply] | None = None) -> Iterator[ModelServer]:
    """A server for as long as the block lasts."""
    server = ModelServer(answer)
    try:
        yield server
    finally:
        server.close()
