"""``refold up``: everything on one machine, in one process and on one event loop, until Ctrl-C or SIGTERM.

What it starts, it stops in the reverse order; what a kill -9 leaves behind, the next ``up`` finds and uses.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import socket
import sys
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial

from projections import generations
from projections.engine.birth import ensure_first_generation
from projections.engine.ownership import forsake
from services.api.app import create_app
from services.api.jobs import Jobs
from services.children import worker_process
from services.composition import Backend, process_name
from services.embedded.data_dir import DataDir, Instance
from services.embedded.keeper import RedisKeeper
from services.event_loop import run_until_signal
from services.http import HttpServer
from services.logs import set_up_logging
from services.roles import archiver, inbox, indexer, projector, reactors, stop_in_order
from services.settings import Settings

_log = logging.getLogger("refold.up")


def run(settings: Settings) -> None:
    """Run until a signal; blocks. Prints ``ready <url>`` on stdout once it serves. Raises SetupError in one line."""
    set_up_logging(settings.log_level)
    folder = DataDir(settings.data.resolve())
    try:
        folder.hold()
        run_until_signal(partial(_serve, replace(settings, data=folder.path), folder), uvloop=settings.uvloop)
    finally:
        folder.release()


async def _serve(settings: Settings, folder: DataDir, stopping: asyncio.Event) -> None:
    async with AsyncExitStack() as stack:
        http = HttpServer(settings.http_host, settings.http_port)
        stack.callback(http.close)
        former = folder.instance()
        folder.announce(Instance(os.getpid()))
        redis = await RedisKeeper.start(folder.path / "redis", settings.redis_url)
        stack.push_async_callback(redis.stop)
        folder.announce(Instance(os.getpid(), "", redis.url))
        settings = replace(settings, redis_url=redis.url)
        backend = await Backend.open(settings)
        stack.push_async_callback(backend.close)
        if former is not None:  # killed: it held this folder, so it is gone, and none has to wait for its leases
            await backend.db.write(partial(forsake, dead=process_name(former.pid), own=backend.identity))
        await asyncio.to_thread(_first_generations, backend)
        _start_services(backend, redis)
        stack.push_async_callback(stop_in_order, backend)
        app = create_app(backend)
        await http.start(app)
        stack.push_async_callback(http.stop)
        warming = asyncio.create_task(backend.embeddings.warm(), name="warm up")
        stack.callback(warming.cancel)
        await _refold_stale(backend, app.state.jobs)
        folder.announce(Instance(os.getpid(), http.url, redis.url))
        sys.stdout.write(f"ready {http.url}\n")
        sys.stdout.flush()
        await http.wait(stopping)
        _log.info("stopping")


def _first_generations(backend: Backend) -> None:
    """Readers find every read model from the first request on."""
    for projection in backend.projections.values():
        ensure_first_generation(projection, backend.stores, backend.db, backend.identity, backend.settings.lease_s)


def _start_services(backend: Backend, redis: RedisKeeper) -> None:
    start, settings = backend.supervisor.start, backend.settings
    start("redis", redis.run)
    start("archiver", archiver(backend))
    start("projector", projector(backend))
    start("reactors", reactors(backend))
    start("indexer", indexer(backend))
    start("inbox", inbox(backend, _consumer(settings)))
    for number in range(1, settings.workers + 1):
        start(f"worker {number}", worker_process(settings, number))


async def _refold_stale(backend: Backend, jobs: Jobs) -> None:
    """Rebuild, in a process of its own, what other code made; it is read as it is until then."""
    stale = []
    for name, projection in backend.projections.items():
        generation = await backend.db.read(partial(generations.serving, projection=projection))
        if generation is not None and not generation.matches(projection):
            stale.append(name)
    begin = backend.settings.rebuild_stale
    for name in stale:
        told = "it is rebuilt" if begin else f"look at `refold rebuild {name} --dry-run`, rebuild it"
        _log.warning("%s was made by other code: %s", name, told)
    if stale and begin:
        jobs.start("rebuild", stale)


def _consumer(settings: Settings) -> str:
    """The inbox consumer of this data folder: its next life takes up at once what this one leaves behind."""
    where = hashlib.blake2b(str(settings.data).encode(), digest_size=4).hexdigest()
    return f"{socket.gethostname()}:{where}"
