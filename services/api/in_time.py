"""Every read is answered within a time: 503 with what to do, where a store hangs instead of failing."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.api.problems import RETRY_AFTER_S, Problem, problem_response

LONGEST_WAIT_S = 60.0
"""What a read may ask to wait for, at most."""


class ReadsInTime:
    """Bounds GET and HEAD requests: ``limit_s`` seconds to the first byte of the answer; then the read is dropped.

    A read that asks to wait for something, by ``wait_s``, has that much more.

    What changes something is not bounded here: a publish has a limit of its own, and says what became of the events.
    """

    def __init__(self, app: ASGIApp, limit_s: float) -> None:
        self.app = app
        self.limit_s = limit_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await self.app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self.limit_s + _asked_for_s(scope)) as limit:

                async def answering(message: Message) -> None:
                    if limit.when() is not None:
                        limit.reschedule(None)
                    await send(message)

                await self.app(scope, receive, answering)
        except TimeoutError:
            if not limit.expired():
                raise
            problem = Problem(503, "no_answer", self._detail())
            await problem_response(problem, {"retry-after": str(RETRY_AFTER_S)})(scope, receive, send)

    def _detail(self) -> str:
        return (
            f"no answer from the store within {self.limit_s:g} s: it hangs, or has too much to do. Ask again, or for "
            "less; /readyz tells what does not answer, and REFOLD_STORE_TIMEOUT_S sets how long a read waits"
        )


def _asked_for_s(scope: Scope) -> float:
    """What a read says that it is ready to wait; 0 for what is no such number: its route refuses that."""
    text = parse_qs(scope["query_string"].decode("latin-1")).get("wait_s", [""])[-1]
    try:
        seconds = float(text)
    except ValueError:
        return 0.0
    return seconds if 0 <= seconds <= LONGEST_WAIT_S else 0.0
