"""``refold mcp``: the tools for models, on standard input and output."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated

import httpx
import typer

from services.cli.client import TIMEOUT_S, instance_url
from services.cli.options import Data, Url


def register(app: typer.Typer) -> None:
    """Add the command of this group."""
    app.command("mcp")(mcp)


def mcp(
    agent: Annotated[
        str, typer.Option(metavar="NAME", envvar="REFOLD_AGENT", help="The agent that the model acts as.")
    ] = "",
    user: Annotated[str, typer.Option(metavar="NAME", envvar="REFOLD_USER", help="The user that it works for.")] = "",
    task: Annotated[str, typer.Option(metavar="ID", envvar="REFOLD_TASK", help="The task that it works at.")] = "",
    data: Data = None,
    url: Url = None,
) -> None:
    """Serve MCP on standard input and output.

    For a client that starts its servers itself; others use the address of the instance with /mcp behind it. Whom the
    model acts for is told here, never by the model.
    """
    from services.mcp.caller import Api, Caller  # the SDK takes most of a second to import
    from services.mcp.server import make_server

    caller = Caller(os.environ.get("REFOLD_ORG", ""), agent, user, task)

    async def serve() -> None:
        async with httpx.AsyncClient(base_url=instance_url(data, url), timeout=TIMEOUT_S, trust_env=False) as http:
            await make_server(Api(http, caller)).run_stdio_async()

    asyncio.run(serve())
