"""Whether a generation was made by code that means the same as the code that runs."""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from typing import Any

import orjson
from sqlalchemy import Table

from events.errors import SetupError
from events.registry import EVENT_TYPES
from projections.engine import tables
from projections.engine.shapes import shapes_of
from projections.fold_code import fold_code
from projections.projection import Projection

ENGINE_FORMAT = 1
"""Raised when the engine's own tables in a generation change, or how the engine folds and stores rows."""


@cache
def fingerprint(projection: Projection) -> str:
    """32 hex digits of what a generation was made by.

    That is: table definitions, projection version and parameters, versions of the handled event types, the fold's code.
    Equal over processes, hash seeds, working directories and the order in which tables and columns are written down.
    ``fold_code`` tells how far the code is looked at: a change of a helper that lies outside wants a new version.
    Raises SetupError for a projection that the engine cannot run: a handled type that is not registered, a table that
    is none of its own.
    """
    _check(projection)
    value = {
        "engine": ENGINE_FORMAT,
        "name": projection.name,
        "version": projection.version,
        "events": {name: EVENT_TYPES[name].version for name in projection.handles},
        "tables": {str(table.name): _table(table) for table in projection.tables},
        "code": fold_code(projection.apply, projection.names, projection.key),
    }
    if projection.parameters:
        value["parameters"] = projection.parameters
    return blake2b(orjson.dumps(value, option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest()


def _check(projection: Projection) -> None:
    unknown = sorted(projection.handles - EVENT_TYPES.keys())
    if unknown:
        raise SetupError(f"projection {projection.name} handles {unknown[0]!r}, which no event type in events/ is")
    taken = sorted({table.name for table in projection.tables} & tables.NAMES)
    if taken:
        raise SetupError(f"projection {projection.name}: the table name {taken[0]!r} is the engine's, choose another")
    shapes_of(projection)


def _table(table: Table) -> dict[str, Any]:
    return {
        "key": [str(column.name) for column in table.primary_key.columns],
        "columns": {str(column.name): [type(column.type).__name__, bool(column.nullable)] for column in table.columns},
        "indexes": sorted(
            [str(index.name), [str(expression) for expression in index.expressions], bool(index.unique)]
            for index in table.indexes
        ),
    }
