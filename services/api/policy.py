"""``/v1/policy``: what was learned to do, for one context: rules, constraints, notices, and all of them as text."""

from __future__ import annotations

from typing import Annotated, Any, cast

from fastapi import APIRouter, BackgroundTasks, Depends, Query, Request

from services.api.deps import After, BackendDep, OrgDep
from services.api.reading import now
from services.api.recording import record
from services.contexts.request import new_id
from services.policies.policy import DEFAULT_TOKENS, PolicyRequest, policy
from services.policies.records import told_event
from services.policies.scopes import PolicyScopes

router = APIRouter(tags=["beliefs"])

LISTS = ("tools", "tags")
"""Fields of a context that are lists, also when they come as one text with commas."""
_OWN = ("agent", "user", "task", "tokens", "why", "after")


async def _policies(request: Request) -> PolicyScopes:
    return cast(PolicyScopes, request.app.state.policies)


PoliciesDep = Annotated[PolicyScopes, Depends(_policies)]


@router.get("/v1/policy")
async def show(
    request: Request,
    backend: BackendDep,
    scopes: PoliciesDep,
    org: OrgDep,
    later: BackgroundTasks,
    agent: Annotated[str, Query(description="Beliefs of this agent")] = "",
    user: Annotated[str, Query(description="Beliefs of this user")] = "",
    task: Annotated[str, Query(description="A task: it tells its user, agent, goal, mode, step and tools")] = "",
    goal: Annotated[str, Query(description="What is to be reached, in words")] = "",
    query: Annotated[str, Query(description="What is asked now, in words")] = "",
    mode: Annotated[str, Query(description="Mode of work")] = "",
    tool: Annotated[str, Query(description="The tool that is to be called next")] = "",
    tools: Annotated[str, Query(description="Tools at hand, with commas between")] = "",
    tokens: Annotated[int, Query(description="Most tokens of `text`, by Refold's estimate")] = DEFAULT_TOKENS,
    why: Annotated[str, Query(description="A belief: the answer says why it is told here, or why not")] = "",
    after: After = None,
) -> dict[str, Any]:
    """The beliefs to tell for a context, the user's own standing preferences first; what to confirm first stands apart.

    Any other parameter is a field of the context, for triggers that ask for it. What rules a task was told is recorded
    after the answer, as it is of a context.
    """
    fields = fields_of(request)
    wanted = PolicyRequest(agent=agent, user=user, task=task, fields=fields, tokens=tokens, why=why)
    moment = now()
    answer = await policy(backend, scopes, org, wanted, moment, after)
    if task and not why:
        name = new_id(task, int(moment.timestamp() * 1000))
        if event := told_event(name, task, answer, moment):
            later.add_task(record, backend, org, f"policy {name}", [event], "policy")
    return answer


def fields_of(request: Request) -> dict[str, Any]:
    """Fields of a context, from the parameters of an address: one that is given twice is a list."""
    fields: dict[str, Any] = {}
    params = request.query_params
    for name in params:
        if name in _OWN:
            continue
        given = [text for text in params.getlist(name) if text.strip()]
        if name in LISTS:
            given = [part.strip() for text in given for part in text.split(",") if part.strip()]
            fields[name] = given
        elif given:
            fields[name] = given if len(given) > 1 else given[0]
    return fields
