"""The graph of cards around one: what used it, what it was made from, what took its place.

Edges: ``used`` from a card to the card that a call or decision made with values of it; ``superseded_by`` from a card to
the one that took its place. A call whose result made no card leads to none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, or_, select, tuple_

from projections.bounds import short
from projections.cards import tables as t
from projections.queries.cards import key_of
from projections.queries.rows import Document, many, pick

MAX_DEPTH = 6
MAX_NODES = 200
_MANY = 200

_ON_NODES = ("card", "source", "tool", "summary", "status", "value", "uses")


def card_graph(conn: Connection, org: str, card: str, *, depth: int = 2) -> Document | None:
    """Cards and links at most ``depth`` links away, at most ``MAX_NODES`` cards; None when there is no such card.

    ``{card, nodes, edges, more}``; an edge is ``{from, to, kind, name, values}``, and ``more`` says whether the bound
    cut something off. Nodes in the order of the log, edges by their ends.
    """
    key = key_of(conn, org, card)
    if key is None:
        return None
    reach, frontier = {card}, [card]
    edges: dict[tuple[str, str, str, str], Document] = {}
    more = False
    for _ in range(max(0, min(depth, MAX_DEPTH))):
        found = [*_uses(conn, org, key, frontier), *_replacements(conn, org, key, frontier)]
        edges |= {(one["from"], one["to"], one["kind"], one["name"]): one for one in found}
        ends = dict.fromkeys(end for one in found for end in (one["from"], one["to"]))
        new = [end for end in ends if end not in reach]
        room = MAX_NODES - len(reach)
        more = more or len(new) > room
        frontier = new[: max(0, room)]
        reach |= set(frontier)
        if not frontier:
            break
    nodes = many(conn, t.CARDS, org, key, t.CARDS.c.card.in_(sorted(reach)), order=(t.CARDS.c.epoch, t.CARDS.c.n))
    kept = [edges[name] for name in sorted(edges) if edges[name]["from"] in reach and edges[name]["to"] in reach]
    return {"card": card, "nodes": [pick(node, *_ON_NODES) for node in nodes], "edges": kept, "more": more}


def _uses(conn: Connection, org: str, key: str, cards: Sequence[str]) -> Iterable[Document]:
    """Links along uses, from these cards and to them."""
    u, c = t.CARD_USES.c, t.CARD_CALLS.c
    calls = select(c.run, c.call_id, c.card).where(c.org == org, c.key == key)
    behind = [call for _, call, _ in conn.execute(calls.where(c.card.in_(cards)))]
    uses = many(conn, t.CARD_USES, org, key, or_(u.card.in_(cards), u.made.in_(cards), u.used_by.in_(behind)))
    names = sorted({(use["run"], short(use["used_by"])) for use in uses if not use["made"]})
    made_by: dict[tuple[str, str], str] = {}
    for start in range(0, len(names), _MANY):
        some = calls.where(tuple_(c.run, c.call_id).in_(names[start : start + _MANY]))
        made_by |= {(run, call): made for run, call, made in conn.execute(some)}
    wanted = set(cards)
    for use in uses:
        made = use["made"] or made_by.get((use["run"], short(use["used_by"])), "")
        if made not in ("", use["card"]) and (use["card"] in wanted or made in wanted):
            yield {"from": use["card"], "to": made, "kind": "used", "name": use["name"], "values": use["values"] or []}


def _replacements(conn: Connection, org: str, key: str, cards: Sequence[str]) -> Iterable[Document]:
    c = t.CARDS.c
    query = select(c.card, c.superseded_by).where(
        c.org == org, c.key == key, c.superseded_by != "", or_(c.card.in_(cards), c.superseded_by.in_(cards))
    )
    for old, new in conn.execute(query.order_by(c.card).limit(MAX_NODES)):
        yield {"from": old, "to": new, "kind": "superseded_by", "name": "", "values": []}
