"""Why a belief is told in a context, or why not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import Connection

from projections.policy.predicate import Context, Seen
from projections.policy.selection import Held, Learned, Rule, Selection
from projections.policy.text import Told
from projections.policy.tools import AtHand
from projections.queries.beliefs import belief_document
from projections.queries.confidence import BeliefRules
from projections.read_models import ReadModels
from services.policies.scopes import BELIEFS

Document = dict[str, Any]


def of_held(
    name: str, scopes: Sequence[Learned], context: Context, selection: Selection, told: Told
) -> Document | None:
    """The verdict on a belief that holds in one of the scopes; None where it holds in none.

    ``told``; ``no_room``: it was cut; ``trigger``: that does not hold here; ``tools``: they are not at hand;
    ``said_already``: another rule that is told says the same or the opposite, or a warning takes its place.
    """
    held = [one for scope in scopes for one in scope.held if one.document["belief"] == name]
    if not held:
        return None
    if any(_is(rule, name) for rule in told.rules):
        return _verdict("told", held[0])
    if any(_is(rule, name) for rule in selection.rules):
        return _verdict("no_room", held[0])
    seen = Seen(context)
    here = [one for one in held if one.trigger.holds(seen)]
    if not here:
        return _verdict("trigger", held[0])
    suiting = [one for one in here if AtHand.of(seen).suits(one.tools)]
    if not suiting:
        return _verdict("tools", here[0])
    return _verdict("no_room" if selection.more[0] else "said_already", suiting[0])


async def of_any(
    read_models: ReadModels, rules: BeliefRules, org: str, name: str, scopes: Sequence[str], now: datetime
) -> Document:
    """The verdict on a belief that holds nowhere here: ``candidate``, ``retired``, or ``unknown`` to these scopes."""

    def work(conn: Connection) -> list[Document]:
        read = partial(belief_document, conn, org, belief=name, now=now, rules=rules)
        return [{**found, "scope": scope} for scope in scopes if (found := read(scope=scope)) is not None]

    found = (await read_models.read(BELIEFS, work)).value
    if not found:
        return {"belief": name, "verdict": "unknown"}
    best = max(found, key=lambda one: one["confidence"])
    shown = ("belief", "scope", "statement", "confidence", "failures_in_a_row", "last_verified", "retired_because")
    return {"verdict": best["status"], **{field: best[field] for field in shown if best.get(field) not in (None, "")}}


def _is(rule: Rule, name: str) -> bool:
    return bool(rule.document["belief"] == name)


def _verdict(verdict: str, held: Held) -> Document:
    shown = ("belief", "scope", "statement", "trigger", "confidence")
    said = {field: held.document[field] for field in shown if held.document.get(field) not in (None, "", {})}
    return {"verdict": verdict, **said, **({"tools": sorted(held.tools)} if held.tools else {})}
