"""Refused events, kept with their reason: nothing is dropped without a trace that its publisher can find."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence, Set
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection, select

from events.archive.schema import refused_events
from events.bulk import bulk_delete, bulk_insert
from events.strict_json import Hazard

MAX_RAW_CHARS = 16_384
MAX_REASON_CHARS = 2_000
_MAX_NAME_CHARS = 256
_QUOTE = re.compile(r"""(?<!\\)\\*["']""")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class Refusal(NamedTuple):
    """One refused event. ``source`` is the way in (``http``, ``inbox``, ``import`` ...), ``raw`` the event as text."""

    received_ms: int
    org: str
    event_id: str
    event_type: str
    source: str
    code: str
    field: str
    reason: str
    raw: str


class KeptRefusal(NamedTuple):
    """A refusal as it is kept; ``number`` grows and tells the order."""

    number: int
    refusal: Refusal


def refusal_of(raw: Any, *, org: str, source: str, code: str, field: str, reason: str, received_ms: int) -> Refusal:
    """The refusal of a raw event, whatever it is: cut to size, and with text that every store can hold."""
    names = raw if isinstance(raw, dict) else {}
    return Refusal(
        received_ms, _name(org), _name(names.get("id")), _name(names.get("type")), source, code, _name(field),
        _storable(reason)[:MAX_REASON_CHARS], _text(raw)[:MAX_RAW_CHARS],
    )  # fmt: skip


def keep_refusals(conn: Connection, refusals: Sequence[Refusal]) -> None:
    """Keep them."""
    bulk_insert(conn, refused_events, Refusal._fields, refusals)


def read_refusals(conn: Connection, org: str, *, before: int | None = None, limit: int = 100) -> list[KeptRefusal]:
    """The refusals of an org, the newest first; ``before`` is the number of the last one of the page before."""
    query = select(refused_events.c.number, *(refused_events.c[name] for name in Refusal._fields)).where(
        refused_events.c.org == org
    )
    if before is not None:
        query = query.where(refused_events.c.number < before)
    rows = conn.execute(query.order_by(refused_events.c.number.desc()).limit(limit))
    return [KeptRefusal(row[0], Refusal(*row[1:])) for row in rows]


def _name(value: Any) -> str:
    return _storable(value)[:_MAX_NAME_CHARS] if isinstance(value, str) else ""


def _storable(text: str) -> str:
    return _UNSTORABLE.sub("\ufffd", text)


def _text(raw: Any) -> str:
    if isinstance(raw, bytes):
        return _storable(raw.decode("utf-8", "replace"))
    try:
        return orjson.dumps(raw, default=_shown).decode()
    except (orjson.JSONEncodeError, RecursionError):
        return _storable(repr(raw))


def _shown(value: Any) -> str:
    return f"<{value.message}>" if isinstance(value, Hazard) else str(value)


def drop_refusals(conn: Connection, org: str, names: Collection[str] | None) -> int:
    """Forget the refused events of an org that hold one of these names in quotes (None: all); how many there were.

    Rather one too many: what was refused is a help to its publisher, and no part of the log. So those that were cut
    go, too, since nobody knows whom the rest of one named.
    """
    wanted = None if names is None else {form for name in names for form in _forms(name)}
    with_quotes = [form for form in wanted or () if _QUOTE.search(form)]
    found = conn.execute(select(refused_events.c.number, refused_events.c.raw).where(refused_events.c.org == org))
    gone = [number for number, raw in found if wanted is None or _may_hold(raw, wanted, with_quotes)]
    bulk_delete(conn, refused_events, ("number",), [(number,) for number in gone])
    return len(gone)


def _may_hold(raw: str, wanted: Set[str], with_quotes: Sequence[str]) -> bool:
    """Whether a text holds one of these in quotes of JSON, of JSON within JSON, or of Python; or may have, if cut.

    ``with_quotes`` are those that hold quotes themselves.
    """
    if len(raw) >= MAX_RAW_CHARS or not wanted.isdisjoint(_QUOTE.split(raw)):
        return True
    return any(form in raw for form in with_quotes)


def _forms(name: str) -> set[str]:
    """A name as it may stand between quotes: as it is, escaped, and escaped within what is escaped."""
    once = [json.dumps(name, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)]
    return {name, repr(name)[1:-1], *once, *(json.dumps(form, ensure_ascii=False)[1:-1] for form in once)}
