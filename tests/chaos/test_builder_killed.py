"""Whoever rebuilds is killed or frozen, alone, with its processes, or with everything else: others go on with it."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import psutil
import pytest

from projections import generations
from projections.generations import Generation
from tests.chaos.cluster import LEASE_S, Cluster, running_cluster
from tests.chaos.killing import publish
from tests.chaos.workload import made_up_runs
from tests.soak import ALL, soak

NAME = "task_state"
RUNS = 24
EVENTS_PER_S = 300
ROLES = {"archiver": "archiver", "projector-a": "projector", "projector-b": "projector"}

_JOB = """
import sys
import projections.rebuilding.rebuild_together as together
from services.api.job import main

together.WORTH_PROCESSES = 0
sys.exit(main(["rebuild", "{name}", "--check", "--processes", "2", *sys.argv[1:]]))
"""


Trouble = Callable[["Cluster", "Builder"], Awaitable[None]]


class Builder:
    """A rebuild in a process of its own, so slow that there is time to break it."""

    def __init__(self, cluster: Cluster, *, slowly: bool) -> None:
        rate = ["--rate", str(EVENTS_PER_S)] if slowly else []
        self.process = subprocess.Popen(
            [sys.executable, "-c", _JOB.format(name=NAME), *rate],
            env=cluster.roles["archiver"].environ, cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def kill_with_children(self) -> None:
        for process in [*psutil.Process(self.process.pid).children(), self.process]:
            process.kill()

    async def ends(self) -> None:
        output, _ = await asyncio.to_thread(self.process.communicate, timeout=120)
        assert self.process.returncode in (0, -signal.SIGKILL), output


def _killed(phase: str) -> Trouble:
    async def trouble(cluster: Cluster, builder: Builder) -> None:
        await cluster.until(partial(_is_in, cluster, phase), f"a rebuild that is {phase}")
        builder.process.kill()
        await _built_by_another(cluster)

    return trouble


async def _frozen(cluster: Cluster, builder: Builder) -> None:
    await cluster.until(partial(_is_in, cluster, "folding"), "a rebuild that is folding")
    os.kill(builder.process.pid, signal.SIGSTOP)
    await asyncio.sleep(2 * LEASE_S)
    await _built_by_another(cluster)
    os.kill(builder.process.pid, signal.SIGCONT)


async def _power_cut(cluster: Cluster, builder: Builder) -> None:
    await cluster.until(partial(_is_in, cluster, "folding"), "a rebuild that is folding")
    cluster.redis.kill()
    builder.kill_with_children()
    for role in cluster.roles.values():
        role.kill()
    await asyncio.to_thread(cluster.redis.restart)
    await _built_by_another(cluster)


async def _built_by_another(cluster: Cluster) -> None:
    other = Builder(cluster, slowly=False)
    output, _ = await asyncio.to_thread(other.process.communicate, timeout=120)
    assert other.process.returncode == 0, output
    assert b'"result"' in output, output


async def _generations(cluster: Cluster) -> list[Generation]:
    """Of the read model, the newest first."""
    return await cluster.backend.db.read(partial(generations.list_all, projection=NAME))


async def _is_in(cluster: Cluster, phase: str) -> bool:
    newest = (await _generations(cluster))[0]
    progress = newest.progress
    return newest.state == "building" and progress.get("phase") == phase and progress.get("done", 0) > 0


async def _is_live(cluster: Cluster) -> bool:
    status = await cluster.backend.read_models.status()
    return all(each.state == "live" and each.lag_events == 0 for each in status)


TROUBLES = (_killed("folding"), _killed("verifying"), _power_cut, _frozen)


@pytest.mark.chaos
@pytest.mark.timeout(400)
@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgresql", marks=soak)])
def test_builder_killed(tmp_path: Path, store: str, request: pytest.FixtureRequest) -> None:
    """C2, invariants 2 and 6: killed while it folds in processes or verifies, frozen past its lease, a power cut."""
    database_url = request.getfixturevalue("postgres").new_database() if store == "postgresql" else ""
    troubles = TROUBLES if ALL else TROUBLES[store == "postgresql" :: 2]
    runs = made_up_runs(RUNS, random.Random(23))
    early, late = runs[: RUNS // 2], runs[RUNS // 2 :]

    async def scenario() -> None:
        async with running_cluster(tmp_path, database_url=database_url, roles=ROLES) as cluster:
            await publish(cluster, early)
            await cluster.until(lambda: _is_live(cluster), "the first generation")
            number = (await _generations(cluster))[0].number
            for index, trouble in enumerate(troubles):
                builder = Builder(cluster, slowly=True)
                async with asyncio.TaskGroup() as group:
                    group.create_task(trouble(cluster, builder))
                    group.create_task(publish(cluster, late[index :: len(troubles)]))
                await builder.ends()
                active = next(g for g in await _generations(cluster) if g.state == "active")
                assert active.number == number + 1, "another builder did not go on where the first one was"
                number = active.number
            assert cluster.acknowledged == {event["id"] for run in runs for event in run}
            await cluster.until(lambda: _is_live(cluster), "projections without lag")
            await cluster.verified()

    asyncio.run(scenario())
