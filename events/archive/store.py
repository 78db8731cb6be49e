"""Writing the archive: pure SQL on a Connection, inside a transaction of the caller.

The watermark is compared and set first, so that of two writers one is fenced before it has written anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

from sqlalchemy import Connection, insert, select, text, update

from events.archive.schema import event_ids, event_log, log_config, log_epochs, log_watermarks
from events.archive.unknown_types import count_unknown
from events.bulk import bulk_insert, bulk_insert_new, bulk_select
from events.errors import Fenced, SetupError
from events.event import START, Event, Position
from events.registry import EVENT_TYPES

Entry = tuple[Position, Event]
IdKey = tuple[str, str, str]
"""(id, org, key): the identity of an event."""


class First(NamedTuple):
    """Where an identity stands first, and with what content."""

    position: Position
    digest: str


_ID_COLUMNS = ("id", "org", "key", "partition", "epoch", "n", "digest")
_LOG_COLUMNS = tuple(column.name for column in event_log.columns)


def hold_log(conn: Connection) -> None:
    """Let nobody else open the log until this transaction ends: processes that start together create it once."""
    if conn.dialect.name == "postgresql":
        # SQLite's write transactions exclude each other anyway
        conn.execute(text("LOCK TABLE log_config IN SHARE ROW EXCLUSIVE MODE"))


def open_log(conn: Connection, partitions: int, now_ms: int) -> None:
    """Create the log's rows, or check that it was created with the same number of partitions.

    A log has an identity from its first opening on, by which Redis tells it from the logs of other stores.

    Raises SetupError when the number differs: which partition a key belongs to is fixed with it.
    """
    hold_log(conn)
    stored = partition_count(conn)
    if stored is None:
        conn.execute(insert(log_config), {"name": "partitions", "value": str(partitions)})
        bulk_insert(conn, log_watermarks, ("partition", "epoch", "n"), [(p, *START) for p in range(partitions)])
        columns = ("partition", "epoch", "ended_at_n", "reason", "opened_ms")
        bulk_insert(conn, log_epochs, columns, [(p, START.epoch, None, "", now_ms) for p in range(partitions)])
    elif stored != partitions:
        raise SetupError(
            f"this log was created with {stored} partitions and cannot be used with {partitions}: "
            f"set REFOLD_PARTITIONS={stored}, or import it into a new log"
        )
    bulk_insert_new(conn, log_config, ("name", "value"), [("log_id", uuid4().hex)])


def partition_count(conn: Connection) -> int | None:
    """The number of partitions that the log was created with, or None when it was not created yet."""
    value = conn.execute(select(log_config.c.value).where(log_config.c.name == "partitions")).scalar()
    return None if value is None else int(value)


def log_id(conn: Connection) -> str:
    """The identity of the log: 32 random hex digits. Raises SetupError when it was never opened."""
    value = conn.execute(select(log_config.c.value).where(log_config.c.name == "log_id")).scalar()
    if value is None:
        raise SetupError("this store holds no log yet: start `refold up` or a worker on it first")
    return str(value)


def watermark(conn: Connection, partition: int) -> Position:
    """The last archived position of a partition. Raises SetupError when the log has no such partition."""
    row = conn.execute(
        select(log_watermarks.c.epoch, log_watermarks.c.n).where(log_watermarks.c.partition == partition)
    ).first()
    if row is None:
        raise SetupError(f"the log has no partition {partition}: was it created?")
    return Position(*row)


def archive_batch(
    conn: Connection, partition: int, expected: Position, entries: Sequence[Entry], received_ms: int
) -> Position:
    """Archive the entries that follow the watermark ``expected``, and advance it; the new watermark.

    Raises Fenced, with nothing written, when the watermark is another one by now, or the entries do not follow it
    without a gap.
    """
    if not entries:
        return expected
    _check_density(partition, expected, entries)
    new = entries[-1][0]
    _advance(conn, partition, expected, new)
    firsts = _remember_ids(conn, partition, entries)
    bulk_insert(conn, event_log, _LOG_COLUMNS, [_log_row(partition, entry, firsts, received_ms) for entry in entries])
    unknown = [(position, e) for position, e in entries if e.type not in EVENT_TYPES]
    count_unknown(conn, [e for position, e in unknown if firsts[_identity(e)].position == position], received_ms)
    return new


def end_epoch(
    conn: Connection, partition: int, expected: Position, next_epoch: int, reason: str, now_ms: int
) -> Position:
    """End the partition's epoch at its watermark ``expected`` and open ``next_epoch``; the new watermark.

    What stands in the log behind the watermark is void from here on. Raises Fenced as ``archive_batch`` does.
    """
    if next_epoch <= expected.epoch:
        raise ValueError(f"epoch {next_epoch} does not follow epoch {expected.epoch}")
    new = Position(next_epoch, -1)
    _advance(conn, partition, expected, new)
    conn.execute(
        update(log_epochs)
        .where(log_epochs.c.partition == partition, log_epochs.c.epoch == expected.epoch)
        .values(ended_at_n=expected.n)
    )
    conn.execute(
        insert(log_epochs),
        {"partition": partition, "epoch": next_epoch, "ended_at_n": None, "reason": reason, "opened_ms": now_ms},
    )
    return new


def next_of(position: Position, epochs: Mapping[int, int | None]) -> Position:
    """The position that follows ``position``, across ended epochs: the only legal discontinuity.

    ``epochs`` maps each epoch of the partition to the n it ended at, None for the open one. Raises ValueError for a
    position past its epoch's end: it is void.
    """
    epoch, n = position
    while (end := epochs.get(epoch)) is not None and n >= end:
        if n > end:
            raise ValueError(f"position {position} is void: its epoch ended at {end}")
        epoch, n = min((later for later in epochs if later > epoch), default=epoch + 1), -1
    return Position(epoch, n + 1)


def _check_density(partition: int, expected: Position, entries: Sequence[Entry]) -> None:
    epoch, n = expected
    for position, _ in entries:
        n += 1
        if position != (epoch, n):
            raise Fenced(f"partition {partition}: position {position} does not follow {epoch}-{n - 1}")


def _advance(conn: Connection, partition: int, expected: Position, new: Position) -> None:
    advanced = conn.execute(
        update(log_watermarks)
        .where(
            log_watermarks.c.partition == partition,
            log_watermarks.c.epoch == expected.epoch,
            log_watermarks.c.n == expected.n,
        )
        .values(epoch=new.epoch, n=new.n)
    )
    if advanced.rowcount != 1:
        raise Fenced(f"partition {partition}: the watermark is no longer {expected}")


def _identity(event: Event) -> IdKey:
    return (event.id, event.org, event.key)


def _remember_ids(conn: Connection, partition: int, entries: Sequence[Entry]) -> dict[IdKey, First]:
    """Where each identity of the batch stands first; the new ones are recorded."""
    firsts: dict[IdKey, First] = {}
    for position, event in entries:
        firsts.setdefault(_identity(event), First(position, event.digest))
    rows = [(*identity, partition, *first.position, first.digest) for identity, first in firsts.items()]
    if bulk_insert_new(conn, event_ids, _ID_COLUMNS, rows) < len(firsts):
        for id_, org, key, epoch, n, digest in bulk_select(
            conn, event_ids, ("id", "org", "key", "epoch", "n", "digest"), ("id", "org", "key"), list(firsts)
        ):
            firsts[(id_, org, key)] = First(Position(epoch, n), digest)
    return firsts


def _log_row(partition: int, entry: Entry, firsts: Mapping[IdKey, First], received_ms: int) -> tuple[Any, ...]:
    position, e = entry
    first = firsts[(e.id, e.org, e.key)]
    verdict, ref_epoch, ref_n = "effective", None, None
    if first.position != position:
        verdict = "duplicate_of" if first.digest == e.digest else "conflict_with"
        ref_epoch, ref_n = first.position
    return (
        partition, position.epoch, position.n, e.type, verdict, ref_epoch, ref_n, received_ms, e.id, e.source, e.time,
        e.org, e.agent, e.user, e.session, e.task, e.run, e.seq, e.schemaversion, e.causation, e.correlation,
        e.traceparent, e.sanitized, e.key, e.digest, e.data,
    )  # fmt: skip
