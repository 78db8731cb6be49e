"""The registry of embedding models: whose vectors searches use, which one is being made ready, how far each is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import orjson
from sqlalchemy import Connection, delete, insert, select, update

from events.archive.schema import embedding_models, embedding_progress, vectors
from events.bulk import bulk_upsert
from events.clock import database_now_ms
from events.event import Position


class Model(NamedTuple):
    """A model that has vectors. ``state``: building, active, retired. ``source`` tells how it is loaded.

    ``written`` grows whenever vectors are written: whoever keeps some in memory looks for more when it has changed.
    """

    name: str
    source: Mapping[str, str]
    dimension: int
    state: str
    written: int


class Reach(NamedTuple):
    """Every card of a partition of ``generation`` that changed up to ``position`` has been looked at."""

    generation: str
    position: Position


def active(conn: Connection) -> Model | None:
    """The model whose vectors searches use; None before any has them all."""
    return next((model for model in list_all(conn) if model.state == "active"), None)


def list_all(conn: Connection) -> list[Model]:
    """Every model that has vectors, the active one first, then those being made ready."""
    c = embedding_models.c
    query = select(c.model, c.source, c.dimension, c.state, c.written).order_by(c.state, c.model)
    rows = conn.execute(query)
    return [Model(name, orjson.loads(source), *rest) for name, source, *rest in rows]


def get(conn: Connection, name: str) -> Model | None:
    """One model, or None when it has no vectors yet."""
    return next((model for model in list_all(conn) if model.name == name), None)


def is_useful(conn: Connection, name: str) -> bool:
    """Whether there is a vector of this model: one that gives nothing but zeros, or no numbers, has none."""
    there = select(vectors.c.hash).where(vectors.c.model == name, vectors.c.dimension != 0).limit(1)
    return conn.execute(there).first() is not None


def register(conn: Connection, name: str, source: Mapping[str, str], dimension: int, *, useful: bool = True) -> Model:
    """Make a model known, or one that was retired ready again. The first one is active at once: there is none better.

    Not before it is ``useful``: one that has given no vector yet stays building, and may be registered again.
    One that gives vectors of another dimension than before is another model by the same name: its old ones go.
    """
    known = get(conn, name)
    if known is not None and known.dimension != dimension:
        forget(conn, name)
        known = None
    first = useful and active(conn) is None
    if known is not None and known.state == "building" and first:
        activate(conn, name)
        return known._replace(state="active")
    if known is not None and known.state != "retired":
        return known
    state = "active" if first else "building"
    text = orjson.dumps(dict(source)).decode()
    if known is not None:
        change = update(embedding_models).where(embedding_models.c.model == name)
        conn.execute(change.values(state=state, source=text))
    else:
        values = {"model": name, "source": text, "dimension": dimension, "state": state, "written": 0}
        conn.execute(insert(embedding_models), {**values, "created_ms": database_now_ms(conn)})
    return Model(name, source, dimension, state, known.written if known else 0)


def activate(conn: Connection, name: str) -> bool:
    """Searches use this model from now on; the one before is kept, retired, and those before that are forgotten.

    False, and nothing changes, when it has no vectors.
    """
    table = embedding_models
    if get(conn, name) is None:
        return False
    for model in list_all(conn):
        if model.state == "retired" and model.name != name:
            forget(conn, model.name)
    conn.execute(update(table).where(table.c.state == "active").values(state="retired"))
    now = database_now_ms(conn)
    conn.execute(update(table).where(table.c.model == name).values(state="active", activated_ms=now))
    return True


def forget(conn: Connection, name: str) -> None:
    """Drop a model with its vectors."""
    conn.execute(delete(vectors).where(vectors.c.model == name))
    conn.execute(delete(embedding_progress).where(embedding_progress.c.model == name))
    conn.execute(delete(embedding_models).where(embedding_models.c.model == name))


def count_written(conn: Connection, name: str, new: int) -> None:
    """Tell that ``new`` vectors were written."""
    table = embedding_models
    conn.execute(update(table).where(table.c.model == name).values(written=table.c.written + new))


def reached(conn: Connection, name: str) -> dict[int, Reach]:
    """How far a model is, by partition."""
    c = embedding_progress.c
    rows = conn.execute(select(c.partition, c.generation, c.epoch, c.n).where(c.model == name))
    return {partition: Reach(generation, Position(epoch, n)) for partition, generation, epoch, n in rows}


def set_reached(conn: Connection, name: str, reach: Mapping[int, Reach]) -> None:
    """Note how far a model is."""
    columns = ("model", "partition", "generation", "epoch", "n")
    rows = [(name, partition, each.generation, *each.position) for partition, each in sorted(reach.items())]
    bulk_upsert(conn, embedding_progress, columns, rows)
