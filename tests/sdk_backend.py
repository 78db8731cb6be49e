"""A small backend for the SDK's tests: HTTP on loopback, the rules of the log in memory, and faults on demand."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import orjson


class FakeBackend:
    """Judges events as the log does: ids, attempts, seq. ``fault`` is the HTTP status to answer everything with."""

    def __init__(self, port: int = 0) -> None:
        self.events: list[dict[str, Any]] = []
        self.requests: list[int] = []
        self.fault = 0
        self.refuse: set[str] = set()
        self.lose_answers = 0
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def types(self, run: str | None = None) -> list[str]:
        return [event["type"] for event in self.events if run in (None, event.get("run"))]

    def data(self, kind: str) -> list[dict[str, Any]]:
        return [event["data"] for event in self.events if event["type"] == kind]

    def take(self, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        with self._lock:
            self.requests.append(len(events))
            stopped: set[str] = set()
            return [self._judge_in(stopped, event) for event in events]

    def resume(self, task: str) -> dict[str, Any] | None:
        mine = [event for event in self.events if event.get("task") == task]
        starts = [event for event in mine if event["type"] == "run.started"]
        if not starts:
            return None
        calls = {e["data"]["call_id"]: {**e["data"], "run": e["run"]} for e in mine if e["type"] == "tool.called"}
        for event in mine:
            if event["type"] in ("tool.returned", "tool.failed"):
                calls.pop(event["data"]["call_id"], None)
        return {
            "task": task,
            "attempt": starts[-1]["data"]["attempt"],
            "run": starts[-1]["run"],
            "goal": starts[-1]["data"].get("goal", ""),
            "finished_steps": [e["data"] for e in mine if e["type"] == "step.completed"],
            "in_flight": list(calls.values()),
        }

    def _judge_in(self, stopped: set[str], event: dict[str, Any]) -> dict[str, Any]:
        """Of a thread, what follows a refused event in one request is refused too."""
        if event.get("run") in stopped:
            return {"id": event["id"], "status": "conflict", "code": "seq_conflict", "message": "follows a refused one"}
        outcome = self._judge(event)
        if outcome["status"] == "conflict" and event["type"].startswith("thread."):
            stopped.add(event["run"])
        return outcome

    def _judge(self, event: dict[str, Any]) -> dict[str, Any]:
        outcome = {"id": event["id"], "status": "stored", "code": "", "message": ""}
        if any(event["id"] == stored["id"] for stored in self.events):
            return {**outcome, "status": "duplicate"}
        if event["type"] in self.refuse:
            return {**outcome, "status": "refused", "code": "bad_data", "message": f"no {event['type']} today"}
        problem = self._attempt_problem(event) or self._seq_problem(event)
        if problem:
            return {**outcome, "status": "conflict", "code": problem[0], "message": problem[1]}
        self.events.append(event)
        return outcome

    def _attempt_problem(self, event: dict[str, Any]) -> tuple[str, str] | None:
        starts = [e for e in self.events if e["type"] == "run.started" and e.get("task") == event.get("task")]
        latest = starts[-1] if starts else None
        if event["type"] == "run.started":
            expected = (latest["data"]["attempt"] if latest else 0) + 1
            if event["data"]["attempt"] != expected:
                return "attempt_conflict", f"attempt {expected - 1} is run {latest['run'] if latest else ''!r}"
        elif latest and latest["run"] != event.get("run") and "seq" in event:
            return "superseded", f"superseded by run {latest['run']!r}"
        return None

    def _seq_problem(self, event: dict[str, Any]) -> tuple[str, str] | None:
        if "seq" not in event:
            return None
        expected = 1 + sum(1 for e in self.events if e.get("run") == event["run"] and "seq" in e)
        return None if event["seq"] == expected else ("seq_conflict", f"{expected} is expected")


def _handler(backend: FakeBackend) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if backend.fault:
                self._answer(backend.fault, {"detail": "out of order"})
                return
            outcomes = backend.take(orjson.loads(body))
            if backend.lose_answers:
                backend.lose_answers -= 1
                self.close_connection = True
                return
            self._answer(200, {"outcomes": outcomes})

        def do_GET(self) -> None:
            if backend.fault:
                self._answer(backend.fault, {"detail": "out of order"})
                return
            parts = urlsplit(self.path).path.split("/")
            document = backend.resume(unquote(parts[3]))
            self._answer(200 if document else 404, document or {"detail": "no_checkpoint: nothing saved"})

        def _answer(self, status: int, document: Any) -> None:
            body = orjson.dumps(document)
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
