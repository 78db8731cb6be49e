"""The roles a process can take, and the service behind each: what ``refold up`` and ``refold worker`` start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import partial

from events.archive.archiver import Archiver
from events.errors import SetupError
from projections.engine.projector import Projector
from services.apps.inbox import Inbox
from services.apps.projector import run_projector
from services.apps.reactors import DoorOutlet, run_reactors
from services.calibrating.calibrator import Calibrator
from services.calibrating.opening import calibration_of
from services.composition import Backend, embedding_choice
from services.embedding.process import ModelProcess
from services.erasing.eraser import Eraser
from services.http import HttpServer, serve
from services.reactors.loop import ReactorLoop
from services.reactors.reactor import Outside
from services.reactors.registry import REACTORS
from services.reactors.watchdog import Watchdog
from services.schedule import Schedule
from services.supervisor import Run, Supervisor


def archiver(backend: Backend) -> Run:
    """Copies the log into the archive. One is at work at a time; others stand by."""
    settings = backend.settings

    async def run(stopping: asyncio.Event) -> None:
        await Archiver(
            backend.redis, backend.db, backend.partitions,
            batch=settings.archive_batch, hot_window=settings.hot_window,
        ).run(stopping)  # fmt: skip

    return run


def inbox(backend: Backend, consumer: str = "") -> Run:
    """Takes the inbox's entries through the door. ``consumer`` names one that outlives this process."""
    settings = backend.settings
    return Inbox(
        backend.redis, settings.redis_url, backend.publisher, consumer or backend.identity,
        batch=settings.inbox_batch, idle_s=settings.inbox_idle_s,
    ).run  # fmt: skip


def projector(backend: Backend, names: Collection[str] = ()) -> Run:
    """Folds projections (default: all). Raises SetupError for an unknown one."""
    settings, known = backend.settings, backend.projections
    unknown = set(names) - set(known)
    if unknown:
        raise SetupError(f"there is no projection {min(unknown)!r}; there are {', '.join(sorted(known))}")
    chosen = [projection for name, projection in known.items() if not names or name in names]

    def new() -> Projector:
        return Projector(
            chosen, backend.stores, backend.db, backend.identity,
            batch=settings.fold_batch, lease_ttl_s=settings.lease_s, poll_s=min(1.0, settings.lease_s / 4),
            observer=backend.meters,
        )  # fmt: skip

    return partial(run_projector, new, backend.redis, settings.redis_url)


def reactors(backend: Backend) -> Run:
    """Runs the reactors, and the watchdog, the eraser and the calibrator beside them."""
    settings, choice = backend.settings, embedding_choice(backend.settings)
    embedding = None if choice.off else ModelProcess(choice, nice=5)
    outside = Outside(
        backend.models,
        settle_deadline_s=settings.settle_deadline_s,
        settle_patience_s=settings.settle_patience_s,
        summary_model=settings.summary_model,
        extract_model=settings.extract_model,
        embed=None if embedding is None else embedding.embed,
        max_event_bytes=settings.max_event_bytes,
    )

    async def run(stopping: asyncio.Event) -> None:
        loop = ReactorLoop(
            backend.db, DoorOutlet(backend.publisher, backend.db), REACTORS, backend.partitions,
            f"{backend.identity}/reactors", settings.lease_s, settings.reactor_concurrency, outside,
        )  # fmt: skip
        watchdog = Watchdog(
            backend.db, backend.redis, DoorOutlet(backend.publisher, backend.db), f"{backend.identity}/watchdog",
            settings.watchdog_s, settings.lease_s,
        )  # fmt: skip
        beside = Supervisor()
        beside.start("watchdog", watchdog.run)
        beside.start("eraser", Eraser(backend, f"{backend.identity}/eraser", settings.lease_s).run)
        if (schedule := Schedule.parse(settings.calibrate)) is not None:
            calibrator = Calibrator(
                backend.db, calibration_of(backend), schedule, f"{backend.identity}/calibrator", settings.lease_s
            )
            beside.start("calibrator", calibrator.run)
        try:
            await run_reactors(loop, backend.redis, settings.redis_url, stopping)
        finally:
            await beside.stop()
            if embedding is not None:
                await embedding.close()

    return run


def indexer(backend: Backend) -> Run:
    """Has vectors made of what can be searched. One is at work at a time; others stand by."""
    # here, since numpy takes its time
    from services.indexer.indexer import Indexer

    settings = backend.settings
    return Indexer(
        embedding_choice(settings), backend.read_models, backend.db, f"{backend.identity}/indexer",
        lease_s=settings.lease_s,
    ).run  # fmt: skip


def api(backend: Backend) -> Run:
    """Serves HTTP. Raises SetupError at once for a port that is taken."""
    # here, since it takes longer to import than all else: other roles start, and take over, in half the time without
    from services.api.app import create_app

    host, port = backend.settings.http_host, backend.settings.http_port
    HttpServer(host, port).close()

    async def run(stopping: asyncio.Event) -> None:
        warming = asyncio.create_task(backend.embeddings.warm(), name="warm up")
        try:
            await serve(create_app(backend), HttpServer(host, port), stopping)
        finally:
            warming.cancel()

    return run


def metrics(backend: Backend) -> Run:
    """Serves the metrics of this process. Raises SetupError at once for a port that is taken."""
    from services.api.metrics import metrics_app

    host, port = backend.settings.http_host, backend.settings.metrics_port
    HttpServer(host, port).close()

    async def run(stopping: asyncio.Event) -> None:
        await serve(metrics_app(backend.meters), HttpServer(host, port), stopping)

    return run


ROLES: dict[str, Callable[[Backend], Run]] = {
    "archiver": archiver,
    "inbox": inbox,
    "projector": projector,
    "reactors": reactors,
    "indexer": indexer,
    "api": api,
}
"""Every role, in the order in which they start."""

CONSUMERS = ("archiver", "inbox", "projector", "reactors", "indexer")
"""The roles that may run any number of times on one machine."""


async def stop_in_order(backend: Backend) -> None:
    """Stop what needs the archive to finish its work before the archiver."""
    await backend.supervisor.stop(["api"])
    await backend.supervisor.stop(["inbox", "reactors"])
    await backend.supervisor.stop()
