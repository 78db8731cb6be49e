"""What of a scope's beliefs and notices is told in a context, in which order.

Told are beliefs that hold (status ``active`` or ``constraint``) and whose trigger does; a belief about a tool only
where that tool is at hand, as far as the context says which are. First come the user's own standing preferences,
always, then constraints, then what else was learned, the more confident and the nearer (user, agent, org) first. Of
beliefs that are one and the same, or that say the same or the opposite, the first in this order is told alone.

Notices stand apart: what went fatally wrong before, and tools that have failed lately (*cautions*).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from heapq import merge
from itertools import islice
from typing import Any, Literal, NamedTuple

import regex

from projections.memory.normal import normal_form
from projections.policy.index import Index, Ready, ready
from projections.policy.predicate import Context, Seen, comparable
from projections.policy.tools import AtHand, tool_of, tools_of
from projections.queries.confidence import DEFAULT_RULES, BeliefRules

Document = Mapping[str, Any]
"""A belief or a notice, as ``projections.queries.beliefs`` shows it."""

Rank = Literal["standing", "constraint", "learned"]

MOST_TOLD = 200
"""Rules, and notices, that are ever told at once: whoever has to read more follows none."""

MOST_NOTICES = 1_000
"""Notices of a scope that are looked at: cautions, then the most widespread patterns."""

REMEMBERED = 16_384
"""Statements whose form is remembered: the same are told again and again."""

_RANKS: Mapping[Rank, int] = {"standing": 0, "constraint": 1, "learned": 2}
_NEAR = {"user": 0, "agent": 1, "org": 2}
_TOOL = "tool/"

_NEGATED = regex.compile(r"\b(?:do not|don t|dont|not|never|avoid|stop)\b|不要|勿|别|不")
_EMPHASIS = regex.compile(r"\b(?:always|please|do)\b|总是|务必|请|要")


class Held(NamedTuple):
    """A belief that is told wherever its trigger holds."""

    document: Document
    rank: Rank
    order: tuple[int, float, int, str]
    trigger: Ready
    tools: frozenset[str]


class Learned(NamedTuple):
    """One scope: its beliefs in their order, and what to confirm there first."""

    held: tuple[Held, ...] = ()
    notices: tuple[Document, ...] = ()
    worth_asking: Index = Index(())


class Rule(NamedTuple):
    """A belief to be told. ``doubtful``: it reads like an order of somebody who has none to give (C39)."""

    document: Document
    rank: Rank
    doubtful: bool


class Selection(NamedTuple):
    """What is told, in its order. ``more``: whether rules, and notices, may hold beyond ``MOST_TOLD``."""

    rules: tuple[Rule, ...] = ()
    notices: tuple[Document, ...] = ()
    more: tuple[bool, bool] = (False, False)


NOTHING = Selection()


def learned(
    scope: str, beliefs: Iterable[Document], notices: Iterable[Document], rules: BeliefRules = DEFAULT_RULES
) -> Learned:
    """Beliefs and notices of a scope (``user/u1``), the most widespread first, made ready for many contexts."""
    beliefs = list(beliefs)
    held = [_held(scope, one) for one in beliefs if one["status"] in ("active", "constraint") and one["statement"]]
    held.sort(key=lambda one: one.order)
    cautions = [caution for one in beliefs if (caution := _caution(one, rules))]
    warnings = [*cautions, *notices][:MOST_NOTICES]
    return Learned(tuple(held), tuple({**one, "scope": scope} for one in warnings), Index(one.trigger for one in held))


def select(
    scopes: Sequence[Learned], context: Context, *, doubt: Callable[[str], bool] = lambda text: False
) -> Selection:
    """What is told in a context. ``doubt``: whether a text reads like an order to whoever reads it."""
    seen = Seen(context)
    tools = AtHand.of(seen)
    notices = _notices([one for scope in scopes for one in scope.notices], tools)
    warned = {f"{_TOOL}{one['tool']}" for one in notices if one.get("kind") == "caution"}
    candidates = merge(*(_candidates(scope, seen) for scope in scopes), key=lambda one: one.order)
    holding = (one for one in candidates if one.trigger.holds(seen) and tools.suits(one.tools))
    told = list(islice(_once(holding, warned), MOST_TOLD + 1))
    rules = tuple(_rule(one, doubt) for one in told[:MOST_TOLD])
    return Selection(rules, tuple(notices[:MOST_TOLD]), (len(told) > MOST_TOLD, len(notices) > MOST_TOLD))


def _candidates(scope: Learned, seen: Seen) -> Iterator[Held]:
    """The beliefs of a scope whose trigger may hold, in their order."""
    return map(scope.held.__getitem__, scope.worth_asking.candidates(seen))


def _held(scope: str, belief: Document) -> Held:
    level = scope.partition("/")[0]
    rank: Rank = "learned"
    if belief["status"] == "constraint":
        rank = "constraint"
    elif level == "user" and belief["kind"] == "user_preference":
        rank = "standing"
    order = (_RANKS[rank], -belief["confidence"], _NEAR[level], belief["belief"])
    return Held({**belief, "scope": scope}, rank, order, ready(belief.get("trigger") or {}), tools_of(belief))


def _caution(belief: Document, rules: BeliefRules) -> Document | None:
    """A tool that failed as often in a row as demotes a rule, or that fails as surely as a rule must be to be told."""
    tool = tool_of(belief)
    if not tool or belief["status"] != "candidate":
        return None
    failures = belief["failures_in_a_row"]
    if failures >= rules.demoting_failures:
        notice = f"failed the last {failures} times"
    elif belief["confidence"] < 1 - rules.injected_above:
        notice = f"failed {belief['against']} of {belief['supports'] + belief['against']} times"
    else:
        return None
    return {"kind": "caution", "tool": tool, "notice": f"{notice}; confirm first", "confidence": belief["confidence"]}


def _notices(notices: list[Document], tools: AtHand) -> list[Document]:
    """Those about tools at hand, the tool that is to be called first; each pattern once, cautions before the rest."""
    named = [(one, comparable(one.get("tool", ""))) for one in notices]
    at_hand = [(one, tool) for one, tool in named if tools.suits(frozenset((tool,)) - {""})]
    at_hand.sort(key=lambda pair: (pair[1] not in tools.next, _urgency(pair[0])))
    explained = {tool for one, tool in at_hand if one.get("cause")}
    found: dict[tuple[str, str], Document] = {}
    for one, tool in at_hand:
        kind = one.get("kind", "")
        if kind != "caution" and not one.get("cause") and tool in explained:
            continue  # the same without its cause, from a scope that keeps no values
        found.setdefault((tool, kind if kind == "caution" else str(one.get("cause", ""))), one)
    return list(found.values())


def _urgency(notice: Document) -> tuple[bool, int, int, str, str]:
    near = _NEAR[notice["scope"].partition("/")[0]]
    caution = notice.get("kind") == "caution"
    return (not caution, -notice.get("contexts", 0), near, str(notice.get("tool", "")), str(notice.get("cause", "")))


def _once(holding: Iterable[Held], warned: set[str]) -> Iterator[Held]:
    """The first of those that are one belief, or say the same or the opposite."""
    met = set(warned)
    for one in holding:
        keys = {one.document["belief"], f"\x1f{_core(one.document['statement'])}"}
        if one.rank == "constraint":
            keys.discard(one.document["belief"])  # a warning about its tool does not take its place
        if not keys & met:
            yield one
        met |= keys


@lru_cache(maxsize=REMEMBERED)
def _core(statement: str) -> str:
    """What a statement is about, whether it says so or says no: without negation and emphasis."""
    text = normal_form(statement)
    return normal_form(_EMPHASIS.sub(" ", _NEGATED.sub(" ", text))) or text


def _rule(held: Held, doubt: Callable[[str], bool]) -> Rule:
    text = f"{held.document['statement']} {held.document.get('tendency') or ''}"
    return Rule(held.document, held.rank, doubt(text))
