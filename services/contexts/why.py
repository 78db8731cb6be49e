"""Where a value was lost on its way into a context: never logged, no card, not valid any more, cut by the budget.

==================  =================================================================================================
verdict             evidence
==================  =================================================================================================
``told``            the parts of the context that hold it
``never_logged``    how many events of the task were looked through
``no_card``         the events that hold it, of which no card was made, or whose cards keep too little
``state``           events of the plan, a note, a decision that hold it, while the task's state does not say so any more
``superseded``, ``invalidated``, ``expired``  the cards that held it, and what replaced them
``cut_by_budget``   the cards that hold it, the place of the value among those to be told, and the budget
``not_asked``       the cards that hold it, though the cards were no part of the request
``memory``          the memories that hold it, which no event of the task does, each with its status: one that holds is
                    told always, or when the query is about it, within the budget
==================  =================================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import orjson
from sqlalchemy import Connection

from events.archive import queries
from events.archive.reader import Archived
from events.event import START
from events.keys import scopes_of, task_key
from projections.cards import tables as t
from projections.context.ranking import rank
from projections.context.rendering import one_line
from projections.queries.memories import Wanted, memories_of
from projections.queries.rows import Document, many, position
from services.composition import Backend
from services.contexts.making import Made
from services.contexts.readers import CARDS, MEMORIES
from services.contexts.request import ContextRequest

MAX_EVENTS = 200_000
"""Events of a task that are looked through, at most."""
MAX_CARDS = 2_000
MAX_EVIDENCE = 20
_PAGE = 2_000
_OF_STATE = frozenset(("plan.updated", "note.written", "decision.made", "step.completed", "workbench.updated"))
_OURS = frozenset(("context.assembled",))


async def explain(backend: Backend, org: str, request: ContextRequest, made: Made, value: str) -> dict[str, Any]:
    """What became of a value that this context should tell."""
    parts = [part.name for part in made.assembled.parts if one_line(value) in part.text]
    if parts:
        return _verdict("told", value, parts=parts)
    key = task_key(request.task)
    logged, looked_at = await backend.db.read(partial(_logged, org=org, key=key, value=value))
    if not logged:
        memories = await _memories(backend, org, made, value)
        verdict = "memory" if memories else "never_logged"
        return _verdict(verdict, value, memories=memories, events_looked_at=looked_at)
    rows = (await backend.read_models.read(CARDS, partial(_holders, org=org, key=key, value=value))).value
    if not rows:
        found = "state" if all(one["type"] in _OF_STATE for one in logged) else "no_card"
        return _verdict(found, value, events=logged[:MAX_EVIDENCE])
    return _of_cards(rows, request, made, value) | {"events": logged[:MAX_EVIDENCE]}


async def _memories(backend: Backend, org: str, made: Made, value: str) -> list[dict[str, str]]:
    """The memories that the task may see and that hold the value, whatever has become of them."""

    def work(conn: Connection) -> list[dict[str, str]]:
        scopes = scopes_of(made.material.state or {})
        found = [one for scope in scopes for one in memories_of(conn, org, scope, now=made.now, wanted=Wanted(""))]
        holding = [one for one in found if value in one["content"]][:MAX_EVIDENCE]
        shown = ("memory", "scope", "kind", "status", "superseded_by", "because")
        return [{name: one[name] for name in shown if name in one} for one in holding]

    return (await backend.read_models.read(MEMORIES, work)).value


def _of_cards(rows: list[Document], request: ContextRequest, made: Made, value: str) -> dict[str, Any]:
    sources = made.material.sources
    offered = {source.card for source in sources}
    shown = [_shown(row, expired=row["card"] not in offered) for row in rows][:MAX_EVIDENCE]
    if not any(row["card"] in offered for row in rows):
        return _verdict(shown[-1]["status"], value, cards=shown)
    if "cards" not in request.parts:
        return _verdict("not_asked", value, cards=shown)
    ranked = rank(sources, made.material.needs)
    place = next((n for n, one in enumerate(ranked, 1) if value in sources[one.source].facts[one.fact].text), None)
    if place is None:  # a later card says otherwise of that field
        return _verdict("superseded", value, cards=shown)
    budget = {"max_tokens": request.max_tokens, "tokens": made.assembled.tokens}
    return _verdict("cut_by_budget", value, cards=shown, rank=place, of=len(ranked), **budget)


def _shown(row: Document, *, expired: bool) -> dict[str, Any]:
    status = "expired" if expired and row["status"] == "active" else row["status"]
    named = {"card": row["card"], "status": status, "position": position(row), "event_id": row["event_id"]}
    replaced = row["superseded_by"] or row["invalidated_by"] or ", ".join(sorted({*(row["outdated"] or {}).values()}))
    return named | ({"by": replaced} if replaced else {})


def _holders(conn: Connection, org: str, key: str, value: str) -> list[Document]:
    """The cards of a task that hold a value, the latest last; those that wait for a use included."""
    order = (t.CARDS.c.epoch.desc(), t.CARDS.c.n.desc())
    rows = many(conn, t.CARDS, org, key, order=order, limit=MAX_CARDS)
    rows += [row["row"] for row in many(conn, t.CARD_LATENT, org, key, limit=MAX_CARDS)]
    holding = [row for row in rows if any(value in fact[2] for fact in row["facts"] or ())]
    return sorted(holding, key=lambda row: (row["epoch"], row["n"]))


def _logged(conn: Connection, org: str, key: str, value: str) -> tuple[list[dict[str, str]], int]:
    """The events of a task that hold a value, and how many were looked through."""
    written = orjson.dumps(value).decode()[1:-1]
    forms = {value, written, written.replace("\\", "\\\\").replace('"', '\\"')}  # also in JSON within a text
    found: list[dict[str, str]] = []
    looked_at = 0
    for archived in _events(conn, org, key):
        looked_at += 1
        if archived.type in _OURS or archived.verdict != "effective":
            continue
        event = archived.event()
        if any(form in event.data for form in forms):
            found.append({"position": str(archived.position), "type": archived.type, "event_id": event.id})
    return found, looked_at


def _events(conn: Connection, org: str, key: str) -> Iterator[Archived]:
    after, left = START, MAX_EVENTS
    while left > 0 and (page := queries.read_key(conn, org, key, after=after, limit=min(_PAGE, left))):
        yield from page
        after, left = page[-1].position, left - len(page)


def _verdict(verdict: str, value: str, **evidence: Any) -> dict[str, Any]:
    return {"value": value, "verdict": verdict, **evidence}
