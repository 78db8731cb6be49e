"""What the demo asks its instance over HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import httpx
import orjson

from services.demo.instance import Trouble

T = TypeVar("T")
POLL_S = 0.1


class Api:
    """An instance's HTTP API. Raises Trouble for what should not happen in a demo."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._client = httpx.Client(base_url=url, timeout=30, trust_env=False)

    def close(self) -> None:
        """Let connections go."""
        self._client.close()

    def get(self, path: str, **params: Any) -> Any:
        """A JSON document."""
        return self._read(self._client.get(path, params=params))

    def items(self, path: str, **params: Any) -> list[dict[str, Any]]:
        """Every item of a list, page by page."""
        found: list[dict[str, Any]] = []
        cursor: str | None = ""
        while cursor is not None:
            page = self.get(path, **params, **({"cursor": cursor} if cursor else {}))
            found += page["items"]
            cursor = page.get("next_cursor")
        return found

    def post(self, path: str, body: Any = None) -> Any:
        """Start something."""
        return self._read(self._client.post(path, json=body if body is not None else {}))

    def publish(self, events: list[dict[str, Any]]) -> None:
        """Publish events durably; every one must be stored."""
        body = orjson.dumps(events)
        answer = self._client.post("/v1/events", content=body, headers={"content-type": "application/json"})
        outcomes = self._read(answer)["outcomes"]
        refused = [outcome for outcome in outcomes if outcome["status"] != "stored"]
        if refused:
            raise Trouble(f"{len(refused)} of {len(events)} events were not stored, the first: {refused[0]}")

    def wait_for(self, what: str, ask: Callable[[], T | None], timeout_s: float = 30.0) -> T:
        """Ask until there is an answer that is not None or empty."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            with suppress(NotYet):
                answer = ask()
                if answer:
                    return answer
            if time.monotonic() > deadline_s:
                raise Trouble(f"{what} did not come within {timeout_s:g} s")
            time.sleep(POLL_S)

    def job(self, path: str) -> Iterator[dict[str, Any]]:
        """A long job's document, again and again until it has ended."""
        while True:
            document: dict[str, Any] = self.get(path)
            yield document
            if document["state"] != "running":
                return
            time.sleep(POLL_S)

    def _read(self, response: httpx.Response) -> Any:
        if response.status_code == 404:
            raise NotYet(str(response.request.url))
        if response.status_code >= 400:
            raise Trouble(f"{response.request.url} answered {response.status_code}: {response.text[:300]}")
        return orjson.loads(response.content)


class NotYet(Trouble):
    """There is no such thing (yet)."""
