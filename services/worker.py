"""``python -m services.worker``: one process with some roles, on any machine that reaches Redis and the database."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial

from events.errors import RefoldError, SetupError, Unreachable
from services.composition import Backend
from services.embedded.data_dir import running_instance
from services.event_loop import run_until_signal
from services.logs import set_up_logging
from services.roles import CONSUMERS, ROLES, metrics, projector, stop_in_order
from services.settings import Settings
from services.upgrades import upgrades

_RETRY_S = 1.0

_log = logging.getLogger("refold.worker")


def run(
    settings: Settings, roles: Sequence[str] = (), projections: Sequence[str] = (), *, with_parent: bool = False
) -> None:
    """Run ``roles`` (default: all but ``api``) until SIGTERM or Ctrl-C; blocks. ``projections``: fold only these.

    Without REDIS_URL it joins the instance that runs on the data folder. ``with_parent``: stop too when standard
    input ends. Raises SetupError in one line.
    """
    set_up_logging(settings.log_level)
    for role in roles:
        if role not in ROLES:
            raise SetupError(f"there is no role {role!r}; there are {', '.join(ROLES)}")
    main = partial(_work, joined(settings), roles or CONSUMERS, projections, with_parent)
    run_until_signal(main, uvloop=settings.uvloop)


def joined(settings: Settings) -> Settings:
    """Settings that name a Redis: REDIS_URL's, else that of the instance on the data folder. Raises SetupError."""
    if settings.redis_url:
        return settings
    instance = running_instance(settings.data)
    if instance is None or not instance.redis_url:
        raise SetupError(
            f"set REDIS_URL, or start `refold up` on {settings.data} first: only that brings a Redis along"
        )
    return replace(settings, redis_url=instance.redis_url)


async def _work(
    settings: Settings, roles: Sequence[str], projections: Sequence[str], with_parent: bool, stopping: asyncio.Event
) -> None:
    async with AsyncExitStack() as stack:
        if with_parent:
            asyncio.get_running_loop().add_reader(sys.stdin.fileno(), partial(_parent_gone, stopping))
        backend = await _open(settings, stopping)
        if backend is None:
            return
        stack.push_async_callback(backend.close)
        services = {
            role: projector(backend, projections) if role == "projector" else build(backend)
            for role, build in ROLES.items()
            if role in roles
        }
        if settings.metrics_port and "api" not in services:
            services["metrics"] = metrics(backend)
        for role, service in services.items():
            backend.supervisor.start(role, service)
        if "projector" in roles and settings.worker_rebuilds:
            chosen = [one for name, one in backend.projections.items() if not projections or name in projections]
            backend.supervisor.start("upgrades", upgrades(backend, chosen))
        stack.push_async_callback(stop_in_order, backend)
        _log.info("%s at work: %s", backend.identity, ", ".join(services))
        await stopping.wait()


async def _open(settings: Settings, stopping: asyncio.Event) -> Backend | None:
    """The backend, once Redis and the database answer; None when stopped before. Raises SetupError.

    A worker is started beside them, or again after a crash that took them along: then they answer a little later.
    """
    deadline = time.monotonic() + settings.start_wait_s
    while not stopping.is_set():
        try:
            return await Backend.open(settings)
        except Unreachable as error:
            if time.monotonic() + _RETRY_S > deadline:
                raise
            _log.warning("%s (tried again for %.0f s)", error, deadline - time.monotonic())
        with suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), _RETRY_S)
    return None


def _parent_gone(stopping: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        stopping.set()


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m services.worker", description="Run roles of a Refold backend.")
    parser.add_argument("--roles", type=_names, default=[], help=f"of {','.join(ROLES)}; default: all but api")
    parser.add_argument("--projections", type=_names, default=[], help="fold only these; default: all")
    parser.add_argument("--with-parent", action="store_true", help="stop when standard input ends")
    given = parser.parse_args()
    try:
        run(Settings.read(os.environ), given.roles, given.projections, with_parent=given.with_parent)
    except RefoldError as error:
        sys.exit(f"refold: {error}")


if __name__ == "__main__":
    main()
