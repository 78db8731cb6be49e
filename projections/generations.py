"""The registry of generations: which one of a read model is read, which are built, kept or gone. In the log store.

A generation's number is never used again, so that nobody who was asleep can write into a later one of the same name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection, func, insert, select, update

from events.archive.schema import generations
from events.clock import now_ms
from events.errors import Refused
from projections.fingerprint import fingerprint
from projections.projection import Projection


class Generation(NamedTuple):
    """One generation of a read model. ``state``: building, active, retired, failed, cancelled, dropped."""

    projection: str
    number: int
    name: str
    fingerprint: str
    version: int
    state: str
    progress: Mapping[str, Any]
    created_ms: int
    activated_ms: int | None

    def matches(self, projection: Projection) -> bool:
        """Whether the running code may fold it."""
        return self.fingerprint == fingerprint(projection)


def active(conn: Connection, projection: str) -> Generation | None:
    """The generation that is read, or None before the first one."""
    return next((g for g in list_all(conn, projection) if g.state == "active"), None)


def serving(conn: Connection, projection: Projection) -> Generation | None:
    """The generation that reads of it are served from: its active one, or before that the one of what it replaces."""
    return first_active(conn, (projection.name, *projection.replaces))


def first_active(conn: Connection, projections: Iterable[str]) -> Generation | None:
    """The active generation of the first of these read models that has one."""
    return next((found for name in projections if (found := active(conn, name)) is not None), None)


def of_this_code(found: Generation | None, projection: Projection) -> Generation:
    """The generation, for whoever compares or mends it. Raises Refused when there is none, or other code made it."""
    if found is None:
        raise Refused(f"{projection.name} has no generation yet: start a projector first", code="no_generation")
    if not found.matches(projection):
        raise Refused(
            f"{found.name} was made by other code than this: run `refold rebuild {projection.name}` first", code="stale"
        )
    return found


def building(conn: Connection, projection: str) -> Generation | None:
    """The generation that is being built, or was when its builder died."""
    return next((g for g in list_all(conn, projection) if g.state == "building"), None)


def list_all(conn: Connection, projection: str | None = None) -> list[Generation]:
    """All generations (of one read model), the newest first."""
    query = select(generations).order_by(generations.c.projection, generations.c.generation.desc())
    if projection is not None:
        query = query.where(generations.c.projection == projection)
    return [_generation(row._mapping) for row in conn.execute(query)]


def create(conn: Connection, projection: Projection) -> Generation:
    """Register the next generation of a read model as ``building``."""
    table = generations
    last = conn.execute(select(func.max(table.c.generation)).where(table.c.projection == projection.name)).scalar()
    number = (last or 0) + 1
    conn.execute(
        insert(table),
        {
            "projection": projection.name,
            "generation": number,
            "name": f"{projection.name}__g{number}",
            "fingerprint": fingerprint(projection),
            "version": projection.version,
            "state": "building",
            "progress": "{}",
            "created_ms": now_ms(),
        },
    )
    return get(conn, projection.name, number)


def get(conn: Connection, projection: str, number: int) -> Generation:
    """One generation. Raises Refused when there is none of that number."""
    found = next((g for g in list_all(conn, projection) if g.number == number), None)
    if found is None:
        raise Refused(f"{projection} has no generation {number}: see `refold generations`", code="no_generation")
    return found


def activate(conn: Connection, generation: Generation) -> None:
    """Make this the generation that is read, and retire the one that was; all readers see it at once or not at all."""
    table = generations
    of_projection = table.c.projection == generation.projection
    # in this order, though a clock went back: it tells which one is gone back to
    last = conn.execute(select(func.max(table.c.activated_ms)).where(of_projection)).scalar()
    conn.execute(update(table).where(of_projection, table.c.state == "active").values(state="retired"))
    changed = conn.execute(
        update(table)
        .where(of_projection, table.c.generation == generation.number, table.c.state.in_(("building", "retired")))
        .values(state="active", activated_ms=max(now_ms(), (last or 0) + 1))
    )
    if changed.rowcount != 1:
        raise Refused(f"{generation.name} is {generation.state} and cannot be activated", code="not_ready")


def previous(conn: Connection, projection: str) -> Generation | None:
    """The generation that was read before the present one, if it is still there."""
    retired = [g for g in list_all(conn, projection) if g.state == "retired"]
    return max(retired, key=lambda g: g.activated_ms or 0, default=None)


def retire_for_good(conn: Connection, generation: Generation) -> None:
    """Record that it is dropped: it cannot be activated any more. Raises Refused for one that is in use."""
    table = generations
    dropped = conn.execute(
        update(table)
        .where(
            table.c.projection == generation.projection,
            table.c.generation == generation.number,
            table.c.state.not_in(("active", "building")),  # compared where it is set: somebody may be going back to it
        )
        .values(state="dropped")
    )
    if dropped.rowcount != 1:
        current = get(conn, generation.projection, generation.number)
        raise Refused(f"{current.name} is {current.state} and cannot be dropped", code="in_use")


def set_state(conn: Connection, generation: Generation, state: str) -> None:
    """Record that it failed, was cancelled, or was dropped."""
    _update(conn, generation, state=state)


def set_progress(conn: Connection, generation: Generation, progress: Mapping[str, Any]) -> None:
    """Show how far its building is, to whoever watches from elsewhere."""
    _update(conn, generation, progress=orjson.dumps(dict(progress)).decode())


def _update(conn: Connection, generation: Generation, **values: Any) -> None:
    table = generations
    conn.execute(
        update(table)
        .where(table.c.projection == generation.projection, table.c.generation == generation.number)
        .values(**values)
    )


def _generation(row: Mapping[Any, Any]) -> Generation:
    return Generation(
        row["projection"], row["generation"], row["name"], row["fingerprint"], row["version"], row["state"],
        orjson.loads(row["progress"]), row["created_ms"], row["activated_ms"],
    )  # fmt: skip
