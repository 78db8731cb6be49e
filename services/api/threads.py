"""``/v1/threads`` and ``/v1/items``: the checkpoints of an agent's runtime, and its long-term store of keyed values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query
from sqlalchemy import Connection
from starlette.responses import Response

from events.archive.queries import last_archived, last_of_key
from events.archive.store import log_id
from events.keys import items_task, task_key, thread_task
from events.tokens import write_token
from projections.queries import items, threads
from projections.queries.threads import Wanted
from services.api.deps import After, BackendDep, OrgDep
from services.api.paging import Page, PageParam
from services.api.problems import Problem
from services.api.reading import Found, missing, newest, read, token_of
from services.composition import Backend

router = APIRouter(tags=["threads"])
THREADS, ITEMS = "threads", "items"
Namespace = Annotated[str | None, Query(description="Of this namespace alone; the root's is empty")]


@router.get("/v1/threads/{thread:name}")
async def show(
    thread: str,
    backend: BackendDep,
    org: OrgDep,
    namespace: str = "",
    checkpoint: Annotated[str | None, Query(description="This one, instead of the newest")] = None,
    known: Annotated[
        int | None, Query(description="`seq` of what the caller has: if it still holds, only that")
    ] = None,
    after: After = None,
) -> Response:
    """A checkpoint of a thread with its values and pending writes, null where there is none.

    ``seq`` is the number of the thread's last event: the next one bears the number after it. Without ``after`` it waits
    for all that is durable now.
    """
    key = task_key(thread_task(thread))
    if after is None:
        last = await backend.db.read(partial(last_of_key, org=org, key=key))
        if last is not None and last.seq == known:
            return _json({"thread": thread, "seq": last.seq, "unchanged": True})
        after = token_of(backend, org, key, last)
    work = partial(threads.thread_document, org=org, thread=thread, namespace=namespace, checkpoint=checkpoint)
    found = await read(backend, THREADS, work, org=org, key=key, after=after)
    if found.value is None:
        raise missing(found, "no_thread", f"nothing saved for thread {thread!r}")
    return _json({**found.value, "read": found.note})


@router.get("/v1/threads/{thread:name}/checkpoints")
async def of_thread(
    thread: str,
    backend: BackendDep,
    org: OrgDep,
    page: PageParam,
    namespace: Namespace = None,
    checkpoint: str | None = None,
    before: str | None = None,
    metadata: str | None = None,
    after: After = None,
) -> Response:
    """Checkpoints of a thread, the newest first. ``metadata``: a JSON object of members that must be equal."""
    wanted = Wanted(thread, namespace, checkpoint, before, _object(metadata, "metadata"), _beyond(page.cursor))
    return await _checkpoints(backend, org, page, wanted, task_key(thread_task(thread)), after)


@router.get("/v1/checkpoints")
async def everywhere(
    backend: BackendDep,
    org: OrgDep,
    page: PageParam,
    namespace: Namespace = None,
    before: str | None = None,
    metadata: str | None = None,
    after: After = None,
) -> Response:
    """Checkpoints of all threads, the newest first."""
    wanted = Wanted(None, namespace, None, before, _object(metadata, "metadata"), _beyond(page.cursor))
    return await _checkpoints(backend, org, page, wanted, "", after)


@router.get("/v1/items/one")
async def item(namespace: str, key: str, backend: BackendDep, org: OrgDep, after: After = None) -> Response:
    """One item. ``namespace`` is a JSON list of names. Without ``after`` it waits for all that is durable now."""
    names = _names(namespace)
    if not names:
        raise Problem(422, "bad_parameter", "`namespace` is a JSON list of at least one name")
    work = partial(items.item_document, org=org, namespace=names, key=key)
    found = await _latest(backend, ITEMS, work, org, task_key(items_task(names[0])), after)
    if found.value is None:
        raise missing(found, "no_item", f"no item {key!r} in {names}")
    return _json({**found.value, "read": found.note})


@router.get("/v1/items")
async def search(
    backend: BackendDep,
    org: OrgDep,
    page: PageParam,
    prefix: Annotated[str, Query(description="JSON list of the names that the namespace begins with")] = "[]",
    after: After = None,
) -> Response:
    """Items of the namespaces that begin with ``prefix``, the latest change first."""
    names = _names(prefix)
    work = partial(items.items_within, org=org, prefix=names, limit=page.limit + 1, beyond=_beyond(page.cursor))
    found = await _latest(backend, ITEMS, work, org, task_key(items_task(names[0])) if names else "", after)
    shown = found.value[: page.limit]
    last = shown[-1][0] if len(found.value) > page.limit else None
    return _json({**page.answer([document for _, document in shown], last), "read": found.note})


@router.get("/v1/items/namespaces")
async def namespaces(
    backend: BackendDep, org: OrgDep, page: PageParam, prefix: str = "[]", after: After = None
) -> Response:
    """The namespaces that hold items, in a stable order."""
    work = partial(items.namespaces, org=org, prefix=_names(prefix), limit=page.limit + 1, beyond=page.name)
    found = await _latest(backend, ITEMS, work, org, "", after)
    return _page(page, found, items.namespace_place)


async def _checkpoints(backend: Backend, org: str, page: Page, wanted: Wanted, key: str, after: str | None) -> Response:
    work = partial(threads.list_checkpoints, org=org, wanted=wanted, limit=page.limit + 1)
    return _page(page, await _latest(backend, THREADS, work, org, key, after), threads.place)


async def _latest(
    backend: Backend, projection: str, work: Callable[..., Any], org: str, key: str, after: str | None
) -> Found:
    """A read of what is durable now: of a key, or with an empty one of all there is."""
    after = after or await (newest(backend, org, key) if key else _newest_of_all(backend))
    return await read(backend, projection, work, org=org, key=key, after=after)


async def _newest_of_all(backend: Backend) -> str:
    def work(conn: Connection) -> str:
        found = ((partition, last_archived(conn, partition)) for partition in range(backend.partitions))
        return write_token([(partition, last) for partition, last in found if last is not None], log_id(conn))

    return await backend.db.read(work)


def _page(page: Page, found: Found, place: Callable[[Any], list[Any]]) -> Response:
    shown = found.value[: page.limit]
    last = place(shown[-1]) if len(found.value) > page.limit else None
    return _json({**page.answer(shown, last), "read": found.note})


def _json(document: Any) -> Response:
    return Response(orjson.dumps(document), media_type="application/json")


def _beyond(cursor: list[Any] | None) -> tuple[str, str, str] | None:
    if cursor is None:
        return None
    if len(cursor) != 3 or not all(isinstance(part, str) for part in cursor):
        raise Problem(422, "bad_cursor", "`cursor` is of another list: start without it")
    first, second, third = cursor
    return first, second, third


def _object(text: str | None, name: str) -> dict[str, Any] | None:
    value = _parsed(text, name) if text else None
    if value is not None and not isinstance(value, dict):
        raise Problem(422, "bad_parameter", f"`{name}` is a JSON object")
    if value is not None and "\0" in str(value.get("run_id", "")):
        raise Problem(422, "bad_parameter", "no `run_id` holds a NUL")
    return value


def _names(text: str) -> list[str]:
    value = _parsed(text, "namespace")
    if not isinstance(value, list) or not all(isinstance(name, str) and name and "\0" not in name for name in value):
        raise Problem(422, "bad_parameter", "a namespace is a JSON list of names, none of them empty or with a NUL")
    return value


def _parsed(text: str, name: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Problem(422, "bad_parameter", f"`{name}` is no JSON: {error}") from error
