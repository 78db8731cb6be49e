"""A scope as a pack: what its read models hold now, in an order of its own, with every secret masked.

Confidences are those of the end of the UTC day ``as_of``: a moment of the day would make other bytes at every export.
Expired memories are among the active ones, with the time that they ended at; whoever imports them leaves them out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, time
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection, select

from events.errors import Transient
from projections.bounds import short
from projections.cards.secrecy.secrets import masked
from projections.memory.tables import MEMORIES
from projections.queries.beliefs import beliefs_of
from projections.queries.confidence import DEFAULT_RULES, BeliefRules
from projections.queries.of_scope import evidence_of_scope, notes_of_scope, settlements_of_scope
from projections.read_models import ReadModels
from services.packs.form import BeliefItem, Item, MemoryItem, NoteItem, Pack, Scope, SettlementItem
from services.packs.proposals import MOST_EVIDENCE

T = TypeVar("T", bound=Item)

DIGITS = 6
"""To which a confidence is rounded."""

_SAID = frozenset(
    ("content", "entity", "attribute", "tags", "statement", "trigger", "tendency", "limits", "detail", "session_state",
     "reflections", "learnings")
)  # fmt: skip
"""What people, models and tools said."""

_MEMORY = (
    "kind", "content", "memory_type", "entity", "attribute", "confidence", "tags", "ttl_s", "source", "trust",
    "created", "last_verified",
)  # fmt: skip
_BELIEF = (
    "belief", "kind", "statement", "trigger", "tendency", "limits", "supports", "against", "last_verified", "evidence",
)  # fmt: skip


async def gather(
    read_models: ReadModels,
    org: str,
    scope: Scope,
    as_of: date,
    *,
    rules: BeliefRules = DEFAULT_RULES,
    after: str | None = None,
    wait_s: float = 0.0,
) -> Pack:
    """The pack of a scope, at least up to the position token ``after``. Raises what a read of a read model raises."""
    moment = datetime.combine(as_of, time.max, UTC)
    source: dict[str, str] = {}

    async def read(projection: str, kind: type[T], work: Callable[..., Any], **options: Any) -> tuple[T, ...]:
        def items(conn: Connection) -> tuple[T, ...]:  # masking 100,000 of them takes seconds: in the read's thread
            return _items(kind, work(conn, org=org, scope=scope.key, **options))

        found = await read_models.read(projection, items, after, wait_s)
        if not found.reached:
            raise Transient(f"{projection} has not folded the position that was asked for: export again")
        source[projection] = found.generation
        return found.value

    return Pack(
        scope=scope,
        as_of=as_of.isoformat(),
        created_by=f"refold {_version()}",
        memories=await read("memories", MemoryItem, _memories),
        beliefs=await read("beliefs", BeliefItem, _beliefs, now=moment, rules=rules),
        notes=await read("task_state", NoteItem, notes_of_scope),
        settlements=await read("settlements", SettlementItem, settlements_of_scope),
        source=source,
    )


def _version() -> str:
    try:
        return version("refold")
    except PackageNotFoundError:  # it runs from its sources
        return "0"


def _items(kind: type[T], documents: Iterable[dict[str, Any]]) -> tuple[T, ...]:
    return tuple(msgspec.convert(_without_secrets(document), kind) for document in documents)


def _without_secrets(document: dict[str, Any]) -> dict[str, Any]:
    """What was said, masked; names and ids are left as they are, since many look like keys."""
    told = dict(document)
    for name in _SAID & told.keys():
        told[name] = masked(told[name])
    if "note" in told:  # a note may be called like what it holds
        (told["content"],) = masked({told["note"]: told.get("content")}).values()
    if "belief" in told:
        pieces = told.get("evidence")  # whoever proposes a belief says what is known elsewhere, in any form
        told["evidence"] = [
            _without_secrets(one) for one in (pieces if isinstance(pieces, list) else ()) if isinstance(one, dict)
        ]
    elif "evidence" in told:
        told["evidence"] = masked(told["evidence"])
    return told


def _memories(conn: Connection, org: str, scope: str) -> list[dict[str, Any]]:
    of = MEMORIES.c
    query = select(MEMORIES).where(of.org == org, of.key == scope, of.status == "active").order_by(of.memory)
    return [{"memory": row["full"] or row["memory"], **_some(row, _MEMORY)} for row in conn.execute(query).mappings()]


def _beliefs(conn: Connection, org: str, scope: str, now: datetime, rules: BeliefRules) -> list[dict[str, Any]]:
    """Beliefs that stand, by name: what was taken back, or has nothing left to stand on, is not passed on.

    What one brought from elsewhere goes on with it.
    """
    evidence = evidence_of_scope(conn, org, scope, MOST_EVIDENCE)
    found = sorted(beliefs_of(conn, org, scope, now=now, rules=rules), key=lambda one: str(one["belief"]))
    return [
        {
            **_some({**one, "evidence": evidence.get(short(one["belief"]), [])}, _BELIEF),
            "confidence": round(one["confidence"], DIGITS),
        }
        for one in found
        if one["status"] != "retired"
    ]


def _some(row: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: row[name] for name in names if row.get(name) not in ("", None, [], {})}
