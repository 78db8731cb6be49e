"""What an erasure leaves to be done: where its words may still be, and putting an end to what nobody will fold again.

===================  ===============================================================================================
place                gone when
===================  ===============================================================================================
archive              ``scope.erased`` is archived in its partition
Redis                the stream begins with the erasure, or behind it
a read model         its checkpoints are behind the erasure: its owners have made the keys anew
an old generation    it is dropped: nobody folds it, and going back to it would bring the words back
files                SQLite's write-ahead logs are emptied, and Redis rewrites its append-only file, where they can
refused events       those that may hold the subject's name, or a run's, are deleted; of an organisation, all
vectors              those of text that stands in no card any more are deleted
===================  ===============================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from redis.asyncio import Redis
from redis.exceptions import ResponseError
from sqlalchemy import Connection

from events.archive.erasing import Erasure
from events.archive.refusals import drop_refusals
from events.archive.subjects import Selection
from events.database import Database, Stores, overwriting
from events.event import START, Position
from events.log.client import AnyRedis, Cluster, ask
from events.log.layout import keys_of
from events.log.redis_errors import redis_errors
from projections import generations
from projections.engine import checkpoints, ownership
from projections.generations import Generation
from projections.read_models import ReadModels
from projections.rebuilding.rebuild import drop
from projections.rebuilding.scratch import drop_leftovers
from projections.retrieval import models, vectors

PAGE = 500
_KEPT = ("active", "building")
"""States of generations that are folded on, or will be."""


async def still_in_redis(redis: AnyRedis, erasure: Erasure) -> list[int]:
    """The partitions whose stream has entries before the erasure."""
    return [p for p, position in erasure.partitions.items() if await _first(redis, p) < position]


async def _first(redis: AnyRedis, partition: int) -> Position:
    key = keys_of(partition).log

    async def look(node: Redis) -> Position:
        entries = await node.xrange(key, count=1)
        return Position.parse(entries[0][0] or b"") if entries else _NOTHING

    return await ask(redis, key, look)


_NOTHING = Position(1 << 62, 0)


def behind(stores: Stores, log: Database, erasure: Erasure) -> list[Generation]:
    """The generations that have not come to the erasure in every partition."""
    found = [one for one in log.read_now(generations.list_all) if one.state != "dropped"]
    return [one for one in found if not _has_passed(_vector(stores, one), erasure)]


def _vector(stores: Stores, generation: Generation) -> Mapping[int, Position]:
    """The checkpoints of a generation; none where it has no tables, or none yet: then it holds nothing either."""
    if generation.name not in stores.find_generations(generation.name):
        return {}
    db = stores.generation(generation.name)
    try:
        return db.read_now(checkpoints.read_vector)
    finally:
        db.close()


def _has_passed(vector: Mapping[int, Position], erasure: Erasure) -> bool:
    return not vector or all(vector.get(p, START) >= position for p, position in erasure.partitions.items())


def drop_old(stores: Stores, log: Database, erasure: Erasure) -> None:
    """Drop the generations that have the words and that nobody folds on; also what dead jobs left. Blocking."""
    drop_leftovers(stores, log)
    for one in behind(stores, log, erasure):
        if one.state == "active" or (one.state == "building" and log.read_now(partial(_is_being_built, one=one))):
            continue
        if one.state == "building":
            log.write_now(partial(generations.set_state, generation=one, state="cancelled"))
        drop(one, stores, log)


def _is_being_built(conn: Connection, one: Generation) -> bool:
    return ownership.is_held(conn, ownership.rebuild_lease(one.projection))


def forget_refused(conn: Connection, erasure: Erasure) -> None:
    """Delete the refused events that name the subject, a run of it or their task; of an organisation, all."""
    subject = erasure.subject
    runs = {name for pair in Selection(conn, subject).runs for name in pair if name}
    with overwriting(conn):
        drop_refusals(conn, subject.org, None if subject.level == "org" else {subject.name, *runs})


async def forget_vectors(read_models: ReadModels, db: Database, org: str) -> None:
    """Delete the vectors of text that stands in no card of an org.

    One that was made in this moment may go with them: the indexer's sweep, which follows every erasure, makes it again.
    """
    if not await db.read(models.list_all):
        return
    from services.indexer import passages  # here, since numpy takes its time

    known: set[str] = set()
    after: tuple[str, str] | None = ("", "")
    while after is not None:
        work = partial(passages.of_org, org=org, after=after, limit=PAGE)
        page, after = (await read_models.read("memory_cards", work)).value
        known |= page.known.get(org, set())

    def forget(conn: Connection) -> None:
        for model in models.list_all(conn):
            gone = vectors.hashes_of(conn, org, model.name) - known
            with overwriting(conn):
                vectors.drop(conn, org, model.name, gone)

    await db.write(forget)


def empty_journals(stores: Stores, log: Database) -> None:
    """Empty the write-ahead logs of SQLite stores, which hold former versions of what was overwritten. Blocking.

    One that others are at just now is emptied by SQLite itself, in time.
    """
    names = [one.name for one in log.read_now(generations.list_all) if one.state == "active"]
    for db in (stores.log(), *(stores.generation(name) for name in names)):
        try:
            db.empty_journal()
        finally:
            db.close()


async def rewrite_aof(redis: AnyRedis) -> None:
    """Have Redis rewrite its append-only file: until then it holds what was trimmed. Not where the server may not.

    Raises Transient.
    """
    with redis_errors():
        for node in await redis.masters() if isinstance(redis, Cluster) else [redis]:
            with suppress(ResponseError):  # a rewrite is going on, or a managed server does it by itself
                await node.bgrewriteaof()
