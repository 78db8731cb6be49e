"""A part of a read model: what one tenant owns, or one key of a tenant. Folded by the same code as the whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

from sqlalchemy import ColumnElement, Table, and_, true

from events.errors import Refused
from events.event import Recorded
from events.keys import partition_of
from projections.projection import Change, Projection, RowRef, Rows


@dataclass(frozen=True)
class Scope:
    """Everything (``org`` is None), one tenant, or one partition key (``task/t1``) of a tenant."""

    org: str | None = None
    key: str | None = None

    @property
    def everything(self) -> bool:
        """Whether nothing is left out."""
        return self.org is None

    def __str__(self) -> str:
        if self.org is None:
            return "everything"
        return f"tenant {self.org}" if self.key is None else f"{self.key} of tenant {self.org}"

    def holds(self, org: str, key: str) -> bool:
        """Whether a partition key of a tenant lies within."""
        return self.org in (None, org) and self.key in (None, key)

    def partitions(self, count: int) -> list[int]:
        """The partitions of a log of ``count`` that it may have events in."""
        if self.org is None or self.key is None:
            return list(range(count))
        return [partition_of(self.org, self.key, count)]

    def condition(self, table: Table) -> ColumnElement[bool]:
        """Its rows of a table that has the columns ``org`` and ``key``."""
        named = {"org": self.org, "key": self.key}
        return and_(true(), *(table.c[name] == value for name, value in named.items() if value is not None))


def check_scope(projection: Projection, scope: Scope) -> None:
    """Raise Refused where a key of events does not name the rows that are made of it."""
    if scope.key is not None and projection.key is not _BY_PARTITION_KEY:
        raise Refused(
            f"the rows of {projection.name} are not kept by the key of their events: name a tenant alone", code="no_key"
        )


def scoped(projection: Projection, scope: Scope) -> Projection:
    """The projection as it is where nothing outside the scope ever happened."""
    if scope.everything:
        return projection
    return replace(
        projection, apply=partial(_apply, projection, scope), names=partial(_names, projection, scope)
    )  # fmt: skip


def _apply(projection: Projection, scope: Scope, recorded: Recorded, rows: Rows) -> Iterable[Change]:
    event = recorded.event
    return projection.apply(recorded, rows) if scope.holds(event.org, event.key) else ()


def _names(projection: Projection, scope: Scope, recorded: Recorded) -> Iterable[RowRef]:
    event = recorded.event
    return projection.names(recorded) if scope.holds(event.org, event.key) else ()


_BY_PARTITION_KEY = Projection.__dataclass_fields__["key"].default
