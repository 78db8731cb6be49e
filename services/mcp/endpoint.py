"""``/mcp``: MCP over streamable HTTP, without sessions: each request says whom it acts for, in its headers.

The server is made at the first request: most instances never get one.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

import httpx
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from services.mcp.caller import Api

_LOCAL = ("localhost", "127.0.0.1", "::1")


class McpEndpoint:
    """An ASGI application. ``api`` is the application whose routes the tools ask; ``stop`` it in the end."""

    def __init__(self, api: ASGIApp) -> None:
        self._api = api
        self._starting = asyncio.Lock()
        self._stopping = asyncio.Event()
        self._manager: Any = None
        self._serving: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; only POST, since there is no session whose messages could be listened to."""
        origin = Headers(scope=scope).get("origin", "")
        if scope["method"] != "POST":
            await PlainTextResponse("only POST is served here", 405, {"allow": "POST"})(scope, receive, send)
        elif origin and urlsplit(origin).hostname not in _LOCAL:
            # a page in somebody's browser must not get at an instance within their network
            await PlainTextResponse("pages from elsewhere are not served", 403)(scope, receive, send)
        else:
            await (await self._started()).handle_request(scope, receive, send)

    async def stop(self) -> None:
        """End what still runs."""
        self._stopping.set()
        if self._serving is not None:
            await self._serving

    async def _started(self) -> Any:
        async with self._starting:
            if self._manager is None:
                ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                self._serving = asyncio.create_task(self._serve(ready))
                await asyncio.wait((ready, self._serving), return_when=asyncio.FIRST_COMPLETED)
                if not ready.done():
                    await self._serving  # it failed: let that be known, and tried again by the next request
                self._manager = ready.result()
        return self._manager

    async def _serve(self, ready: asyncio.Future[Any]) -> None:
        """Run the session manager, from its beginning to its end in one task, as its task group wants it."""
        make_manager = await asyncio.to_thread(_make_manager)  # others are answered while it is imported
        transport = httpx.ASGITransport(self._api)
        async with httpx.AsyncClient(transport=transport, base_url="http://refold") as http:
            manager = make_manager(Api(http))
            async with manager.run():
                ready.set_result(manager)
                await self._stopping.wait()


def _make_manager() -> Any:
    from services.mcp.server import make_manager

    return make_manager
