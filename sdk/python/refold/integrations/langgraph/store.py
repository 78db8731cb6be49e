"""The store: LangGraph's long-term memory in Refold."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from itertools import islice
from math import isfinite
from types import TracebackType
from typing import Any

import orjson
from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
)
from typing_extensions import Self

from refold.integrations.langgraph.backend import Backend, Raw
from refold.integrations.langgraph.matching import fits, fixed_prefix, matches_all
from refold.integrations.langgraph.wire import MAX_NAME_CHARS, event

PAGE = 100


class RefoldStore(BaseStore):
    """Keeps items in Refold; sync and async methods of one object.

    ``url``, ``org``, ``api_key`` and ``timeout_s`` as for ``RefoldSaver``. A ``put`` or ``delete`` returns when it is
    durable in the backend's archive; the last one in the log wins. Searches find by namespace and filter, the latest
    change first. Values are JSON objects, whose members come back sorted by name; NUL characters in them become U+FFFD.
    There is no search by meaning: a ``query`` raises NotImplementedError, as a ``ttl`` does.
    """

    def __init__(self, url: str | None = None, *, org: str = "", api_key: str = "", timeout_s: float = 30.0) -> None:
        self._backend = Backend(url, org, api_key, timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let connections go. What ``put`` returned for is durable already."""
        self._backend.close()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Execute operations. Reads see what was there before; of several puts of one item the last one stays.

        Raises ValueError for a value that is no JSON object or a name that is too long, Unavailable when the backend
        does not answer in time.
        """
        todo = list(ops)
        results = [self._read(op) for op in todo]
        future = self._write([op for op in todo if isinstance(op, PutOp)])
        if future is not None:
            future.result()
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """As ``batch``."""
        return await asyncio.to_thread(self.batch, ops)

    # ---- writing

    def _write(self, puts: Sequence[PutOp]) -> Future[None] | None:
        last = {(op.namespace, op.key): op for op in puts}
        events = [_event(op) for op in last.values()]
        return self._backend.courier.hand(events) if events else None

    # ---- reading

    def _read(self, op: Op) -> Result:
        if isinstance(op, GetOp):
            namespace = _json(op.namespace)
            document = self._backend.document("/v1/items/one", namespace=namespace, key=op.key)
            return None if document is None else Item(**_item(document))
        if isinstance(op, SearchOp):
            return self._search(op)
        if isinstance(op, ListNamespacesOp):
            return self._namespaces(op)
        return None

    def _search(self, op: SearchOp) -> list[SearchItem]:
        if op.query:
            raise NotImplementedError(
                "RefoldStore has no search by meaning yet: leave `query` out, and use the namespace and `filter`"
            )
        found: Iterator[Raw] = self._backend.pages("/v1/items", prefix=_json(op.namespace_prefix), limit=PAGE)
        fitting = (document for document in found if fits(document["value"], op.filter))
        return [SearchItem(**_item(document)) for document in islice(fitting, op.offset, op.offset + op.limit)]

    def _namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        prefix = _json(fixed_prefix(op.match_conditions))
        found = self._backend.pages("/v1/items/namespaces", prefix=prefix, limit=PAGE)
        names = {tuple(names)[: op.max_depth] for names in found if matches_all(names, op.match_conditions)}
        return sorted(names)[op.offset : op.offset + op.limit]


def _event(op: PutOp) -> Raw:
    if len(op.namespace[0]) > MAX_NAME_CHARS:
        raise ValueError(f"the first name of a namespace is at most {MAX_NAME_CHARS} characters")
    place = {"namespace": list(op.namespace), "key": op.key}
    task = f"items:{op.namespace[0]}"
    if op.value is None:
        return event("item.deleted", place, task=task)
    try:
        orjson.dumps(op.value)
    except TypeError as error:
        raise ValueError(f"the value of item {op.key!r} is no JSON object: {error}") from error
    if not _finite(op.value):
        raise ValueError(f"the value of item {op.key!r} is no JSON object: it has a NaN, or an infinite number")
    return event("item.updated", {**place, "value": dict(op.value)}, task=task)


def _finite(value: Any) -> bool:
    """Without numbers that JSON does not have: they would be stored as null."""
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, Mapping):
        return all(map(_finite, value.values()))
    return not isinstance(value, list | tuple) or all(map(_finite, value))


def _item(document: Raw) -> dict[str, Any]:
    return {
        "namespace": tuple(document["namespace"]),
        "key": document["key"],
        "value": document["value"],
        "created_at": datetime.fromisoformat(document["created"]),
        "updated_at": datetime.fromisoformat(document["updated"]),
    }


def _json(names: Iterable[str]) -> str:
    return orjson.dumps(list(names)).decode()
