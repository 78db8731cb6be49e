"""The event loop of a process: uvloop where it is installed, with SIGTERM and Ctrl-C as requests to stop."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import signal
from collections.abc import Callable, Coroutine
from typing import Any


def run_until_signal(main: Callable[[asyncio.Event], Coroutine[Any, Any, None]], *, uvloop: bool) -> None:
    """Run ``main`` with an event that the first SIGTERM or Ctrl-C sets; a second one ends the process at once.

    What was imported until now is for good: the garbage collector does not look through it again.
    """

    async def run() -> None:
        stopping, loop = asyncio.Event(), asyncio.get_running_loop()

        def ask(signum: int) -> None:
            stopping.set()
            loop.remove_signal_handler(signum)

        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, ask, signum)
        await main(stopping)

    gc.freeze()
    gc.enable()
    faulthandler.enable()  # of a crash in a C library there is no other trace
    with asyncio.Runner(loop_factory=_factory() if uvloop else None) as runner:
        runner.run(run())


def _factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
