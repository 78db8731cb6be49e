"""``/v1/erasures``: erasing a subject, how far that is, and what was erased, when and by whom."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any
from uuid import uuid4

from fastapi import APIRouter, Query, Response
from pydantic import Field

from events.archive import erasing
from events.archive.erasing import Erasure
from events.archive.subjects import Subject
from events.errors import Transient
from events.strict_json import clean_text
from events.types.system import Erasable
from services.api.deps import BackendDep, OrgDep
from services.api.listings import rfc3339
from services.api.memory_bodies import Body
from services.api.paging import PageParam
from services.api.problems import Problem
from services.composition import Backend
from services.erasing.asking import MAX_ID_CHARS, ask, events_of
from services.erasing.eraser import waits_for

router = APIRouter(tags=["erasures"])


class Ask(Body):
    """What to erase. ``id``: the same one again completes an erasure and begins no other."""

    level: Erasable
    subject: Annotated[str, Field(max_length=256, description="Its name; of `org`, the organisation again")]
    by: Annotated[str, Field(max_length=256, description="Who asks; it is recorded")] = ""
    id: Annotated[str, Field(max_length=MAX_ID_CHARS, pattern=r"^[!-.0-~]*$", description="Default: a new one")] = ""


@router.post("/v1/erasures", status_code=202)
async def erase(
    body: Ask,
    backend: BackendDep,
    org: OrgDep,
    response: Response,
    dry_run: Annotated[bool, Query(description="Count what would go, and change nothing")] = False,
) -> dict[str, Any]:
    """Erase all that a user, an agent, a task, a session, a run or the organisation has said, and what came of it.

    When this answers, the archive holds none of it. Poll the answer's `Location` until nothing else does. It cannot be
    taken back.
    """
    subject = _subject(org, body)
    if dry_run:
        response.status_code = 200
        found = await backend.db.read(partial(erasing.count, subject=subject, partitions=backend.partitions))
        return {**_named(subject), "dry_run": True, **found._asdict()}
    erasure = body.id or uuid4().hex
    begun = await backend.db.read(partial(erasing.read_erasures, org=org, erasure=erasure))
    by = begun[0].by if begun and begun[0].subject == subject else body.by  # who completes it has not asked for it
    await ask(backend.publisher, events_of(subject, erasure, by, backend.partitions))
    response.headers["location"] = f"/v1/erasures/{erasure}"
    return await _shown(backend, org, erasure)


@router.get("/v1/erasures")
async def list_(backend: BackendDep, org: OrgDep, page: PageParam) -> dict[str, Any]:
    """The erasures of the organisation, the newest first: the audit. It tells how many events went, never what."""
    found = await backend.db.read(partial(erasing.read_erasures, org=org))
    return page.slice([_document(one) for one in found])


@router.get("/v1/erasures/{id:name}")
async def show(id: str, backend: BackendDep, org: OrgDep) -> dict[str, Any]:
    """How far an erasure is: where words of it may still be (`waits_for`), until it is `done`."""
    return await _shown(backend, org, id)


async def _shown(backend: Backend, org: str, id: str) -> dict[str, Any]:
    found = await backend.db.read(partial(erasing.read_erasures, org=org, erasure=id))
    if not found:
        raise Problem(404, "no_erasure", f"there is no erasure {id!r} in this organisation")
    try:
        waits = await waits_for(backend, found[0])
    except Transient as error:
        waits = [str(error)]
    return {**_document(found[0]), "waits_for": waits}


def _subject(org: str, body: Ask) -> Subject:
    if body.level == "org" and body.subject != org:
        raise Problem(422, "wrong_org", f"the request acts for {org!r}: to erase all of it, name it as the subject")
    if not body.subject:  # whatever name an event may have, somebody can ask that its events go
        raise Problem(422, "bad_subject", "`subject` is the name of what is to be erased")
    return Subject(org, body.level, clean_text(body.subject))


def _document(erasure: Erasure) -> dict[str, Any]:
    return {
        "id": erasure.erasure,
        **_named(erasure.subject),
        "by": erasure.by,
        "received": rfc3339(erasure.received_ms),
        "events": erasure.events,
        "state": "running" if erasure.finished_ms is None else "done",
        "finished": None if erasure.finished_ms is None else rfc3339(erasure.finished_ms),
    }


def _named(subject: Subject) -> dict[str, str]:
    return {"org": subject.org, "level": subject.level, "subject": subject.name}
