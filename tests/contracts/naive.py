"""The plainest code that makes a read model of an archive: what every cleverer way must agree with.

One event at a time, rows in a dictionary, no cache, no batch, no store, no verdicts of the archive. A discarded event
is left out from the start, as if it had never been.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from events.archive.reader import Archived
from events.errors import NewerVersion
from events.event import Recorded
from events.registry import decode_payload
from projections.projection import Projection, Put, Row

Dump = Mapping[str, list[tuple[Any, ...]]]
"""Rows of each table in primary key order, all columns; and ``dead_letters``, ``parked``."""


class _Rows:
    def __init__(self, rows: Mapping[tuple[Any, ...], Row], org: str, key: str) -> None:
        self._rows, self._org, self._key = rows, org, key

    def get(self, table: str, *pk: Any) -> Row | None:
        return self._rows.get((table, self._org, self._key, *pk))


def naive_fold(projection: Projection, log: Sequence[Archived]) -> Dump:
    """The read model of these archived events, which are in order within each partition."""
    events = [(archived, archived.event()) for archived in log]
    discards = [(e.org, e.key, orjson.loads(e.data)) for _, e in events if e.type == "deadletter.discarded"]
    discarded = {(org, key, data["event_id"]) for org, key, data in discards if data["projection"] == projection.name}
    pks = {table.name: [column.name for column in table.primary_key][2:] for table in projection.tables}
    rows: dict[tuple[Any, ...], Row] = {}
    letters: list[tuple[Any, ...]] = []
    parked: dict[tuple[str, str], tuple[Any, ...]] = {}
    seen = set(discarded)
    for archived, event in events:
        identity = (event.org, event.key, event.id)
        known = identity in seen
        seen.add(identity)
        if known or event.type not in projection.handles:
            continue
        place = (archived.partition, *archived.position)
        owner, cause = (event.org, event.key), "waiting"
        if owner not in parked:
            try:
                recorded = Recorded(archived.partition, archived.position, event, decode_payload(event))
                org, key = event.org, projection.key(recorded)
                changes = list(projection.apply(recorded, _Rows(rows, org, key)))
            except NewerVersion:
                cause = "newer_version"
            except Exception:  # noqa: BLE001 - whatever a fold raises is a dead letter
                cause = "poison"
            else:
                for change in changes:
                    if isinstance(change, Put):
                        row = orjson.loads(orjson.dumps(change.row))
                        rows[(change.table, org, key, *(row[name] for name in pks[change.table]))] = row
                    else:
                        rows.pop((change.table, org, key, *change.pk), None)
                continue
        parked.setdefault(owner, (*owner, *place))
        letters.append((*place, event.id, cause))
    dump: dict[str, list[tuple[Any, ...]]] = {str(table.name): [] for table in projection.tables}
    columns = {table.name: [column.name for column in table.columns][2:] for table in projection.tables}
    for (table, org, key, *_), row in rows.items():
        dump[table].append((org, key, *(row.get(name) for name in columns[table])))
    for found in dump.values():
        found.sort(key=repr)
    return dump | {"dead_letters": sorted(letters), "parked": sorted(parked.values())}
