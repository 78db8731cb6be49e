"""Names in paths: any text, percent-encoded, in one segment (``/v1/tasks/a%2Fb%20c%3Fd``).

Servers hand over the path decoded, where an encoded slash cannot be told from a separator. So routing happens on the
path as it was sent, and each name is decoded when it is taken out of it.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

from starlette.convertors import Convertor, register_url_convertor
from starlette.types import ASGIApp, Receive, Scope, Send


class Name(Convertor[str]):
    """One path segment, decoded."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        """The name that a segment stands for."""
        return unquote(value)

    def to_string(self, value: str) -> str:
        """The segment of a name."""
        return quote(value, safe="")


def register_names() -> None:
    """Make ``{task:name}`` known to routes."""
    register_url_convertor("name", Name())


class RoutePathAsSent:
    """Puts the path as it was sent in place of the decoded one."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] == "http" and scope.get("raw_path"):
            if b"%00" in scope["raw_path"] or b"%00" in scope["query_string"]:
                # not at the top: job processes import this package, and have no use for FastAPI
                from services.api.problems import Problem, problem_response

                problem = Problem(422, "bad_parameter", "no name holds a NUL: the door stores it as U+FFFD")
                await problem_response(problem)(scope, receive, send)
                return
            scope = {**scope, "path": scope["raw_path"].decode("latin-1").partition("?")[0]}
        await self.app(scope, receive, send)
