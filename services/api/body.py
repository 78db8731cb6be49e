"""Reading a request body within bounds: a body over the limit is refused without reading it all (C28)."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from services.api.problems import Problem, problem_response

MAX_BODY_BYTES = 16 << 20
_LINGER_S = 2.0
_LINGER_BYTES = 4 << 20


class BodyTooLarge(Problem):
    """The body is over the limit; the connection closes after the answer."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            413,
            "body_too_large",
            f"the body is larger than the limit of {limit:,} bytes: send fewer events at once, "
            "and head, tail and digest of large output",
            limit=limit,
        )


async def read_body(request: Request, limit: int) -> bytes:
    """The body. Raises BodyTooLarge as soon as it is known to be over ``limit`` bytes."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise BodyTooLarge(limit)
    chunks, size = [], 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > limit:
                raise BodyTooLarge(limit)
            chunks.append(chunk)
    except ClientDisconnect as error:
        raise Problem(400, "client_gone", "the connection closed before the body was complete") from error
    return b"".join(chunks)


def install_too_large(app: FastAPI) -> None:
    """Answer BodyTooLarge by ``TooLargeResponse``."""

    async def on_too_large(request: Request, error: Exception) -> Response:
        assert isinstance(error, BodyTooLarge)
        return TooLargeResponse(error)

    app.add_exception_handler(BodyTooLarge, on_too_large)


class TooLargeResponse(Response):
    """Answers 413, then reads on a little.

    A client that is still sending sees the answer only if the connection does not break under its hands at once.
    """

    def __init__(self, error: BodyTooLarge) -> None:
        whole = problem_response(error, {"connection": "close"})
        super().__init__(whole.body, whole.status_code, whole.headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer whole, but end the response only after the client stopped sending (bounded)."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": bytes(self.body), "more_body": True})
        with suppress(TimeoutError):
            await asyncio.wait_for(self._drain(receive), _LINGER_S)
        await send({"type": "http.response.body", "body": b""})

    async def _drain(self, receive: Receive) -> None:
        drained = 0
        while drained < _LINGER_BYTES:
            message: Message = await receive()
            drained += len(message.get("body", b""))
            if message["type"] == "http.disconnect" or not message.get("more_body"):
                return
