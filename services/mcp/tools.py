"""The tools that a model may call: one method each. Its docstring is what the model reads.

A method's first parameter is the request; the others are what the model says. Whom it acts for is told by the client.
"""

from __future__ import annotations

from typing import Annotated, Any

from mcp.server.mcpserver import Context
from mcp_types import ToolAnnotations
from pydantic import Field

from services.mcp.caller import Api

READS = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)

TOOLS = {"get_policy": READS}
"""Name of a tool -> what it may do."""

NOTHING = "Nothing was learned that applies here."


class Tools:
    """Tools over one API."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def get_policy(
        self,
        context: Context[Any, Any],
        goal: Annotated[str, Field(description="What is to be reached, in words")] = "",
        query: Annotated[str, Field(description="What is asked now, in words")] = "",
        tool: Annotated[str, Field(description="The tool that you are about to call")] = "",
        tools: Annotated[list[str] | None, Field(description="Names of the tools that you have")] = None,
        mode: Annotated[str, Field(description="Mode of work, such as precise_planning")] = "",
        tags: Annotated[list[str] | None, Field(description="Words that say what kind of work this is")] = None,
        tokens: Annotated[int, Field(description="Most tokens of the answer", ge=1, le=10_000)] = 1_000,
    ) -> str:
        """What was learned to do in this situation: rules to follow, the user's own first; then what went wrong before
        and is to be confirmed first. Ask before you plan, and before a call with side effects.
        """
        caller = self._api.caller(context.headers)
        asked = {"goal": goal, "query": query, "tool": tool, "tools": ",".join(tools or ()), "mode": mode}
        whose = {"agent": caller.agent, "user": caller.user, "task": caller.task}
        found = await self._api.get(caller, "/v1/policy", {**asked, **whose, "tags": tags, "tokens": tokens})
        return str(found["text"]) or NOTHING
