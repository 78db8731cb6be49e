"""Worker processes of ``refold up``: started, watched, and gone when their parent is gone, even by kill -9."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress

from services.settings import Settings
from services.supervisor import Ended, Run

STOP_S = 10.0


def worker_process(settings: Settings, number: int) -> Run:
    """One process that folds projections, the ``number``-th from 1 on.

    It sees its parent's death as the end of its standard input; Ctrl-C in the terminal reaches the parent alone.
    """

    own_port = settings.metrics_port + number if settings.metrics_port else 0
    environ = {**os.environ, **settings.environ(), "REFOLD_METRICS_PORT": str(own_port)}

    async def run(stopping: asyncio.Event) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "services.worker", "--roles", "projector", "--with-parent",
            stdin=asyncio.subprocess.PIPE, start_new_session=True, env=environ,
        )  # fmt: skip
        ended = asyncio.create_task(process.wait())
        asked = asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait({ended, asked}, return_when=asyncio.FIRST_COMPLETED)
            if not stopping.is_set():
                raise Ended(f"worker process {process.pid} ended with code {process.returncode}")
        finally:
            asked.cancel()
            await _end(process)

    return run


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_S)
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
