"""Reads for looking at beliefs again: whose there are."""

from __future__ import annotations

from sqlalchemy import Connection, select, tuple_

from projections.belief.tables import BELIEFS


def scopes_with_beliefs(conn: Connection, after: tuple[str, str], limit: int) -> list[tuple[str, str]]:
    """(org, scope) that hold beliefs and follow ``after``, in order, at most ``limit``."""
    here = (BELIEFS.c.org, BELIEFS.c.key)
    query = select(*here).distinct().where(tuple_(*here) > tuple_(*after)).order_by(*here).limit(limit)
    return [(org, key) for org, key in conn.execute(query)]
