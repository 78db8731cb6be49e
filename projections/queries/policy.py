"""Reads of policies: what a scope has learned, made ready to be told."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection

from projections.policy.selection import Learned, learned
from projections.queries.beliefs import beliefs_of, notices_of
from projections.queries.confidence import DEFAULT_RULES, BeliefRules


def learned_of(conn: Connection, org: str, scope: str, *, now: datetime, rules: BeliefRules = DEFAULT_RULES) -> Learned:
    """The beliefs and notices of a scope (``user/u1``, ``agent/coder``, ``org``) at a moment.

    A notice that has become a constraint of its tool is told by that tool's belief.
    """
    told = notices_of(conn, org, scope, now=now, rules=rules)
    notices = [one for one in told if one["standing"] == "notice" or not one.get("tool")]
    return learned(scope, beliefs_of(conn, org, scope, now=now, rules=rules), notices, rules)
