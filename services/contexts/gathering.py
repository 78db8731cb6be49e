"""Everything that a context is assembled from, read through a reader: the same reads live and from the log."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection

from events.archive import queries
from events.archive.reader import Archived
from events.errors import Refused
from events.event import Position
from events.keys import scopes_of, session_key, task_key
from projections.cards import tables as cards
from projections.cards.needs import callings, readings
from projections.cards.secrecy.secrets import masked_text
from projections.cards.summary import message_text
from projections.context.expecting import Expected
from projections.context.material import Material, Original, Turn
from projections.context.phrases import phrased
from projections.context.ranking import places
from projections.context.remembered import Remembered
from projections.context.sources import Needs, Source, said_in
from projections.policy.selection import NOTHING, Selection, select
from projections.policy.situation import situation
from projections.queries import settlements, tasks
from projections.queries.card_sources import Flows, read_asked, read_needs, read_sources, source_of
from projections.queries.rows import many
from projections.retrieval.query import CardQuery, Scope
from services.contexts.readers import CARDS, SETTLEMENTS, STATE, Reader, Recalled
from services.contexts.remembering import Remembrance, remember
from services.contexts.request import ContextRequest
from services.policies.doubt import doubt
from services.starts import started_with

RECALLED, RELEVANCE = 5, 0.7
"""Cards of other tasks and memories that a query brings at most, together, and the least relevance of such a card."""
TURNS = 5
_PAGE, _PAGES = 200, 10


class Gathered(NamedTuple):
    """Material, and what of it does not follow from the task's own keys: the record must hold it."""

    material: Material
    flows: Flows
    recalled: list[Recalled]
    remembered: Remembrance


async def gather(reader: Reader, request: ContextRequest, now: datetime) -> Gathered:
    """What there is for a context at a moment. Raises Refused for an original that is none of this task's."""
    org, task, key = reader.org, request.task, task_key(request.task)
    state = await reader.read(STATE, key, lambda conn: tasks.task_document(conn, org, task, now=now))
    about = state or {}
    sources, flows, needs = await reader.read(CARDS, key, partial(_cards, reader, request, about, now))
    recalled = await _recalled(reader, request, about)
    memories = await remember(reader, request, about, now)
    recalled, brought = together(recalled, memories.brought)
    left = await _session(reader, task, about) if "state" in request.parts else None
    run = about.get("run", "")
    prompt, tools = await reader.events(key, lambda conn, upto: started_with(conn, org, task, run, upto))
    turns = await reader.events(key, lambda conn, upto: turns_of(conn, org, key, run, upto))
    asked = f"{request.query} {request.focus}".strip().casefold()
    material = Material(
        task,
        prompt=prompt,
        state=state,
        session=left,
        policy=await _policy(reader, request, about, tools, now),
        evidence=[text for one_run in (left or {}).get("evidence_since", ()) for text in one_run.get("evidence") or ()],
        memories=memories.always,
        sources=sources,
        needs=needs._replace(said="\n".join((said_in([turn.text for turn in turns]), asked)), asked=asked),
        recalled=[source for source, _ in recalled],
        brought=brought,
        turns=turns,
        originals=await _originals(reader, request, sources),
        query=request.query,
    )
    return Gathered(material, flows, [name for _, name in recalled], memories._replace(brought=brought))


def _cards(
    reader: Reader, request: ContextRequest, about: dict[str, Any], now: datetime, conn: Connection
) -> tuple[list[Source], Flows, Needs]:
    org, task = reader.org, request.task
    sources = read_sources(conn, org, task, now)
    asked = read_asked(conn, org, task)
    flows = concerning(reader.flows(conn, about.get("agent", ""), asked), sources)
    return sources, flows, read_needs(conn, org, task, flows, asked, mode=request.mode, focus=request.focus)


def concerning(flows: Flows, sources: Iterable[Source]) -> Flows:
    """What was learned of the fields of these sources: all that can matter to them."""
    fields = {
        place for source in phrased(list(sources)) for fact in source.facts for place in places(source.title, fact)
    }
    names = {name for _, field in fields for name in readings(field)}
    chances = {place: chance for place, chance in flows.expected.chances.items() if place in fields}
    parameters = (name for name in flows.parameters if not names.isdisjoint(callings(name)))
    return Flows(Expected(chances, flows.expected.calls), frozenset(parameters))


async def _session(reader: Reader, task: str, about: Mapping[str, Any]) -> Any:
    session, user = about.get("session", ""), about.get("user", "")

    def work(conn: Connection) -> Any:
        if session:
            return settlements.session_document(conn, reader.org, session, user)
        return settlements.task_session_document(conn, reader.org, task)

    return await reader.read(SETTLEMENTS, session_key(session) if session else task_key(task), work)


