"""A context made now, with its record; and made again from the record."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from sqlalchemy import Connection

from events.archive import queries
from events.archive.erasing import ERASED
from events.clock import now_ms
from events.errors import Refused
from events.event import Position
from events.keys import partition_of, task_key
from events.tokens import write_token
from events.types.system import ContextAssembled
from projections.context.assembly import Assembled, assemble
from projections.context.material import Material
from services.composition import Backend
from services.contexts.gathering import gather
from services.contexts.readers import LiveReader, PastReader
from services.contexts.records import Record, raw_event, recalls, record_of
from services.contexts.request import ContextRequest, new_id
from services.embedding.comparing import Comparison
from services.policies.scopes import PolicyScopes
from services.searching.search import Searcher


@dataclass(frozen=True)
class Made:
    """A context. ``events``, its record and recalls, are still to be published; ``notes``: how far read models were."""

    context: str
    assembled: Assembled
    material: Material
    now: datetime
    events: list[dict[str, Any]]
    notes: dict[str, bool]


class NotTheSame(Refused):
    """A context cannot be made again as it was."""


async def make(
    backend: Backend,
    searcher: Searcher,
    comparison: Comparison,
    policies: PolicyScopes,
    org: str,
    request: ContextRequest,
    after: str = "",
) -> Made:
    """A context of now. ``after``: a position token that it must have seen; else all of the task that is durable.

    Raises Refused (code ``no_checkpoint``) where nothing is known of the task.
    """
    now = datetime.fromtimestamp(now_ms() / 1000, UTC)
    newest = after or await _newest(backend, org, task_key(request.task))
    reader = LiveReader(backend, searcher, comparison, policies, org, newest)
    gathered = await gather(reader, request, now)
    if gathered.material.state is None and not gathered.material.sources:
        raise Refused(f"no_checkpoint: nothing saved for task {request.task!r}", code="no_checkpoint", field="task")
    assembled = await _assembled(gathered.material, request)
    context = new_id(request.task, now_ms())
    event = raw_event(context, request, now, reader.positions, gathered, assembled)
    events = [event, *recalls(context, now, gathered, assembled)]
    return Made(context, assembled, gathered.material, now, events, reader.notes)


async def _assembled(material: Material, request: ContextRequest) -> Assembled:
    # in a thread: thousands of facts are weighed
    return await asyncio.to_thread(assemble, material, max_tokens=request.max_tokens, parts=request.parts)


async def _newest(backend: Backend, org: str, key: str) -> str:
    last = await backend.db.read(partial(queries.last_of_key, org=org, key=key))
    return "" if last is None else write_token([(partition_of(org, key, backend.partitions), last.position)])


async def make_again(backend: Backend, org: str, context: str, task: str) -> Made:
    """A recorded context, byte for byte. Raises Refused (code ``no_context``) where no record of this task has the id;
    NotTheSame where what it was made of was erased, or other code assembles it differently.
    """
    record = await _record(backend, org, context, task)
    reader = PastReader(backend, org, record.positions, record.flows, record.recalled, record.brought)
    gathered = await gather(reader, record.request, record.now)
    assembled = await _assembled(gathered.material, record.request)
    if assembled.digest != record.digest:
        raise NotTheSame(
            f"context {context!r} cannot be made again as it was: something that it was made of was erased, or it was "
            f"made by another version ({assembled.digest} is not {record.digest})",
            code="not_the_same",
        )
    return Made(context, assembled, gathered.material, record.now, [], {})


async def _record(backend: Backend, org: str, context: str, task: str) -> Record:
    event = await backend.db.read(partial(_event, org=org, key=task_key(task), context=context)) if task else None
    record = None if event is None else record_of(event)
    if record is None:
        if not task:
            raise Refused(
                f"a context is named ID@TASK, and {context!r:.200} names no task", code="no_context", field="task"
            )
        raise Refused(f"task {task!r} has no record of a context {context!r:.200}", code="no_context", field="context")
    return record


def _event(conn: Connection, org: str, key: str, context: str) -> ContextAssembled | None:
    name = (org, key, context)
    first = queries.read_ids(conn, [name]).get(name)
    if first is None:
        return None
    following = Position(first.position.epoch, first.position.n + 1)
    page = queries.read_key_back(conn, org, key, following, 1)
    if page and page[0].verdict == ERASED:
        raise NotTheSame(f"context {context!r:.200} was erased", code="not_the_same")
    payload = page[0].recorded().payload if page else None
    return payload if isinstance(payload, ContextAssembled) else None
