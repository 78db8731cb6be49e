"""A bank outside: HTTP on loopback, each payment once by its idempotency key, however often it is asked for."""

from __future__ import annotations

import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any


class BankServer:
    """A ``with`` block. ``payments`` are amounts by key, ``asked`` counts how often each was to be paid."""

    def __enter__(self) -> BankServer:
        self.payments: dict[str, int] = {}
        self.asked: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def pay(self, key: str, amount: int) -> None:
        """Pay, unless it is paid."""
        with self._lock:
            self.asked[key] += 1
            self.payments.setdefault(key, amount)


def _handler(bank: BankServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            bank.pay(self._key(), body["amount"])
            self._answer(200, {"receipt": f"receipt {self._key()}"})

        def do_GET(self) -> None:
            paid = self._key() in bank.payments
            self._answer(200 if paid else 404, {"receipt": f"receipt {self._key()}"})

        def _key(self) -> str:
            return self.path.removeprefix("/")

        def _answer(self, status: int, document: Any) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
