"""``/v1/tasks/{task}/export``: a task on its own, as a file that any instance takes in through ``POST /v1/events``.

JSON lines: a first one that tells what it is, the task's effective events as CloudEvents, and a last one with their
number and the digest of all lines before it (BLAKE2b, 16 bytes, in hexadecimal), by which a file that was cut off or
changed is known. Events that live with the session or a scope (settlements, say) come first: whoever settles the task
where it is brought in finds them there already. What only a backend decides
(``events.registry.ONLY_HERE``) is left out, and so is the organisation: it is the importer's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from hashlib import blake2b

import orjson
from fastapi import APIRouter
from starlette.responses import StreamingResponse

from events.archive.queries import last_of_key, read_key, read_run
from events.archive.reader import Archived
from events.codec import to_cloudevent
from events.event import START, Position
from events.keys import task_key
from events.registry import ONLY_HERE
from services.api.deps import BackendDep, OrgDep
from services.api.problems import Problem
from services.composition import Backend

router = APIRouter(tags=["tasks"])

VERSION = 1
"""Of the file's form."""

MEDIA_TYPE = "application/x-ndjson"
_PAGE = 500


@router.get("/v1/tasks/{task:name}/export", response_class=StreamingResponse)
async def export(task: str, backend: BackendDep, org: OrgDep) -> StreamingResponse:
    """All events of a task, as JSON lines between a first and a last line that tell what they are and that all came."""
    key = task_key(task)
    last = await backend.db.read(partial(last_of_key, org=org, key=key))
    if last is None:
        raise Problem(404, "no_checkpoint", f"no_checkpoint: nothing saved for task {task!r}")
    # what comes meanwhile is not part of the export
    return StreamingResponse(_lines(backend, org, task, last.position), media_type=MEDIA_TYPE)


async def _lines(backend: Backend, org: str, task: str, last: Position) -> AsyncIterator[bytes]:
    head = orjson.dumps({"refold_export": "task", "version": VERSION, "task": task}) + b"\n"
    digest, events = blake2b(head, digest_size=16), 0
    yield head
    async for archived in _events(backend, org, task, last):
        text = b"".join(_line(one) for one in archived)
        digest.update(text)
        events += len(archived)
        yield text
    yield orjson.dumps({"refold_end": "task", "events": events, "digest": digest.hexdigest()}) + b"\n"


async def _events(backend: Backend, org: str, task: str, last: Position) -> AsyncIterator[list[Archived]]:
    """The effective events, page by page: those under other keys, then the task's own in their order."""
    key = task_key(task)
    runs = dict.fromkeys([one.event().run async for page in _of_key(backend, org, key, last) for one in page])
    for run in filter(None, runs):
        async for page in _of_run(backend, org, run):
            yield [one for one in page if one.event().key != key and one.event().task == task]
    async for page in _of_key(backend, org, key, last):
        yield page


async def _of_key(backend: Backend, org: str, key: str, last: Position) -> AsyncIterator[list[Archived]]:
    after = START
    while page := await backend.db.read(partial(read_key, org=org, key=key, after=after, limit=_PAGE, upto=last)):
        yield list(_effective(page))
        after = page[-1].position


async def _of_run(backend: Backend, org: str, run: str) -> AsyncIterator[list[Archived]]:
    after: tuple[int, Position] | None = None
    while page := await backend.db.read(partial(read_run, org=org, run=run, after=after, limit=_PAGE)):
        yield list(_effective(page))
        after = (page[-1].partition, page[-1].position)


def _effective(page: list[Archived]) -> Iterator[Archived]:
    """What counts, without what the backend here decided: where the task is brought in, it is decided anew."""
    return (one for one in page if one.verdict == "effective" and one.type not in ONLY_HERE)


def _line(archived: Archived) -> bytes:
    document = to_cloudevent(archived.event())
    del document["org"]
    return orjson.dumps(document) + b"\n"