async def _policy(
    reader: Reader, request: ContextRequest, about: dict[str, Any], tools: Any, now: datetime
) -> Selection:
    """What the user, the agent and the org have learned that holds in this context."""
    if "policy" not in request.parts:
        return NOTHING
    scopes = await reader.learned(list(scopes_of(about)), now)
    context = situation(about, tools, mode=request.mode, query=" ".join((request.query, request.focus)).strip())
    return await asyncio.to_thread(select, scopes, context, doubt=doubt)


async def _recalled(reader: Reader, request: ContextRequest, about: dict[str, Any]) -> list[tuple[Source, Recalled]]:
    """Cards of other tasks of the same user (without one, of the same agent), the best last."""
    if not request.query.strip() or "recalled" not in request.parts:
        return []
    user, agent = about.get("user", ""), about.get("agent", "")
    if not (user or agent):
        return []
    scope = Scope(reader.org, user=user, agent="" if user else agent)
    query = CardQuery(text=request.query, scope=scope, focus=request.focus, top_k=2 * RECALLED, threshold=RELEVANCE)
    names = (await reader.recall(query, request.task))[:RECALLED]
    rows: dict[Recalled, dict[str, Any]] = {}
    for task in dict.fromkeys(task for _, task in names):
        wanted = [card for card, of_task in names if of_task == task]
        for row in await reader.read(CARDS, task_key(task), partial(_rows, org=reader.org, task=task, wanted=wanted)):
            rows[row["card"], task] = row
    return [(source_of(rows[name], {}), name) for name in reversed(names) if name in rows]


def together(cards: list[Any], memories: list[Remembered]) -> tuple[list[Any], list[Remembered]]:
    """The best of both, in turns, as many as a query brings; ``cards`` have the best last, ``memories`` first."""
    of_memories = min(len(memories), max(RECALLED - len(cards), (RECALLED + 1) // 2))
    of_cards = min(len(cards), RECALLED - of_memories)
    return cards[len(cards) - of_cards :], memories[:of_memories]


def _rows(conn: Connection, org: str, task: str, wanted: list[str]) -> list[dict[str, Any]]:
    return many(conn, cards.CARDS, org, task_key(task), cards.CARDS.c.card.in_(wanted))


async def _originals(reader: Reader, request: ContextRequest, sources: Iterable[Source]) -> list[Original]:
    known = {name: source for source in sources for name in (source.card, source.place)}
    found: list[Original] = []
    for name in request.originals:
        source = known.get(name.removeprefix("#"))
        if source is None:
            raise Refused(
                f"task {request.task!r} has no card {name!r:.150} that holds now: `/v1/cards/ID/raw` has any card's",
                code="no_card",
                field="originals",
            )
        read = partial(original_of, org=reader.org, key=task_key(request.task), place=Position.parse(source.place))
        text = await reader.events(task_key(request.task), read)
        found.append(Original(source.card, source.place, text))
    return found


def turns_of(conn: Connection, org: str, key: str, run: str, upto: Position) -> list[Turn]:
    """The latest messages of a run up to a position, oldest first; a bounded part of the task is looked at."""
    found: list[Turn] = []
    before = Position(upto.epoch, upto.n + 1)
    for _ in range(_PAGES):
        page = queries.read_key_back(conn, org, key, before, _PAGE)
        found += [turn for archived in page for turn in _turn(archived, run)]
        if len(page) < _PAGE or len(found) >= TURNS:
            break
        before = page[-1].position
    return found[:TURNS][::-1]


def _turn(archived: Archived, run: str) -> list[Turn]:
    if archived.type != "message.added" or archived.verdict != "effective" or archived.event().run != run:
        return []
    data = orjson.loads(archived.event().data)
    text = message_text(data.get("content"))
    if data.get("role") in ("system", "developer") or not text.strip():
        return []
    return [Turn(str(archived.position), data.get("role", "user"), masked_text(text))]


def original_of(conn: Connection, upto: Position, *, org: str, key: str, place: Position) -> str:
    """What an event of a task told, as text; empty past ``upto``."""
    if place > upto:
        return ""
    page = queries.read_key_back(conn, org, key, Position(place.epoch, place.n + 1), 1)
    if not page or page[0].position != place:
        return ""
    data = orjson.loads(page[0].event().data)
    told = next((data[name] for name in ("result", "error", "content") if name in data), data)
    return told if isinstance(told, str) else message_text(told) or orjson.dumps(told).decode()
