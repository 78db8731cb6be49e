"""``/v1/memories``: changing long-term memory. Everything is an event; every answer shows what the fold made of it."""

from __future__ import annotations

import asyncio
from functools import partial
from time import monotonic
from typing import Annotated, Any
from uuid import uuid4

import orjson
from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response

from events.keys import members_of
from events.publisher import Outcome
from events.types.memory import MemoryProposed
from projections.bounds import digest
from projections.queries import memories
from projections.queries.memories import Wanted
from services.api import memory_bodies as bodies
from services.api.deps import BackendDep, OrgDep
from services.api.memories import MEMORIES, Agent, User, found_memory, found_proposal, one_scope
from services.api.problems import Problem
from services.api.reading import now, read
from services.composition import Backend
from services.curation.extract import proposals_of
from services.curation.proposal import Rejected, candidate_of
from services.curation.safety import without_credentials, without_unseen

router = APIRouter(tags=["memories"])
By = Annotated[str, Query(max_length=256, description="Who says so; shown in the history")]
_POLL_S = 0.03
_EVERY = Wanted(status="")


@router.post("/v1/memories", openapi_extra=bodies.schema(bodies.Proposal))
async def propose(
    request: Request,
    backend: BackendDep,
    org: OrgDep,
    idempotency_key: Annotated[str, Header(max_length=100, description="The same request again changes nothing")] = "",
) -> Response:
    """Propose memories: one content, or what users said in messages. Answers with what became of each.

    202 while the curator has not decided on all of them: ask for the proposals again. What is refused has its reason.
    """
    body = await bodies.parsed(request, bodies.Proposal)
    name = idempotency_key or body.id or str(uuid4())
    raws = _raws(body, name)
    if not raws:
        return _json({"items": [], "token": ""}, 200)
    outcomes = await _published(backend, org, raws)
    items = await _fates(backend, org, raws, outcomes, body.wait_s)
    status = 202 if any(item["status"] == "pending" for item in items) else 200
    return _json({"items": items, "token": outcomes[-1].token}, status)


@router.patch("/v1/memories/{memory:name}", openapi_extra=bodies.schema(bodies.Edit))
async def edit(
    memory: str, request: Request, backend: BackendDep, org: OrgDep, user: User = "", agent: Agent = ""
) -> dict[str, Any]:
    """Change the words of a memory. With ``expected_version``, only if nobody has changed it since (409)."""
    body = await bodies.parsed(request, bodies.Edit)
    content = _safe(body.content)
    known = (await _there(backend, org, memory, user, agent)).copy()
    expected = body.expected_version
    if expected is not None and expected != known["version"]:
        raise _overtaken(memory, known["version"], expected)
    data = {"content": content, "by": body.by} | ({} if expected is None else {"expected_version": expected})
    found = await _change(backend, org, known, "memory.edited", data)
    if expected is not None and found["content"] != content:
        raise _overtaken(memory, found["version"], expected)
    return found


@router.post("/v1/memories/{memory:name}/invalidate")
async def invalidate(
    memory: str, backend: BackendDep, org: OrgDep, user: User = "", agent: Agent = "", by: By = "",
    reason: Annotated[str, Query(max_length=500)] = "",
) -> dict[str, Any]:  # fmt: skip
    """Say that a memory does not hold; ``restore`` takes it back."""
    known = await _there(backend, org, memory, user, agent)
    return await _change(backend, org, known, "memory.invalidated", {"reason": reason, "by": by})


@router.post("/v1/memories/{memory:name}/restore")
async def restore(
    memory: str, backend: BackendDep, org: OrgDep, user: User = "", agent: Agent = "", by: By = ""
) -> dict[str, Any]:
    """Say that an invalidated, superseded or expired memory holds again."""
    known = await _there(backend, org, memory, user, agent)
    return await _change(backend, org, known, "memory.restored", {"by": by})


@router.delete("/v1/memories/proposals/{proposal:name}")
async def cancel(proposal: str, backend: BackendDep, org: OrgDep, user: User = "", agent: Agent = "") -> dict[str, Any]:
    """Take a proposal back that is not decided yet; one that is decided stays as it is."""
    found = (await found_proposal(backend, org, proposal, user, agent)).value
    if found["status"] != "pending":
        raise Problem(409, "decided", f"the proposal is {found['status']} already", proposal=found)
    (outcome,) = await _published(backend, org, [_cancelled(found["scope"], proposal)])
    cancelled = await found_proposal(backend, org, proposal, user, agent, outcome.token)
    return {**cancelled.value, "token": outcome.token, "read": cancelled.note}


