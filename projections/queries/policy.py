"""Reads of policies: what a scope has learned, made ready to be told."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection

from projections.belief.words import cause_words
from projections.policy.selection import Learned, learned
from projections.queries.beliefs import beliefs_of, notices_of
from projections.queries.confidence import DEFAULT_RULES, BeliefRules
from projections.queries.rows import Document


def learned_of(conn: Connection, org: str, scope: str, *, now: datetime, rules: BeliefRules = DEFAULT_RULES) -> Learned:
    """The beliefs and notices of a scope (``user/u1``, ``agent/coder``, ``org``) at a moment.

    A notice that has become a constraint of its tool is told by that tool's belief, where the scope has one (a user's
    has none); what a step or a run failed by, because a call did, by the notice of that call.
    """
    told = notices_of(conn, org, scope, now=now, rules=rules)
    beliefs = beliefs_of(conn, org, scope, now=now, rules=rules, notices=told)
    known = {one["belief"] for one in beliefs}
    notices = [one for one in told if one["standing"] == "notice" or f"tool/{one.get('tool', '')}" not in known]
    return learned(scope, beliefs, _once(notices), rules)


def _once(notices: Sequence[Document]) -> list[Document]:
    """Without those of no tool whose cause is that of a tool, or ends with another's: a run says first how it ended."""
    causes = [cause_words(one.get("tool", ""), one.get("cause", "")) for one in notices]
    of_any = set(causes) - {""}
    of_tools = {cause for one, cause in zip(notices, causes, strict=True) if one.get("tool")} - {""}
    return [
        one for one, cause in zip(notices, causes, strict=True)
        if one.get("tool") or not (cause in of_tools or any(end in of_any for end in _ends(cause)))
    ]  # fmt: skip


def _ends(cause: str) -> list[str]:
    """What a cause ends with, from its second word on, its third, and so on."""
    words = cause.split()
    return [" ".join(words[start:]) for start in range(1, len(words))]
