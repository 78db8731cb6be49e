"""What has changed among the cards of a scope since it was read last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, bindparam, select, tuple_

from events.bulk import bulk_select
from events.event import Position
from events.keys import task_key
from projections.cards import tables as t
from projections.engine import tables
from projections.retrieval.query import Scope
from projections.retrieval.scope_index import ScopeIndex, Seen

Row = dict[str, Any]

_NAMES = (
    "key", "card", "source", "trust", "tool", "summary", "model_summary", "excludes", "entity", "attribute", "fields",
    "facts", "values", "value", "uses", "status", "superseded_by", "as_of", "ttl_s", "seen", "agent", "user", "session",
    "run", "task", "partition", "changed_epoch",
)  # fmt: skip
_COLUMNS = [t.CARDS.c[name] for name in _NAMES]
_CHECKPOINTS = select(*(tables.checkpoints.c[name] for name in ("partition", "epoch", "n", "owner_epoch")))


class Delta(NamedTuple):
    """``rows`` to take in; of the partitions ``whole``, they are all that there is. ``uses`` by card: (id, name)."""

    seen: Mapping[int, Seen]
    rows: list[Row]
    whole: frozenset[int]
    uses: Mapping[str, list[tuple[str, str]]]

    @property
    def is_dated(self) -> bool:
        """Whether the rows tell when they changed; those of a generation from before cards did that do not."""
        return all(row["changed_epoch"] is not None for row in self.rows)


def changes(conn: Connection, scope: Scope, seen: Mapping[int, Seen]) -> Delta:
    """What a scope's index lacks that has read as far as ``seen``; everything, when that is empty."""
    now = {p: Seen(Position(epoch, n), owner) for p, epoch, n, owner in conn.execute(_CHECKPOINTS)}
    if not seen:
        rows = _rows(conn, scope)
        return Delta(now, rows, frozenset(now), _uses(conn, scope, rows))
    rows, whole = [], set()
    for partition, reached in now.items():
        before = seen.get(partition)
        if before == reached:
            continue
        mine = (t.CARDS.c.partition == partition,)
        if before is None or before.owner_epoch != reached.owner_epoch:
            whole.add(partition)
            rows += _rows(conn, scope, *mine)
        else:
            later = tuple_(t.CARDS.c.changed_epoch, t.CARDS.c.changed_n) > tuple_(
                bindparam(None, before.position.epoch), bindparam(None, before.position.n)
            )
            rows += _rows(conn, scope, *mine, later)
    return Delta(now, rows, frozenset(whole), _uses(conn, scope, rows))


def take_in(index: ScopeIndex, delta: Delta) -> None:
    """Bring an index to where a delta ends."""
    if delta.whole and index.seen:
        index.keep_of_partitions(delta.whole, (row["card"] for row in delta.rows))
    for row in delta.rows:
        index.put(row, delta.uses.get(row["card"], ()))
    index.seen = delta.seen


def _rows(conn: Connection, scope: Scope, *more: ColumnElement[bool]) -> list[Row]:
    where = [t.CARDS.c.org == scope.org, *more]
    if scope.task:
        where.append(t.CARDS.c.key == task_key(scope.task))
    where += [t.CARDS.c[name] == named for name in ("user", "agent", "session") if (named := getattr(scope, name))]
    rows = [dict(zip(_NAMES, row, strict=True)) for row in conn.execute(select(*_COLUMNS).where(*where))]
    # in the order of ids, so that equal stores make equal indexes; asked of the store, it would walk the wrong index
    return sorted(rows, key=lambda row: str(row["card"]))


def _uses(conn: Connection, scope: Scope, rows: list[Row]) -> dict[str, list[tuple[str, str]]]:
    used = [(scope.org, row["key"], row["card"]) for row in rows if row["uses"]]
    found: dict[str, list[tuple[str, str]]] = {}
    for card, used_by, name in bulk_select(
        conn, t.CARD_USES, ("card", "used_by", "name"), ("org", "key", "card"), used
    ):
        found.setdefault(card, []).append((used_by, name))
    return found
