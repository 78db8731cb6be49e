"""The composition root: the one place where stores, Redis and everything built on them are put together."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from uuid import uuid4

from sqlalchemy import Connection

import migrations
from events.archive import store
from events.archive.reader import Archive
from events.clock import now_ms
from events.database import Database, Stores
from events.errors import SetupError, Transient, Unreachable
from events.log.client import AnyRedis, connect
from events.log.home import refuse_second
from events.log.identity import claim
from events.publisher import Publisher
from projections.projection import Projection
from projections.queries.confidence import BeliefRules
from projections.queries.settlements import tokens_of_day
from projections.read_models import ReadModels
from services.belief_rules import read_rules
from services.card_templates import projections_of
from services.embedded.redis_server import provide_redis
from services.embedding.choice import Choice
from services.embedding.queries import Embeddings
from services.metrics import MeteredPublisher, Meters
from services.models.client import Models
from services.models.routes import read_routes
from services.reactors.checkpoints import introduce
from services.reactors.registry import REACTORS
from services.settings import NEW_LOG_PARTITIONS, Settings
from services.supervisor import Supervisor


@dataclass(frozen=True)
class Backend:
    """Everything a process of the backend uses, open and ready. ``open`` makes it, ``close`` ends it.

    ``identity`` names this life of the process, in leases and consumer groups. ``supervisor`` runs its services.
    """

    settings: Settings
    identity: str
    stores: Stores
    db: Database
    redis: AnyRedis
    partitions: int
    projections: Mapping[str, Projection]
    archive: Archive
    publisher: Publisher
    read_models: ReadModels
    embeddings: Embeddings
    supervisor: Supervisor
    meters: Meters
    models: Models
    belief_rules: BeliefRules
    _closing: AsyncExitStack

    @classmethod
    async def open(cls, settings: Settings) -> Backend:
        """Open stores and Redis, migrate, create the log where there is none, on a Redis that is its own.

        Raises SetupError in one line.
        """
        projections = projections_of(settings)
        models, rules = _models(settings), read_rules(settings.belief_rules)
        if not settings.redis_url:
            raise SetupError("no Redis is named: set REDIS_URL, or start everything with `refold up`")
        async with AsyncExitStack() as stack:
            await asyncio.to_thread(provide_redis, settings.data, url=settings.redis_url)
            try:
                redis = await connect(settings.redis_url)
            except Transient as error:
                raise Unreachable(str(error)) from error
            stack.push_async_callback(redis.aclose)
            stores = Stores(settings.stores_url)
            db = stores.log()
            stack.push_async_callback(asyncio.to_thread, db.close)
            try:
                partitions = await asyncio.to_thread(_prepare, db, settings.partitions)
            except Transient as error:
                what = " ".join(str(error).split())
                raise Unreachable(f"{what}; correct that, or set REFOLD_DATABASE_URL to another store") from error
            with suppress(Transient):  # not now: whoever reads or writes the log asks again
                await claim(redis, await db.read(store.log_id))
                await refuse_second(redis, db)
            meters = Meters()
            publisher = MeteredPublisher(
                redis, db, partitions, meters=meters,
                timeout_s=settings.publish_timeout_s, max_event_bytes=settings.max_event_bytes,
            )  # fmt: skip
            await publisher.start()
            stack.push_async_callback(publisher.stop)
            read_models = ReadModels(projections.values(), stores, db, stuck_after_s=settings.stuck_s)
            stack.push_async_callback(asyncio.to_thread, read_models.close)
            models.budget.recorded = partial(_tokens_spent, read_models)
            embeddings = Embeddings(embedding_choice(settings), db)
            stack.push_async_callback(embeddings.close)
            supervisor = Supervisor(settings.stop_timeout_s)
            stack.push_async_callback(models.close)
            stack.push_async_callback(supervisor.stop)
            return cls(
                settings, _identity(), stores, db, redis, partitions, projections, Archive(db), publisher, read_models,
                embeddings, supervisor, meters, models, rules, stack.pop_all(),
            )  # fmt: skip

    async def close(self) -> None:
        """Stop the services that still run, then let everything go, the last opened first."""
        await self._closing.aclose()


def _models(settings: Settings) -> Models:
    """The models that have routes, those that the settings name among them."""
    models = Models(read_routes(settings.model_routes, settings.model_url), os.environ)
    named = {
        "REFOLD_SUMMARY_MODEL": settings.summary_model,
        "REFOLD_EXTRACT_MODEL": settings.extract_model,
        "REFOLD_CALIBRATE_MODEL": settings.calibrate_model,
    }
    for variable, model in named.items():
        if model and models.route(model) is None:
            raise SetupError(
                f"{variable} names {model!r}, which has no route: "
                "set REFOLD_MODEL_URL, or add one to the file that REFOLD_MODEL_ROUTES names"
            )
    return models


def _prepare(db: Database, wanted: int) -> int:
    """Migrate, create the log where there is none, introduce new reactors; the log's number of partitions."""
    migrations.migrate(db)

    def work(conn: Connection) -> int:
        store.hold_log(conn)
        partitions = wanted or store.partition_count(conn) or NEW_LOG_PARTITIONS
        store.open_log(conn, partitions, now_ms())
        introduce(conn, REACTORS)
        return partitions

    return db.write_now(work)


def embedding_choice(settings: Settings) -> Choice:
    """The embedding model that the settings name."""
    return Choice(settings.embedding_model, settings.embedding_url, settings.embedding_form)


async def _tokens_spent(read_models: ReadModels, org: str, day: str) -> int:
    """Tokens that an org is recorded to have spent on models on a day. Raises RefoldError."""
    return (await read_models.read("settlements", partial(tokens_of_day, org=org, day=day), None, 0)).value


def process_name(pid: int) -> str:
    """How the identities begin of backends that a process of this machine has opened."""
    return f"{socket.gethostname()}:{pid}:"


def _identity() -> str:
    return f"{process_name(os.getpid())}{uuid4().hex[:8]}"
