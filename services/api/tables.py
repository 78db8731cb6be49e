"""``/v1/projections/{name}/tables``: rows of any read model as they are stored, one's own included."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from sqlalchemy import Table
from sqlalchemy.exc import SQLAlchemyError

from projections.old_shapes import has_table
from projections.projection import Projection
from projections.queries.table_rows import place_columns, rows_of
from services.api.deps import After, BackendDep, OrgDep
from services.api.paging import Page, PageParam
from services.api.problems import Problem
from services.api.projections import known
from services.api.reading import Found, read

router = APIRouter(tags=["projections"])


@router.get("/v1/projections/{name:name}/tables")
async def list_(name: str, backend: BackendDep) -> dict[str, Any]:
    """The tables of a read model: their columns, and those that order the rows."""
    projection = backend.projections[known(backend, name)]
    items = [
        {
            "table": table.name,
            "columns": [column.name for column in table.columns if column.name != "org"],
            "order": [column.name for column in place_columns(table)],
        }
        for table in projection.tables
    ]
    return {"items": items, "next_cursor": None}


@router.get("/v1/projections/{name:name}/tables/{table:name}")
async def rows(
    name: str,
    table: str,
    backend: BackendDep,
    org: OrgDep,
    page: PageParam,
    key: Annotated[str | None, Query(description="Rows of this partition key alone")] = None,
    after: After = None,
) -> dict[str, Any]:
    """Rows of the caller's organisation in the order of the primary key."""
    found_table = _table(backend.projections[known(backend, name)], table)
    _check_cursor(found_table, page)
    work = partial(
        rows_of, table=found_table, org=org, key=key, place=page.cursor, descending=page.order == "desc",
        limit=page.limit + 1,
    )  # fmt: skip
    try:
        found = await read(backend, name, work, org=org, key=key or "", after=after)
    except SQLAlchemyError as error:
        if (await backend.read_models.read(name, lambda _: None)).stale:
            raise _other_shape(name) from error
        raise
    if found.note["stale"] and not (await backend.read_models.read(name, partial(has_table, own=found_table))).value:
        # no rows yet is not the same as none
        raise _other_shape(name)
    return {**_page(found, found_table, page), "read": found.note}


def _page(found: Found, table: Table, page: Page) -> dict[str, Any]:
    shown = found.value[: page.limit]
    more = len(found.value) > page.limit
    return page.answer(shown, [shown[-1][column.name] for column in place_columns(table)] if more else None)


def _table(projection: Projection, name: str) -> Table:
    tables = {table.name: table for table in projection.tables}
    if name not in tables:
        raise Problem(404, "no_table", f"{projection.name} has no table {name!r}; it has {', '.join(sorted(tables))}")
    return tables[name]


def _check_cursor(table: Table, page: Page) -> None:
    if page.cursor is None:
        return
    types = [column.type.python_type for column in place_columns(table)]
    fits = len(types) == len(page.cursor) and all(map(isinstance, page.cursor, types))
    if not fits or any(isinstance(part, str) and "\x00" in part for part in page.cursor):
        raise Problem(422, "bad_cursor", "`cursor` is of another list: start without it")


def _other_shape(name: str) -> Problem:
    """The generation that is read was made by other code: it has the tables of that code."""
    detail = f"what is read of {name} was made by other code, with other tables: wait for its rebuild"
    return Problem(503, "stale", detail)
