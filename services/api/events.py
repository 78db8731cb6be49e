"""``POST /v1/events``: one event or a batch through the door, an outcome for each."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from events import door
from events.errors import Refused
from events.publisher import NotDurable, Outcome
from services.api.body import read_body
from services.api.deps import MAX_ORG_CHARS, BackendDep, OrgDep
from services.api.problems import Problem, problem_response, status_of

router = APIRouter(tags=["events"])

_ONE = "application/cloudevents+json"
_BATCH = "application/cloudevents-batch+json"
_PLAIN = "application/json"
_INLINE_BYTES = 1 << 16
_GRACE_S = 1.0
_TAKEN = ("stored", "duplicate", "accepted")
_EXAMPLE = {
    "specversion": "1.0",
    "id": "01977d1e-5d2a-7000-8000-000000000001",
    "type": "run.started",
    "run": "run-1",
    "data": {"goal": "Describe the event"},
}
_OPENAPI = {
    "requestBody": {
        "required": True,
        "content": {
            _ONE: {"schema": {"type": "object"}, "example": _EXAMPLE},
            _BATCH: {"schema": {"type": "array", "items": {"type": "object"}}, "example": [_EXAMPLE]},
            _PLAIN: {"schema": {"anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}}]}},
        },
    },
    "responses": {
        "200": {"description": "All are durable (stored, or duplicates of stored ones)"},
        "202": {"description": "`ack=fast`: all are on the log, not yet durable"},
        "207": {"description": "Some were taken, some not: see each outcome"},
        "400": {"description": "The body, or its one event, cannot be read"},
        "409": {"description": "The events conflict with stored ones"},
        "413": {"description": "The body, the event or the number of events is too large; the limit is named"},
        "415": {"description": "The body is of another media type, or compressed"},
        "422": {"description": "The events were refused; nothing is stored"},
        "503": {"description": "Not durable: send the same events again with the same ids"},
    },
}


@router.post("/v1/events", openapi_extra=_OPENAPI)
async def publish(
    request: Request,
    backend: BackendDep,
    org: OrgDep,
    ack: Annotated[Literal["durable", "fast"], Query(description="When to answer")] = "durable",
) -> Response:
    """Publish one CloudEvent or a batch. Every event gets an outcome; one bad event harms no other."""
    kind = request.headers.get("content-type", _PLAIN).partition(";")[0].strip().lower()
    if kind not in (_ONE, _BATCH, _PLAIN):
        raise Problem(415, "media_type", f"{kind} is not understood: send {_PLAIN}, {_ONE} or {_BATCH}")
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise Problem(415, "content_encoding", f"a body in {encoding} is not unpacked: send it as it is")
    body = await read_body(request, request.app.state.max_body_bytes)
    # reading a large body takes long enough to keep other requests waiting
    read = door.read_json(body) if len(body) <= _INLINE_BYTES else await asyncio.to_thread(door.read_json, body)
    most = backend.settings.max_batch
    if len(read) > most:
        detail = f"{len(read):,} events in one request are more than the limit of {most:,}: send them in several"
        raise Problem(413, "too_many_events", detail, limit=most)
    raws = [_of_org(raw, org) for raw in read]
    limit_s = backend.settings.publish_timeout_s + _GRACE_S
    try:
        # the publisher keeps its time limit only while Redis answers at all
        async with asyncio.timeout(limit_s):
            outcomes = await backend.publisher.publish(raws, org=org, ack=ack)
    except TimeoutError as error:
        raise NotDurable(f"not durable after {limit_s:g} s: send the same events again with the same ids") from error
    return answer(outcomes)


def _of_org(raw: Any, org: str) -> Any:
    """The raw event, or its refusal when it names another organisation than the request acts for."""
    named = raw.get("org") if isinstance(raw, dict) else None
    if not isinstance(named, str) or named in ("", org):
        return raw
    message = (
        f"`org` is {named[:MAX_ORG_CHARS]!r}, but the request acts for {org!r}: "
        "leave it out, or send the header X-Refold-Org of that organisation"
    )
    return Refused(message, code="wrong_org", field="org", raw=raw)


def answer(outcomes: Sequence[Outcome]) -> Response:
    """The response that tells all outcomes; a problem document when nothing was taken."""
    document = {"outcomes": [_document(outcome) for outcome in outcomes]}
    statuses: Counter[str] = Counter(outcome.status for outcome in outcomes)
    taken = sum(statuses[status] for status in _TAKEN)
    if taken == len(outcomes):
        return _json(document, 202 if statuses["accepted"] else 200)
    if taken or len(statuses) > 1:
        return _json(document, 207)
    first = outcomes[0]
    status = 409 if first.status == "conflict" else _strictest(outcomes)
    more = f" (and {len(outcomes) - 1} more)" if len(outcomes) > 1 else ""
    members = {"field": first.field} if first.field else {}
    return problem_response(Problem(status, first.code or first.status, first.message + more, **members, **document))


def _strictest(outcomes: Sequence[Outcome]) -> int:
    """The status that fits all refusals: their common one, else 422."""
    found = {status_of(outcome.code) for outcome in outcomes}
    return found.pop() if len(found) == 1 else 422


def _document(outcome: Outcome) -> dict[str, Any]:
    """The outcome's fields; empty ones are left out."""
    return {name: value for name, value in asdict(outcome).items() if value or name == "id"}


def _json(document: Any, status: int) -> Response:
    return Response(orjson.dumps(document), status, media_type="application/json")
