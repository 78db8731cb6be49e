"""PostgreSQL dies under load and in a rebuild, with notice and without, and comes back: all goes on by itself."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from io import BytesIO
from pathlib import Path

import pytest

from events.database import Stores
from projections import generations
from projections.engine import checkpoints
from services.api import telling
from services.api.refolding import Options, Refolding
from tests.chaos.cluster import running_cluster
from tests.chaos.commit_proxy import CommitProxy, Fate, commit_proxy
from tests.chaos.killing import publish
from tests.chaos.projector_world import check_toy, first_events
from tests.chaos.test_commit_answers_lost_in_a_rebuild import SWAP, active_of, fold_first
from tests.chaos.workload import made_up_runs
from tests.contracts.engine_lab import TOY, Lab
from tests.servers import PostgresServer, own_postgres

RESTARTS = 3
AWAY_S = 0.5


@pytest.fixture
def mortal() -> Iterator[PostgresServer]:
    """A PostgreSQL of its own, to be killed."""
    with own_postgres() as server:
        yield server


@pytest.mark.chaos
@pytest.mark.timeout(400)
def test_postgres_restarted_under_load(tmp_path: Path, mortal: PostgresServer) -> None:
    """Invariants 1, 2 and 6: while everything publishes, archives, folds, reacts and rebuilds."""
    rng = random.Random(3)
    runs = made_up_runs(12 * RESTARTS, rng)

    def restart(number: int) -> None:
        time.sleep(rng.uniform(0, 0.5))
        mortal.kill() if number % 2 else mortal.stop()
        time.sleep(AWAY_S)
        mortal.start()

    async def scenario() -> None:
        async with running_cluster(tmp_path, database_url=mortal.new_database()) as cluster:
            environ = cluster.roles["archiver"].environ
            for number in range(RESTARTS):
                rebuilding = _rebuild_job(environ, ("task_state", "settlements", "beliefs")[number % 3])
                async with asyncio.TaskGroup() as group:
                    group.create_task(asyncio.to_thread(restart, number))
                    group.create_task(publish(cluster, runs[number::RESTARTS]))
                output, _ = await asyncio.to_thread(rebuilding.communicate, timeout=120)
                assert rebuilding.returncode == 0, output
                assert b'"result"' in output, output
            await cluster.check([event for run in runs for event in run])

    asyncio.run(scenario())


@pytest.mark.chaos
@pytest.mark.timeout(200)
@pytest.mark.parametrize("loss", ["lose the commit", "lose the answer"])
def test_postgres_killed_in_the_swap(mortal: PostgresServer, loss: Fate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Invariant 6: the server dies with the commit that makes the new generation active, before it or after it."""
    told = BytesIO()
    monkeypatch.setattr(telling, "channel", lambda: told)  # the real one takes the standard output of this process
    with commit_proxy(mortal.port) as proxy:
        lab = Lab(Stores(proxy.url(mortal.new_database())))
        lab.archive(*first_events())
        fold_first(lab)
        restarted = _kill_at_the_swap(proxy, mortal, loss)
        Refolding(lab.stores, lab.log, 1.0, lambda name: False, Options(processes=1)).run([TOY])
        assert b'"result"' in told.getvalue()
        restarted.wait(60)
        assert proxy.lost == [loss]
        assert active_of(lab).number == 2
        assert _sealed(lab) == [True, False]
        check_toy(lab)


def _rebuild_job(environ: dict[str, str], projection: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "services.api.job", "rebuild", projection],
        env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def _kill_at_the_swap(proxy: CommitProxy, server: PostgresServer, loss: Fate) -> threading.Event:
    """Lose that commit, and kill the server; the event tells that it is back."""
    restarted = threading.Event()

    def restart() -> None:
        time.sleep(0.1)
        server.kill()
        time.sleep(AWAY_S)
        server.start()
        restarted.set()

    def fate(number: int, sent: bytes) -> Fate:
        if proxy.lost or SWAP not in sent:
            return "pass"
        threading.Thread(target=restart).start()
        return loss

    proxy.begin(fate)
    return restarted


def _sealed(lab: Lab) -> list[bool]:
    """Of each generation, the oldest first."""
    found = []
    for generation in reversed(lab.log.read_now(partial(generations.list_all, projection=TOY.name))):
        db = lab.stores.generation(generation.name)
        found.append(db.read_now(checkpoints.is_sealed))
        db.close()
    return found
