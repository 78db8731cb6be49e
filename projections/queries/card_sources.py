"""Reads for contexts: the cards of a task as sources, what it used already, and what results led to what arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, select

from events.keys import task_key
from projections.bounds import short
from projections.cards import tables as t
from projections.cards.flows import SEPARATOR
from projections.cards.needs import callings, words
from projections.cards.reading.facts import Fact
from projections.context.expecting import Expected, expect
from projections.context.sources import Needs, Source
from projections.queries.rows import Document, is_over, many, one, position

MAX_SOURCES = 400
"""Cards of a task that a context chooses from: the latest."""

MAX_FACTS = 20_000
"""Facts of all of them together, at most: the oldest cards go first."""

MAX_USED = 20_000
"""Values of a task that count as used, at most."""

MAX_COUNTED = 4_000
"""Rows of counts that are summed for an agent, at most: one for each tool that a task called."""

_STANDING = ("active", "superseded")


class Flows(NamedTuple):
    """What was learned of an agent's calls: what the next one is expected to take, and the parameters there are."""

    expected: Expected
    parameters: frozenset[str]


def read_sources(conn: Connection, org: str, task: str, now: datetime) -> list[Source]:
    """The cards of a task that hold at a moment, those that wait for a use included; the latest last.

    One that a later card replaced is told apart, an invalidated or expired one left out.
    """
    key, c = task_key(task), t.CARDS.c
    order = (c.epoch.desc(), c.n.desc())
    rows = many(conn, t.CARDS, org, key, c.status.in_(_STANDING), order=order, limit=MAX_SOURCES)
    latent = many(conn, t.CARD_LATENT, org, key, limit=MAX_SOURCES)
    rows += [row["row"] for row in latent if row["row"]["status"] in _STANDING]
    places = {row["card"]: position(row) for row in rows}
    standing = [row for row in rows if not is_over(row["as_of"], row["ttl_s"], now)]
    standing.sort(key=lambda row: (row["epoch"], row["n"]))
    return [source_of(row, places) for row in _latest(standing[-MAX_SOURCES:])]


def _latest(rows: list[Document]) -> list[Document]:
    """The latest rows, as many as have ``MAX_FACTS`` facts together."""
    left = MAX_FACTS
    for place in range(len(rows) - 1, -1, -1):
        left -= len(rows[place]["facts"] or ())
        if left < 0:
            return rows[place + 1 :]
    return rows


def source_of(row: Document, places: Mapping[str, str]) -> Source:
    """A row of cards as a source, without what a later card says otherwise.

    ``places``: card -> the position of its original, for those that replaced others.
    """
    outdated = row["outdated"] or {}
    entity, _ = row["entity"] or ("", "")
    replaced = row["superseded_by"] if row["status"] == "superseded" else ""
    return Source(
        card=row["card"],
        place=position(row),
        title=row["tool"] or row["source"],
        facts=tuple(_without_told_keys([Fact(*fact) for fact in row["facts"] or () if fact[0] not in outdated])),
        trust=row["trust"],
        worth=row["value"],
        replaced_by=places.get(replaced, replaced),
        about=next((text for field, _, text in row["facts"] or () if field == entity), "") if entity else "",
    )


def _without_told_keys(facts: Sequence[Fact]) -> Iterator[Fact]:
    """The facts without the keys whose objects tell them, too, by a name (``{"7": {"id": "7"}}``)."""
    named = {(fact.record, fact.text) for fact in facts if ".*." in fact.field}
    return (fact for fact in facts if ".*." in fact.field or (fact.record, fact.text) not in named)


def read_asked(conn: Connection, org: str, task: str) -> Document:
    """What a task may still ask for, and what it called last: its row of ``card_needs``, or nothing."""
    return one(conn, t.CARD_NEEDS, org, task_key(task)) or {}


def read_needs(
    conn: Connection, org: str, task: str, flows: Flows, asked: Document, *, mode: str = "", focus: str = ""
) -> Needs:
    """What speaks for the facts of a task: ``asked`` by ``read_asked``, ``focus`` words of what is to be decided."""
    key, c = task_key(task), t.CARD_VALUES.c
    used = select(c.value).where(c.org == org, c.key == key, c.uses > 0).order_by(c.value).limit(MAX_USED)
    parameters = flows.parameters | set(asked.get("parameters") or ())
    wanted = frozenset(words(focus)).union(*map(callings, parameters))
    chosen_mode = mode or asked.get("mode") or ""
    chances, calls = flows.expected
    return Needs(frozenset(conn.execute(used).scalars()), chances, calls, wanted, chosen_mode)


def read_flows(conn: Connection, org: str, agent: str, asked: Document) -> Flows:
    """What was learned over the tasks of an agent, for the next call of the one that is ``asked`` about."""
    flows = t.CARD_FLOWS.c
    counted = select(flows.used_by, flows.counts, flows.after).where(flows.org == org, flows.agent == short(agent))
    rows = conn.execute(counted.order_by(flows.key, flows.used_by).limit(MAX_COUNTED))
    return sum_flows(((row.used_by, row.counts or {}, row.after or {}) for row in rows), asked.get("called") or "")


def sum_flows(rows: Iterable[tuple[str, Mapping[str, int], Mapping[str, int]]], last: str) -> Flows:
    """What rows of ``card_flows`` (the tool that was called, what it took, what was called before it) say together."""
    followed: dict[str, Counter[str]] = {}
    takes: dict[str, Counter[tuple[str, str]]] = {}
    parameters: set[str] = set()
    for called, counts, after in rows:
        followed.setdefault(called, Counter()).update(after)
        taken = takes.setdefault(called, Counter())
        for name, count in counts.items():
            tool, field, parameter = name.split(SEPARATOR)
            taken[tool, field] += count
            parameters.add("_".join(words(parameter)))
    return Flows(expect(followed, takes, last), frozenset(parameters - {""}))
