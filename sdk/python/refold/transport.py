"""The two ways to a backend, each sync and async: HTTP, which answers for every event, and the inbox, which does not.

``send`` never raises for what the network or the backend does: it says ``Away``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import httpx
import orjson

from refold.address import is_inbox, shown
from refold.answers import Answer, Answered, Away, Outcome, TooLarge, read_answer
from refold.envelope import flat
from refold.errors import NotFound, RefoldError, Unavailable
from refold.nodes import HOPS, Nodes

INBOX = "refold:inbox"
_EVENTS = "/v1/events"


class Transport(Protocol):
    """A sync way to a backend."""

    def send(self, lines: list[bytes]) -> Answer:
        """Publish events, each one JSON object, in order."""
        ...

    def get(self, path: str, params: dict[str, Any]) -> Any:
        """Read a JSON document. Raises NotFound for 404, Unavailable when there is no answer."""
        ...

    def close(self) -> None:
        """Let connections go."""
        ...


class AsyncTransport(Protocol):
    """An async way to a backend."""

    async def send(self, lines: list[bytes]) -> Answer:
        """Publish events, each one JSON object, in order."""
        ...

    async def get(self, path: str, params: dict[str, Any]) -> Any:
        """Read a JSON document. Raises NotFound for 404, Unavailable when there is no answer."""
        ...

    async def close(self) -> None:
        """Let connections go."""
        ...


def http_options(url: str, org: str, api_key: str, timeout_s: float) -> dict[str, Any]:
    """What both HTTP clients are made with."""
    headers = {"content-type": "application/json"}
    if org:
        headers["x-refold-org"] = org
    if api_key:
        headers["authorization"] = f"Bearer {api_key}"
    # a proxy from the environment is for the outside, never for this machine
    local = httpx.URL(url).host in ("localhost", "127.0.0.1", "::1")
    return {
        "base_url": url.rstrip("/"),
        "timeout": timeout_s,
        "headers": httpx.Headers(headers, encoding="utf-8"),
        "trust_env": not local,
    }


class HttpTransport:
    """HTTP, sync."""

    def __init__(self, url: str, ack: str, org: str, api_key: str, timeout_s: float) -> None:
        self._client = httpx.Client(**http_options(url, org, api_key, timeout_s))
        self._ack = ack
        self._url = url

    def send(self, lines: list[bytes]) -> Answer:
        """Publish events, each one JSON object, in order."""
        try:
            response = self._client.post(_EVENTS, params={"ack": self._ack}, content=_body(lines))
        except httpx.HTTPError as error:
            return _no_answer(self._url, error)
        return _answer(self._url, response, len(lines))

    def get(self, path: str, params: dict[str, Any]) -> Any:
        """Read a JSON document. Raises NotFound for 404, Unavailable when there is no answer."""
        try:
            return _document(self._client.get(path, params=params))
        except httpx.HTTPError as error:
            raise Unavailable(_no_answer(self._url, error).message) from None

    def close(self) -> None:
        """Let connections go."""
        self._client.close()


class AsyncHttpTransport:
    """HTTP, async."""

    def __init__(self, url: str, ack: str, org: str, api_key: str, timeout_s: float) -> None:
        self._client = httpx.AsyncClient(**http_options(url, org, api_key, timeout_s))
        self._ack = ack
        self._url = url

    async def send(self, lines: list[bytes]) -> Answer:
        """Publish events, each one JSON object, in order."""
        try:
            response = await self._client.post(_EVENTS, params={"ack": self._ack}, content=_body(lines))
        except httpx.HTTPError as error:
            return _no_answer(self._url, error)
        return _answer(self._url, response, len(lines))

    async def get(self, path: str, params: dict[str, Any]) -> Any:
        """Read a JSON document. Raises NotFound for 404, Unavailable when there is no answer."""
        try:
            return _document(await self._client.get(path, params=params))
        except httpx.HTTPError as error:
            raise Unavailable(_no_answer(self._url, error).message) from None

    async def close(self) -> None:
        """Let connections go."""
        await self._client.aclose()


class InboxTransport:
    """The Redis inbox, sync. An entry is in when Redis has it; what the door makes of it is not answered here."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self._redis = _redis()
        self._timeout_s = timeout_s
        self._nodes = Nodes(url)
        self._client = self._open(self._nodes.url)
        self._errors = (self._redis.RedisError, OSError)
        self._url = url

    def send(self, lines: list[bytes]) -> Answer:
        """Publish events, each one JSON object, in order."""
        for _ in range(HOPS):
            answer = self._add(lines)
            if answer is not None:
                return answer
        return _astray(self._url)

    def _add(self, lines: list[bytes]) -> Answer | None:
        """None where the inbox is at another node, to which the client has gone now."""
        try:
            pipeline = self._client.pipeline(transaction=False)
            for line in lines:
                pipeline.xadd(INBOX, flat(orjson.loads(line)))
            pipeline.execute()
        except self._redis.DataError as error:
            return _cannot_be_sent(error, len(lines))
        except self._redis.exceptions.MovedError as moved:
            self._go(self._nodes.follow(moved.host, moved.port))
            return None
        except self._errors as error:
            self._go(self._nodes.another())
            return _no_answer(self._url, error)
        return Answered([Outcome("delivered", "accepted")] * len(lines))

    def _open(self, url: str) -> Any:
        return self._redis.Redis.from_url(url, socket_timeout=self._timeout_s, socket_connect_timeout=self._timeout_s)

    def _go(self, url: str) -> None:
        self._client.close()
        self._client = self._open(url)

    def get(self, path: str, params: dict[str, Any]) -> Any:
        """Not possible. Raises RefoldError."""
        raise RefoldError(f"the inbox only takes events: read {path} through the HTTP address")

    def close(self) -> None:
        """Let connections go."""
        self._client.close()


