"""Items: an agent's long-term store of values by namespace and key.

    item.updated   the value is set; the time of its first setting since it was last away stays
    item.deleted   it is gone

All namespaces with the same first element belong to one key. The last event in the log wins.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Index, MetaData

from events.event import Recorded
from events.types.thread import ItemDeleted, ItemUpdated
from projections.bounds import canonical, short
from projections.draft import Blanks, Draft, json, text
from projections.projection import Change, Projection, RowRef, Rows, read_model_table

METADATA = MetaData()

ITEMS = read_model_table(
    METADATA,
    "items",
    text("namespace_key", pk=True),
    text("item_key", pk=True),
    text("path"),  # the namespace as canonical JSON without its closing bracket: a namespace within begins with it
    json("namespace"),
    text("item"),
    json("value"),
    text("created"),  # RFC 3339
    text("updated"),
)
Index("items_by_updated", ITEMS.c.org, ITEMS.c.updated)

TABLES = (ITEMS,)
BLANKS = Blanks(TABLES)


def path_of(namespace: Iterable[str]) -> str:
    """Of a namespace, so that those within it, and only those, have it followed by a comma as their beginning."""
    return canonical(list(namespace))[:-1]


def place_of(namespace: Iterable[str], key: str) -> tuple[str, str]:
    """Primary key of an item after org and key."""
    return short(path_of(namespace)), short(key)


def apply(recorded: Recorded, rows: Rows) -> Iterable[Change]:
    """Fold one event of an item."""
    draft = Draft(rows, BLANKS)
    match recorded.payload:
        case ItemUpdated() as payload:
            row = draft.edit("items", *place_of(payload.namespace, payload.key))
            row.update(
                path=path_of(payload.namespace),
                namespace=payload.namespace,
                item=payload.key,
                value=payload.value,
                created=row["created"] or recorded.event.time,
                updated=recorded.event.time,
            )
        case ItemDeleted() as payload:
            draft.drop("items", *place_of(payload.namespace, payload.key))
    return draft.changes()


def names(recorded: Recorded) -> Iterable[RowRef]:
    """The rows that ``apply`` will ask for."""
    payload = recorded.payload
    if isinstance(payload, ItemUpdated):
        yield RowRef("items", place_of(payload.namespace, payload.key))


ITEMS_PROJECTION = Projection(
    name="items",
    version=1,
    tables=TABLES,
    handles=frozenset(("item.updated", "item.deleted")),
    apply=apply,
    names=names,
)
