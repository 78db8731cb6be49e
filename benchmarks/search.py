"""How long a search waits: ``POST /v1/cards/search`` over HTTP with 100,000 cards in 100 scopes, ``refold up`` as is.

A scope is a user with 1,000 cards, messages of 12 to 40 words with an order number each. They are archived directly and
folded by an instance; vectors of length 1 are written for them, random ones, since what they say makes no difference
to how long it takes to compare them. Then an instance with the default embedding model is asked, one search after
another, for new queries in random scopes: each is embedded, and compared with every card of its scope. Told are the
first search of a scope (its cards are read from the store), searches after it, those of the whole organisation (all
100,000 cards at once), and the memory of the process that answers. The floor is an answer of ``/healthz``.
``--database URL`` measures on an empty PostgreSQL database instead of SQLite; ``--data DIR`` keeps what was made, and
uses it the next time. Run: ``python -m benchmarks.search``.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
from sqlalchemy import Connection, select

from benchmarks.latency import client_of, instance
from benchmarks.resume import caught_up, measure, percentile
from benchmarks.workload import fill_archive
from events.database import Stores
from events.door import admit
from events.event import Event
from migrations import migrate
from projections import generations
from projections.cards.tables import CARDS
from projections.retrieval import models, vectors
from projections.retrieval.text import content_hash, passages
from services.embedding.choice import Choice

TARGET_P50_MS, TARGET_P99_MS = 30.0, 150.0
PARTITIONS = 8
SCOPES = 100
TASKS_A_SCOPE = 20
DIMENSION = 512
_BEGINNING = datetime(2026, 3, 1, 10, 0, 0, tzinfo=UTC)
_SYLLABLES = ("ba", "ri", "to", "ne", "ku", "lo", "sha", "mi", "ver", "gan", "tel", "do")


def vocabulary(dice: random.Random) -> list[str]:
    """5,000 words that nobody knows."""
    return ["".join(dice.choice(_SYLLABLES) for _ in range(dice.randrange(2, 5))) for _ in range(5_000)]


def sentence(dice: random.Random, known: list[str], count: int) -> str:
    """Words as often as in speech: few are frequent, most are rare."""
    return " ".join(known[min(int(dice.paretovariate(0.7)), len(known)) - 1] for _ in range(count))


def messages(cards: int) -> Iterator[Event]:
    """A message of a user for each card."""
    dice = random.Random(5)
    known = vocabulary(dice)
    for number in range(cards):
        user = f"user-{number % SCOPES:03}"
        task = f"{user}-task-{number // SCOPES % TASKS_A_SCOPE:02}"
        text = f"order ORD-{number:06}: {sentence(dice, known, dice.randrange(12, 40))}"
        yield admit(
            {
                "id": f"m{number:07}", "type": "message.added", "run": task, "task": task, "agent": "clerk",
                "user": user, "time": (_BEGINNING + timedelta(seconds=number)).isoformat(),
                "data": {"role": "user", "content": text},
            }
        )  # fmt: skip


def store(url: str, folder: str, cards: int, settings: dict[str, str]) -> None:
    """Archive the messages, have them folded, write vectors of the cards."""
    stores = Stores(url)
    log = stores.log()
    try:
        migrate(log)
        fill_archive(log, messages(cards), PARTITIONS)
        with instance(folder, REFOLD_EMBEDDING_MODEL="none", **settings) as running, client_of(running) as client:
            caught_up(client)
        active = log.read_now(partial(generations.active, projection="memory_cards"))
        assert active is not None
        folded = stores.generation(active.name)
        try:
            rows = folded.read_now(_texts)
        finally:
            folded.close()
        assert len(rows) == cards, f"{len(rows)} cards instead of {cards}"
        log.write_now(partial(_write_vectors, hashes=[content_hash(text) for row in rows for text in passages(row)]))
    finally:
        log.close()


def _texts(conn: Connection) -> list[dict[str, Any]]:
    columns = [CARDS.c[name] for name in ("tool", "summary", "model_summary", "facts")]
    return [dict(row) for row in conn.execute(select(*columns)).mappings()]


def _write_vectors(conn: Connection, hashes: list[str]) -> None:
    raw = np.random.default_rng(3).standard_normal((len(hashes), DIMENSION), dtype=np.float32)
    choice = Choice()
    models.register(conn, choice.name, choice.source, DIMENSION)
    new = vectors.write(conn, "default", choice.name, hashes, raw / np.linalg.norm(raw, axis=1, keepdims=True))
    models.count_written(conn, choice.name, new)


def search_times(client: httpx.Client, scopes: list[str], seed: int) -> list[float]:
    """Milliseconds of a search in each of the scopes (``""``: all), every query a new one; sorted."""
    dice = random.Random(seed)
    known = vocabulary(random.Random(5))
    times = []
    for user in scopes:
        text = f"{sentence(dice, known, 6)} {dice.randrange(10**6)}"
        began = time.perf_counter()
        response = client.post("/v1/cards/search", json={"query": text, "user": user})
        times.append((time.perf_counter() - began) * 1e3)
        answer = response.raise_for_status().json()
        assert answer["embedding"]["model"], answer["embedding"]
        assert len(answer["items"]) == 10, answer["total"]
    return sorted(times)


def cpu_s() -> float:
    """Processor time of all processes of the instance so far, seconds."""
    times = [process.cpu_times() for process in psutil.Process(os.getpid()).children(recursive=True)]
    return sum(one.user + one.system for one in times)


def memory_mb(folder: Path) -> dict[str, float]:
    """Resident memory of the instance's processes, the largest first, by command."""
    found: dict[str, float] = {}
    for process in psutil.Process(os.getpid()).children(recursive=True):
        command = " ".join(process.cmdline())
        name = "embedding" if "services.embedding" in command else "server" if str(folder) in command else "others"
        found[name] = found.get(name, 0.0) + process.memory_info().rss / 2**20
    return found