class AsyncInboxTransport:
    """The Redis inbox, async."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self._redis = _redis()
        self._timeout_s = timeout_s
        self._nodes = Nodes(url)
        self._client = self._open(self._nodes.url)
        self._errors = (self._redis.RedisError, OSError)
        self._url = url

    async def send(self, lines: list[bytes]) -> Answer:
        """Publish events, each one JSON object, in order."""
        for _ in range(HOPS):
            answer = await self._add(lines)
            if answer is not None:
                return answer
        return _astray(self._url)

    async def _add(self, lines: list[bytes]) -> Answer | None:
        """None where the inbox is at another node, to which the client has gone now."""
        try:
            pipeline = self._client.pipeline(transaction=False)
            for line in lines:
                pipeline.xadd(INBOX, flat(orjson.loads(line)))
            await pipeline.execute()
        except self._redis.DataError as error:
            return _cannot_be_sent(error, len(lines))
        except self._redis.exceptions.MovedError as moved:
            await self._go(self._nodes.follow(moved.host, moved.port))
            return None
        except self._errors as error:
            await self._go(self._nodes.another())
            return _no_answer(self._url, error)
        return Answered([Outcome("delivered", "accepted")] * len(lines))

    def _open(self, url: str) -> Any:
        options = {"socket_timeout": self._timeout_s, "socket_connect_timeout": self._timeout_s}
        return self._redis.asyncio.Redis.from_url(url, **options)

    async def _go(self, url: str) -> None:
        await self._client.aclose()
        self._client = self._open(url)

    async def get(self, path: str, params: dict[str, Any]) -> Any:
        """Not possible. Raises RefoldError."""
        raise RefoldError(f"the inbox only takes events: read {path} through the HTTP address")

    async def close(self) -> None:
        """Let connections go."""
        await self._client.aclose()


def connect(url: str, ack: str, org: str, api_key: str, timeout_s: float) -> Transport:
    """The sync transport for an address. Raises ValueError for an address of another kind."""
    if is_inbox(url):
        return InboxTransport(url, timeout_s)
    return HttpTransport(url, ack, org, api_key, timeout_s)


def connect_async(url: str, ack: str, org: str, api_key: str, timeout_s: float) -> AsyncTransport:
    """The async transport for an address. Raises ValueError for an address of another kind."""
    if is_inbox(url):
        return AsyncInboxTransport(url, timeout_s)
    return AsyncHttpTransport(url, ack, org, api_key, timeout_s)


def _redis() -> Any:
    try:
        import redis.asyncio
    except ImportError as error:
        raise RefoldError("the inbox needs redis: pip install 'refold-sdk[redis]'") from error
    return redis


def _body(lines: list[bytes]) -> bytes:
    return b"[" + b",".join(lines) + b"]"


def _answer(url: str, response: httpx.Response, count: int) -> Answer:
    answer = read_answer(response.status_code, response.content, count, response.headers.get("retry-after", ""))
    return replace(answer, message=f"{shown(url)}: {answer.message}") if isinstance(answer, Away) else answer


def _cannot_be_sent(error: Exception, count: int) -> Answer:
    """An event with a member that is no entry's field: alone it is refused, so that it does not hold up the others."""
    message = f"an event that the inbox cannot take: {error}"
    return TooLarge(message) if count > 1 else Answered([Outcome("refused", "unsendable", message)])


def _document(response: httpx.Response) -> Any:
    if response.status_code == 404:
        raise NotFound(_problem(response))
    asked = shown(str(response.request.url))
    if response.status_code >= 500 or response.status_code in (408, 425, 429):
        raise Unavailable(f"{asked}: HTTP {response.status_code}: {_problem(response)}")
    if response.status_code >= 400:
        raise RefoldError(f"{asked}: HTTP {response.status_code}: {_problem(response)}")
    return orjson.loads(response.content)


def _problem(response: httpx.Response) -> str:
    try:
        value = orjson.loads(response.content)
    except orjson.JSONDecodeError:
        return response.text[:300]
    return (
        str(value.get("detail") or value.get("title") or value)[:300] if isinstance(value, dict) else str(value)[:300]
    )


def _astray(url: str) -> Away:
    return Away(f"the nodes of the Redis Cluster at {shown(url)} do not agree on where the inbox is")


def _no_answer(url: str, error: Exception) -> Away:
    # the chain behind the error is the HTTP library's own way to the same few words
    reason = str(error) or type(error).__name__
    return Away(f"no answer from {shown(url)} ({reason}): is `refold up` running there? REFOLD_URL names another")
