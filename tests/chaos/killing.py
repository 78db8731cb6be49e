"""Kills at random moments while a workload is published, spread over the whole of it."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Sequence

from tests.chaos.cluster import LEASE_S, Cluster
from tests.chaos.workload import Run

RIPE_S = 1.5
"""Age of a process before it is killed again: most have begun to work by then, some still start."""
DELAY_S = 0.3
"""A kill comes so long, at most, after the publishing beside it began."""


async def publish_under_fire(cluster: Cluster, runs: Sequence[Run], victims: Sequence[str], rng: random.Random) -> None:
    """Publish all runs, in as many parts as there are ``victims``; during each part one of them is killed."""
    for number, victim in enumerate(victims):
        part = runs[number * len(runs) // len(victims) : (number + 1) * len(runs) // len(victims)]
        await ripen(cluster, victim)
        async with asyncio.TaskGroup() as group:
            group.create_task(kill(cluster, victim, rng.uniform(0, DELAY_S)))
            group.create_task(publish(cluster, part))


async def publish(cluster: Cluster, runs: Sequence[Run]) -> None:
    """Publish runs one after another."""
    for run in runs:
        await cluster.publish(run)


async def publish_while_frozen(
    cluster: Cluster, runs: Sequence[Run], names: Sequence[str], freezes: int, rng: random.Random
) -> None:
    """Publish all runs, in as many parts as there are ``freezes``; during each part one of ``names`` in turn is frozen.

    It sleeps past its lease, so that others take over, and is woken.
    """
    for number in range(freezes):
        async with asyncio.TaskGroup() as group:
            group.create_task(freeze(cluster, names[number % len(names)], rng.uniform(0, DELAY_S)))
            group.create_task(publish(cluster, runs[number::freezes]))


async def freeze(cluster: Cluster, name: str, delay_s: float) -> None:
    """SIGSTOP of a role, after a delay, and SIGCONT long after its lease has ended."""
    await asyncio.sleep(delay_s)
    cluster.roles[name].send(signal.SIGSTOP)
    await asyncio.sleep(2.5 * LEASE_S)
    cluster.roles[name].send(signal.SIGCONT)


async def ripen(cluster: Cluster, victim: str) -> None:
    """Wait until a role has lived long enough to be at work."""
    if victim in cluster.roles:
        await asyncio.sleep(max(0.0, RIPE_S - cluster.roles[victim].age_s))


async def kill(cluster: Cluster, victim: str, delay_s: float) -> None:
    """``kill -9`` of Redis or of a role, after a delay; it is started again at once."""
    await asyncio.sleep(delay_s)
    await asyncio.to_thread(cluster.redis.restart if victim == "redis" else cluster.roles[victim].kill)