def report(client: httpx.Client, folder: Path, cards: int, searches: int) -> None:
    """Measure on a running instance and print."""
    caught_up(client)
    while any(one["state"] != "live" for one in client.get("/v1/projections").json()["items"]):
        time.sleep(1)  # what was kept from an earlier run may be of other code, and is being rebuilt
    before = memory_mb(folder)
    everyone = [f"user-{number:03}" for number in range(SCOPES)]
    search_times(client, everyone[:1], 1)  # loads the model
    lines = {
        "an empty answer (floor)": measure(client, ["/healthz"] * 200),
        "first search of a scope": search_times(client, everyone[1:], 2),
    }
    used = cpu_s()
    lines["search of a scope"] = search_times(client, random.Random(3).choices(everyone, k=searches), 4)
    used = (cpu_s() - used) / searches
    after = memory_mb(folder)
    lines["first search of all"] = search_times(client, [""], 5)
    lines["search of all"] = search_times(client, [""] * max(10, searches // 20), 6)
    for name, times in lines.items():
        print(f"search, {name:28s} p50 {percentile(times, 0.5):7.1f} ms, p99 {percentile(times, 0.99):7.1f} ms")
    print(f"search, processor time a search  {used * 1e3:11.1f} ms, of all processes, whatever else the machine does")
    told = ", ".join(f"{name} {size:,.0f} MB" for name, size in after.items())
    print(f"search, memory with {cards:,} cards at hand: {told} (server before any search: {before['server']:,.0f} MB)")
    times = lines["search of a scope"]
    p50, p99 = percentile(times, 0.5), percentile(times, 0.99)
    met = "met" if p50 <= TARGET_P50_MS and p99 <= TARGET_P99_MS else "not met"
    print(f"search, share of the target: p50 {p50 / TARGET_P50_MS:.2f}, p99 {p99 / TARGET_P99_MS:.2f}: {met}")


def main() -> None:
    """Print percentiles, memory, and whether the targets are met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cards", type=int, default=100_000)
    parser.add_argument("--searches", type=int, default=1_000)
    parser.add_argument("--database", default="")
    parser.add_argument("--data", default="")
    given = parser.parse_args()
    settings = {"REFOLD_DATABASE_URL": given.database} if given.database else {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(given.data or scratch).resolve()
        if not (folder / "db").exists() or given.database:
            folder.mkdir(parents=True, exist_ok=True)
            began = time.perf_counter()
            store(given.database or f"sqlite:///{folder / 'db'}", str(folder), given.cards, settings)
            print(f"stored and folded {given.cards:,} cards in {time.perf_counter() - began:.0f} s", flush=True)
        with instance(str(folder), **settings) as url, client_of(url) as client:
            report(client, folder, given.cards, given.searches)


if __name__ == "__main__":
    main()