@router.delete("/v1/memories/{memory:name}")
async def delete(
    memory: str, backend: BackendDep, org: OrgDep, user: User = "", agent: Agent = "", by: By = ""
) -> dict[str, Any]:
    """Delete a memory: its words are gone from reads and history, and nothing automatic brings them back."""
    known = await _there(backend, org, memory, user, agent)
    return await _change(backend, org, known, "memory.deleted", {"by": by})


@router.delete("/v1/memories")
async def delete_all(
    backend: BackendDep, org: OrgDep, user: User = "", agent: Agent = "", by: By = ""
) -> dict[str, Any]:
    """Delete every memory of a user or an agent, and take back what waits to become one."""
    if not (user or agent):
        raise Problem(422, "bad_parameter", "say whose memories with `user` or `agent`")
    scope = one_scope(user, agent)

    def work(conn: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        there = memories.memories_of(conn, org, scope, now=now(), wanted=_EVERY)
        return there, memories.proposals_of(conn, org, scope, status="pending")

    there, pending = (await read(backend, MEMORIES, work, org=org, key=scope)).value
    raws = [_cancelled(scope, one["proposal"]) for one in pending]
    raws += [_raw(one, "memory.deleted", {"by": by}) for one in there]
    outcomes = await _published(backend, org, raws) if raws else []
    token = outcomes[-1].token if outcomes else ""
    return {"scope": scope, "deleted": len(there), "cancelled": len(pending), "token": token}


@router.post("/v1/memories/forget", openapi_extra=bodies.schema(bodies.Forget))
async def forget(request: Request, backend: BackendDep, org: OrgDep) -> dict[str, Any]:
    """Invalidate what has expired or faded, or with ``dry_run`` (the default) only say what that would be."""
    body = await bodies.parsed(request, bodies.Forget)
    scope = one_scope(body.user, body.agent)
    work = partial(memories.memories_of, org=org, scope=scope, now=now(), wanted=_EVERY._replace(kind=body.kind))
    there = (await read(backend, MEMORIES, work, org=org, key=scope)).value
    chosen = [(memory, why) for memory in there if (why := _fades(memory, body))]
    raws = [
        _raw(memory, "memory.invalidated", {"reason": f"forgotten: {why}", "by": body.by}) for memory, why in chosen
    ]
    outcomes = [] if body.dry_run or not raws else await _published(backend, org, raws)
    items = [{"memory": one["memory"], "content": one["content"], "importance": one["importance"], "why": why}
             for one, why in chosen]  # fmt: skip
    return {"items": items, "scope": scope, "dry_run": body.dry_run, "token": outcomes[-1].token if outcomes else ""}


def _fades(memory: dict[str, Any], body: bodies.Forget) -> str:
    if memory["status"] == "expired" and body.expired:
        return "expired"
    if memory["status"] == "active" and memory["importance"] < body.below:
        return f"its importance is {memory['importance']:.2f}, below {body.below:g}"
    return ""


def _raws(body: bodies.Proposal, name: str) -> list[dict[str, Any]]:
    """The events of a request: an id for each that follows from the request's."""
    if (body.content is None) == (not body.messages):
        raise Problem(422, "bad_parameter", "give `content` or `messages`, one of them")
    optional = {"ttl_s": body.ttl_s, "scope": body.scope}
    common = {
        "infer": body.infer, "tags": body.tags, "memory_type": body.memory_type,
        **{field: value for field, value in optional.items() if value is not None},
    }  # fmt: skip
    if body.content is not None:
        given = {"content": body.content, "kind": body.kind, "entity": body.entity, "attribute": body.attribute,
                 "corrects": body.corrects, "source": "person"}  # fmt: skip
        sure = {} if body.confidence is None else {"confidence": body.confidence}
        return [_proposed(body, name, {**common, **given, **sure})]
    if not body.infer:
        raise Problem(422, "bad_parameter", "`messages` are read for what they say: `infer` false needs `content`")
    said = [data for message in body.messages if message.role == "user" for data in proposals_of(message.content)]
    return [_proposed(body, f"{name}/{number}", {**common, **data}) for number, data in enumerate(said)]


def _proposed(body: bodies.Proposal, name: str, data: dict[str, Any]) -> dict[str, Any]:
    names = {key: value for key in ("user", "agent", "session", "task", "run") if (value := getattr(body, key))}
    return {"id": name, "type": "memory.proposed", **names, "data": data}


async def _fates(
    backend: Backend, org: str, raws: list[dict[str, Any]], outcomes: list[Outcome], wait_s: float
) -> list[dict[str, Any]]:
    """What became of proposals, as soon as all are decided or the time is over."""
    deadline, last = monotonic() + wait_s, outcomes[-1].token

    def work(conn: Any) -> list[dict[str, Any]]:
        found = []
        for raw in raws:
            scopes = memories.scopes_with_proposal(conn, org, raw["id"])
            mine = [scope for scope in scopes if scope in _possible(raw)]
            document = memories.proposal_document(conn, org, mine[0], raw["id"]) if mine else None
            found.append(document or {"proposal": raw["id"], "status": "pending"})
        return found

    while True:
        found: list[dict[str, Any]] = (await read(backend, MEMORIES, work, org=org, after=last)).value
        if monotonic() >= deadline or all(one["status"] != "pending" for one in found):
            return found
        await asyncio.sleep(_POLL_S)


def _possible(raw: dict[str, Any]) -> set[str]:
    return {"org", f"user/{raw.get('user', '')}", f"agent/{raw.get('agent', '')}"}


def _safe(content: str) -> str:
    """The words of an edit without what nobody sees. Raises Problem where they hold a secret, or hide themselves."""
    candidate = without_unseen(candidate_of(MemoryProposed(content=content)))
    checked = candidate if isinstance(candidate, Rejected) else without_credentials(candidate)
    if isinstance(checked, Rejected):
        raise Problem(422, checked.reason, f"this does not enter memory: {checked.detail}", field="content")
    return checked.content


async def _there(backend: Backend, org: str, memory: str, user: str, agent: str) -> dict[str, Any]:
    """A memory that can be changed. Raises Problem for a deleted one."""
    found: dict[str, Any] = (await found_memory(backend, org, memory, user, agent)).value
    if found["status"] == "deleted":
        raise Problem(410, "deleted", f"memory {memory!r} was deleted: nothing brings it back")
    return found


async def _change(backend: Backend, org: str, known: dict[str, Any], kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """Publish a change of a memory; the memory as it is then."""
    (outcome,) = await _published(backend, org, [_raw(known, kind, data)])
    level, _, name = known["scope"].partition("/")
    user, agent = (name if level == of else "" for of in ("user", "agent"))
    if level == "org":
        work = partial(memories.memory_document, org=org, scope="org", memory=known["memory"], now=now())
        found = await read(backend, MEMORIES, work, org=org, key="org", after=outcome.token)
    else:
        found = await found_memory(backend, org, known["memory"], user, agent, outcome.token)
    return {**found.value, "token": outcome.token, "read": found.note}


def _raw(known: dict[str, Any], kind: str, data: dict[str, Any]) -> dict[str, Any]:
    level = known["scope"].partition("/")[0]
    given = {"memory": known["memory"], "kind": known["kind"], "scope": level, **data}
    return {"id": f"{kind}-{uuid4()}", "type": kind, **members_of(known["scope"]), "data": given}


def _cancelled(scope: str, proposal: str) -> dict[str, Any]:
    data = {"proposal": proposal, "reason": "cancelled", "scope": scope.partition("/")[0]}
    return {"id": f"cancelled-{digest(proposal)}", "type": "memory.rejected", **members_of(scope), "data": data}


async def _published(backend: Backend, org: str, raws: list[dict[str, Any]]) -> list[Outcome]:
    outcomes: list[Outcome] = []
    most = backend.settings.max_batch
    for start in range(0, len(raws), most):
        outcomes += await backend.publisher.publish(raws[start : start + most], org=org, source="memories")
    for outcome in outcomes:
        if outcome.status not in ("stored", "duplicate"):
            status = 409 if outcome.status == "conflict" else 422
            raise Problem(status, outcome.code or outcome.status, outcome.message, field=outcome.field)
    return outcomes


def _overtaken(memory: str, version: int, expected: int) -> Problem:
    return Problem(
        409, "version", f"memory {memory!r} is at version {version}, not {expected}: read it again", version=version
    )


def _json(document: Any, status: int) -> Response:
    return Response(orjson.dumps(document), status, media_type="application/json")
