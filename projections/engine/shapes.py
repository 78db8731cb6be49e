"""What the engine knows of a read-model table: its columns, how a row is checked, and its two written forms.

A row that was put must be the row that a later read from the store gives, or a fold would depend on where batches end
and who owned the cache. So every put is checked against the columns' types, and numbers take their stored form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Annotated, Any

import msgspec
import orjson
from sqlalchemy import BigInteger, Boolean, Column, Double, MetaData, Table, Text

from events.errors import SetupError
from projections.projection import UNREAD, Json, Projection, Row, json_text

RowKey = tuple[Any, ...]
"""``(table, org, key, *pk)``: a row's name in caches and changes. It sorts by table, then by primary key."""

_convert = msgspec.convert

_CHECKED: dict[type | None, Any] = {
    str: str,
    bool: bool,
    float: float,
    int: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)],
}


class Shape:
    """One read-model table. ``columns`` are those of a projection's row: all but ``org`` and ``key``.

    ``strict`` passes JSON values of a put through their text, so that nothing but what is stored can be read back.
    """

    def __init__(self, table: Table, *, strict: bool = False) -> None:
        self.table = table
        self.name = str(table.name)
        self.unread = bool(table.info.get(UNREAD))
        keys = [str(column.name) for column in table.primary_key.columns]
        if keys[:2] != ["org", "key"]:
            raise SetupError(f"table {table.name}: its primary key begins with org and key; use read_model_table")
        self.key_columns = tuple(keys)
        self.all_columns = ("org", "key", *(str(c.name) for c in table.columns if c.name not in ("org", "key")))
        self.columns = self.all_columns[2:]
        self._kinds = [(name, _kind(table.c[name])) for name in self.columns]
        self.pk_of = _picker(self.key_columns[2:])
        self.only_pk = self.key_columns[2] if len(self.key_columns) == 3 else None
        self._values_of = _picker(self.columns)
        self._jsons = [name for name, kind in self._kinds if kind is None]
        self._jsons_of = _picker(self._jsons)
        self._through_text = self._jsons if strict else []
        self._floats = [name for name, kind in self._kinds if kind is float]
        self._plain = not self._jsons and not self._floats
        self._model = self._row_model()
        self._json = [index for index, (_, kind) in enumerate(self._kinds, start=2) if kind is None]
        self.driver_table = _driver_table(table)
        self._loads = [(index, _LOADS[kind]) for index, (_, kind) in enumerate(self._kinds, start=2) if kind in _LOADS]
        self._pk_indices = [self.all_columns.index(name) for name in self.key_columns]

    def checked(self, given: Row) -> dict[str, Any]:
        """The row as the store will give it back: every column, absent ones None.

        Raises ValueError or TypeError, naming table and column, for a row that the table cannot hold.
        """
        row = {**given}
        try:
            _convert(row, self._model)
        except msgspec.ValidationError:
            row = self._filled(row)
        if self._plain:  # of texts, integers and booleans the check is all
            return row
        for name in self._floats:
            if row[name] is not None:
                row[name] = _real(self.name, name, row[name])
        if not _plain_json(self._jsons_of(row)):
            for name in self._jsons:
                if row[name] is not None:
                    _check_json(self.name, name, row[name])
        for name in self._through_text:
            row[name] = orjson.loads(json_text(row[name]))
        return row

    def row_key(self, org: str, key: str, row: Row) -> RowKey:
        """Name of a row of the key."""
        return (self.name, org, key, *self.pk_of(row))

    def values(self, row_key: RowKey, row: Row) -> tuple[Any, ...]:
        """The row in the order of ``all_columns``, as the driver takes it for ``driver_table``."""
        values = [row_key[1], row_key[2], *self._values_of(row)]
        for index in self._json:
            if values[index] is not None:
                values[index] = json_text(values[index])
        return tuple(values)

    def loaded(self, values: Sequence[Any]) -> tuple[RowKey, Row]:
        """A row as the driver gave it, in the order of ``all_columns``."""
        plain = list(values)
        for index, load in self._loads:
            if plain[index] is not None:
                plain[index] = load(plain[index])
        row_key = (self.name, *(plain[index] for index in self._pk_indices))
        return row_key, dict(zip(self.columns, plain[2:], strict=True))

    def _filled(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row with its absent columns, or the error that tells what is wrong with it."""
        unknown = row.keys() - set(self.columns)
        if unknown:
            raise ValueError(f"table {self.name} has no column {sorted(unknown)[0]!r}")
        filled = {name: row.get(name) for name in self.columns}
        try:
            msgspec.convert(filled, self._model)
        except msgspec.ValidationError as error:
            raise ValueError(f"table {self.name}: {error}") from None
        return filled

    def _row_model(self) -> type[msgspec.Struct]:
        """A struct that a row of this table converts to, and no other: the check of all columns in one C call."""
        fields = []
        for name, kind in self._kinds:
            nullable = self.table.c[name].nullable and name not in self.key_columns
            of_column: Any = _CHECKED.get(kind, Any)
            fields.append((name, of_column | None if nullable and of_column is not Any else of_column))
        return msgspec.defstruct(f"{self.name}_row", fields, forbid_unknown_fields=True, gc=False)


def shapes_of(projection: Projection, *, strict: bool = False) -> dict[str, Shape]:
    """Shapes of a projection's tables by name."""
    return {str(table.name): Shape(table, strict=strict) for table in projection.tables}


def unread_tables(shapes: Mapping[str, Shape]) -> frozenset[str]:
    """Names of the tables whose rows no fold asks for."""
    return frozenset(name for name, shape in shapes.items() if shape.unread)


_LOADS: dict[type | None, Callable[[Any], Any]] = {None: orjson.loads, bool: bool}


def _kind(column: Column[Any]) -> type | None:
    """Python type of a column's values; None for Json."""
    kinds: tuple[tuple[type, type | None], ...] = (
        (Json, None), (Boolean, bool), (BigInteger, int), (Double, float), (Text, str),
    )  # fmt: skip
    for column_type, kind in kinds:
        if isinstance(column.type, column_type):
            return kind
    raise SetupError(
        f"{column.table.name}.{column.name}: read models use Text, BigInteger, Double, Boolean and Json, which are the "
        f"same in every store, not {column.type!r}"
    )


def _driver_table(table: Table) -> Table:
    """The table with its JSON columns as the text that they are, so that bulk statements convert nothing again."""
    columns = [
        Column(c.name, Text() if isinstance(c.type, Json) else c.type, primary_key=c.primary_key) for c in table.columns
    ]
    return Table(table.name, MetaData(), *columns)


def _picker(names: Sequence[str]) -> Callable[[Row], tuple[Any, ...]]:
    if not names:
        return lambda row: ()
    if len(names) == 1:
        only = names[0]
        return lambda row: (row[only],)
    return itemgetter(*names)


def _plain_json(values: tuple[Any, ...]) -> bool:
    """Whether values are sure to be JSON, or None. NaN and Infinity would be stored as null, so none may be within."""
    try:
        return orjson.dumps(values).count(b"null") == values.count(None)
    except TypeError:
        return False


def _check_json(table: str, name: str, value: Any) -> None:
    try:
        text = orjson.dumps(value)
    except TypeError as error:
        raise TypeError(f"{table}.{name} is no JSON value: {error}") from None
    if b"null" in text and not _finite(value):
        raise ValueError(f"{table}.{name}: a number in it is not finite, which JSON cannot tell")


def _finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, Mapping):
        return all(map(_finite, value.values()))
    return not isinstance(value, list | tuple) or all(map(_finite, value))


def _real(table: str, name: str, value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{table}.{name}: {value} is no finite number")
    # + 0.0: SQLite keeps no negative zero
    return float(value) + 0.0
