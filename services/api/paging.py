"""Pages: ``limit`` and an opaque ``cursor`` in, ``items`` and ``next_cursor`` (null at the end) out."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Annotated, Any, Literal

import orjson
from fastapi import Depends, Query

from services.api.problems import Problem

DEFAULT_LIMIT, MAX_LIMIT = 100, 1000
Order = Literal["asc", "desc"]


class Page:
    """What a list request asks for. ``cursor`` is where the page before ended, decoded; None for the first page."""

    def __init__(self, limit: int, cursor: list[Any] | None, order: Order) -> None:
        self.limit = limit
        self.cursor = cursor
        self.order = order

    def answer(self, items: list[Any], last: list[Any] | None) -> dict[str, Any]:
        """The document of a page; ``last`` is the place of its last item, None when nothing follows."""
        return {"items": items, "next_cursor": None if last is None else encode_cursor([self.order, *last])}

    def place(self, *kinds: type) -> tuple[Any, ...] | None:
        """The place in a list whose cursors have parts of these types; None for the first page.

        Raises Problem for another kind of cursor.
        """
        if self.cursor is not None and [type(part) for part in self.cursor] != list(kinds):
            raise Problem(422, "bad_cursor", "`cursor` is of another list: start without it")
        return None if self.cursor is None else tuple(self.cursor)

    @property
    def offset(self) -> int:
        """The place in a list whose cursors are numbers. Raises Problem for another kind of cursor."""
        (offset,) = self.place(int) or (0,)
        if offset < 0:
            raise Problem(422, "bad_cursor", "`cursor` is of another list: start without it")
        return int(offset)

    @property
    def name(self) -> str:
        """The place in a list whose cursors are one text. Raises Problem for another kind of cursor."""
        (name,) = self.place(str) or ("",)
        return str(name)

    def slice(self, items: list[Any]) -> dict[str, Any]:
        """The page of a list that is small enough to be had whole, in its own stable order."""
        start = self.offset
        end = start + self.limit
        return self.answer(items[start:end], [end] if end < len(items) else None)


def encode_cursor(place: list[Any]) -> str:
    """An opaque text of a place in a list."""
    return urlsafe_b64encode(orjson.dumps(place)).decode().rstrip("=")


def decode_cursor(text: str) -> list[Any]:
    """The place that a cursor stands for. Raises Problem for a text that is none of ours."""
    try:
        place = orjson.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, binascii.Error) as error:
        raise Problem(422, "bad_cursor", "`cursor` is not one that this API gave: start without it") from error
    fits = isinstance(place, list) and len(place) > 1 and place[0] in ("asc", "desc")
    if not fits or not all(map(_can_be, place)):
        raise Problem(422, "bad_cursor", "`cursor` is not one that this API gave: start without it")
    return list(place)


def _can_be(part: object) -> bool:
    """Whether a store takes it: no NUL in a text, no integer beyond 64 bits, no truth value, nothing nested."""
    if isinstance(part, str):
        return "\0" not in part
    return part is None or isinstance(part, float) or (type(part) is int and abs(part) < 1 << 63)


async def _page(
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Items a page")] = DEFAULT_LIMIT,
    cursor: Annotated[str | None, Query(description="`next_cursor` of the page before")] = None,
    order: Annotated[Order, Query(description="Direction; a cursor keeps the one it began with")] = "asc",
) -> Page:
    if not cursor:
        return Page(limit, None, order)
    place = decode_cursor(cursor)
    return Page(limit, place[1:], place[0])


PageParam = Annotated[Page, Depends(_page)]
