"""The indexer is killed in the middle of its work, again and again: it goes on where it was, and nothing is lost."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from sqlalchemy import select

from projections.cards.tables import CARDS
from projections.retrieval import models, vectors
from projections.retrieval.text import content_hash, passages
from services.embedding.choice import Choice
from services.embedding.models import load
from services.indexer.status import read_stored, read_waiting
from tests.chaos.cluster import Cluster, running_cluster
from tests.soak import ALL

ROLES = {"archiver": "archiver", "projector": "projector", "indexer": "indexer"}
MODEL = "use-multilingual"
CARDS_MADE = 160
KILLS_AT = (1, 60, 120) if ALL else (60,)
"""How many vectors there are when it is killed."""
PATIENCE_S = 120.0
TOWNS = ("Oslo", "Turku", "Narvik", "Moss", "Bergen", "Lund", "Aarhus", "Visby")


def wish(number: int) -> dict[str, Any]:
    text = f"Please book flight HAT{number:03} from {TOWNS[number % len(TOWNS)]} at 10:{number % 60:02}"
    return {
        "id": f"e{number:06}", "type": "message.added", "run": f"r{number}", "time": "2026-03-01T10:00:00Z",
        "data": {"role": "user", "content": text},
    }  # fmt: skip


async def written(cluster: Cluster) -> int:
    model = await cluster.backend.db.read(partial(models.get, name=MODEL))
    return 0 if model is None else model.written


async def is_done(cluster: Cluster) -> bool:
    stored = await cluster.backend.db.read(read_stored)
    return await read_waiting(cluster.backend.read_models, stored) == [0]


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_indexer_killed(tmp_path: Path) -> None:
    raws = [wish(number) for number in range(CARDS_MADE)]

    async def scenario() -> None:
        async with running_cluster(tmp_path, roles=ROLES) as cluster, asyncio.timeout(PATIENCE_S):
            await cluster.publish(raws)
            for count in KILLS_AT:
                while await written(cluster) < count:  # noqa: ASYNC110  a store tells nobody
                    await asyncio.sleep(0.01)
                process = cluster.roles["indexer"].process
                assert process is not None
                embedding = psutil.Process(process.pid).children()
                cluster.roles["indexer"].kill()
                psutil.wait_procs(embedding, timeout=60)
                assert not any(child.is_running() for child in embedding), "a model was left behind"
            while not await is_done(cluster):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            await check(cluster)

    asyncio.run(scenario())


async def check(cluster: Cluster) -> None:
    """Each passage has the vector that the model gives it, and nothing else has one."""
    columns = (CARDS.c.tool, CARDS.c.summary, CARDS.c.model_summary, CARDS.c.facts)
    read = await cluster.backend.read_models.read(
        "memory_cards", lambda conn: conn.execute(select(*columns)).mappings().all()
    )
    assert len(read.value) == CARDS_MADE
    texts = sorted({text for row in read.value for text in passages(row)})
    hashes = [content_hash(text) for text in texts]
    found, rows = await cluster.backend.db.read(partial(vectors.read, org="default", model=MODEL, hashes=hashes))
    assert found == hashes
    assert np.allclose(rows, load(Choice(form="light")).embed(texts), atol=1e-5)
    assert await cluster.backend.db.read(partial(vectors.count, model=MODEL)) == len(texts)
