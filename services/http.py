"""The HTTP server inside a process that has its own ideas about signals."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

import uvicorn

from events.errors import RefoldError, SetupError

if TYPE_CHECKING:
    from fastapi import FastAPI

GRACEFUL_S = 5
STARTED_LOOK_S = 0.01

_log = logging.getLogger("refold.http")


class HttpServer:
    """uvicorn on a socket that is bound early, so that a taken port is known before anything else starts."""

    def __init__(self, host: str, port: int) -> None:
        """Bind. Raises SetupError for a taken port or an address that is not ours."""
        self._socket = _bind(host, port)
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._socket.getsockname()[1]}"

    async def start(self, app: FastAPI) -> None:
        """Serve; returns when requests are answered. Raises SetupError when it cannot."""
        config = uvicorn.Config(
            app, log_config=None, access_log=False, timeout_graceful_shutdown=GRACEFUL_S, server_header=False
        )
        self._server = _Server(config)
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._socket]), name="http")
        while not self._server.started:
            if self._serving.done():
                await self._serving
                raise SetupError("the HTTP server ended while it started; its log says why")
            await asyncio.sleep(STARTED_LOOK_S)

    async def wait(self, stopping: asyncio.Event) -> None:
        """Until ``stopping``. Raises RefoldError when the server ends by itself."""
        asked = asyncio.create_task(stopping.wait())
        await asyncio.wait({asked, self._serving}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if not stopping.is_set():
            await self._serving
            raise RefoldError("the HTTP server ended by itself; its log says why")

    async def stop(self) -> None:
        """Take no more requests, finish those at work."""
        self._server.should_exit = True
        await asyncio.gather(self._serving, return_exceptions=True)

    def close(self) -> None:
        """Let the port go."""
        self._socket.close()


async def serve(app: FastAPI, server: HttpServer, stopping: asyncio.Event) -> None:
    """Serve an app until ``stopping``; the port is free again afterwards."""
    try:
        await server.start(app)
        _log.info("serving %s", server.url)
        await server.wait(stopping)
        await server.stop()
    finally:
        server.close()


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: they would end the process under the services' feet."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the process."""
        yield


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise SetupError(f"REFOLD_HTTP_HOST {host!r} is no address of this machine: {error}") from error
    bound = socket.socket(family, kind, protocol)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(address)
        bound.listen(2048)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise SetupError(
                f"port {port} of {host} is taken: stop the program that has it, or take another by --http "
                "(REFOLD_HTTP_PORT; 0: any)"
            ) from error
        raise SetupError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    bound.setblocking(False)
    return bound
