"""Reading a generation whose tables have another shape than those of the code that reads, until its rebuild is done.

What the code asks of its own tables is rewritten into what the generation has. A table or column that it has under
the name before (``was``) is read from there; a column that it lacks is NULL, a table that it lacks is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import (
    Connection,
    FromClause,
    Table,
    cast,
    column,
    event,
    false,
    inspect,
    null,
    select,
    table,
    type_coerce,
)
from sqlalchemy.sql.elements import ColumnClause
from sqlalchemy.sql.visitors import replacement_traverse

from projections.engine import tables as engine_tables
from projections.projection import WAS, Projection

OldShape = Mapping[Table, FromClause]
"""What stands for each table that the generation has in another shape; empty where all are the same."""


def old_shape(conn: Connection, projection: Projection) -> OldShape:
    """How the generation on this connection differs from the tables that the running code reads."""
    inspector = inspect(conn)
    there = {name: {str(one["name"]) for one in inspector.get_columns(name)} for name in inspector.get_table_names()}
    wanted = [*projection.tables, *engine_tables.metadata.sorted_tables]
    return {own: stand_in for own in wanted if (stand_in := _stand_in(own, there)) is not None}


def has_table(conn: Connection, own: Table) -> bool:
    """Whether the generation on this connection has the table, under its name or one that it had before."""
    inspector = inspect(conn)
    return any(inspector.has_table(name) for name in _names(own))


@contextmanager
def reading(conn: Connection, shape: OldShape) -> Iterator[None]:
    """Rewrite what is executed on this connection meanwhile."""
    if not shape:
        yield
        return
    columns = {own: {one.key: one for one in stand_in.columns} for own, stand_in in shape.items()}

    def replace(element: Any, **_: Any) -> Any:
        if isinstance(element, Table):
            return shape.get(element)
        if isinstance(element, ColumnClause) and isinstance(element.table, Table) and element.table in shape:
            return columns[element.table][element.key]
        return None

    def rewrite(_conn: Connection, statement: Any, many: Any, parameters: Any, _options: Any) -> tuple[Any, Any, Any]:
        return replacement_traverse(statement, {}, replace), many, parameters

    event.listen(conn, "before_execute", rewrite, retval=True)
    try:
        yield
    finally:
        event.remove(conn, "before_execute", rewrite)


def _stand_in(own: Table, there: Mapping[str, set[str]]) -> FromClause | None:
    name = next((name for name in _names(own) if name in there), "")
    has = there.get(name, set())
    if name == own.name and has >= set(own.columns.keys()):
        return None
    sources = {one.key: next((former for former in _names(one) if former in has), "") for one in own.columns}
    old = table(name, *(column(source) for source in sources.values() if source))
    chosen = [
        (type_coerce(old.c[source], one.type) if (source := sources[one.key]) else cast(null(), one.type)).label(
            one.key
        )
        for one in own.columns
    ]
    rows = select(*chosen).select_from(old) if name else select(*chosen).where(false())
    return rows.subquery(own.name)


def _names(item: Any) -> Iterable[str]:
    """The name of a table or column, and those that it had before, the newest first."""
    was = item.info.get(WAS, ())
    return (str(item.name), *((was,) if isinstance(was, str) else was))
