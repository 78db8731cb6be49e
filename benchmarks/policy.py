"""How long a policy waits: ``GET /v1/policy`` over HTTP with 10,000 beliefs in force, ``refold up`` as it comes.

Of the beliefs half are the agent's, four tenths the user's, a tenth the organisation's; each has a trigger: an equal
tool, a word of the goal, a mode and a number, or none (one in twenty). Every read is for another context. Told are the
first read (which reads all beliefs), reads while nothing is written, reads with an event of another user before each
(in whichever partition), and reads with an event of the very user before each, whose beliefs are then read again. The
floor is an answer of ``/healthz``. ``--database URL`` measures on an empty PostgreSQL database instead of SQLite.
Run: ``python -m benchmarks.policy``.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count
from typing import Any
from urllib.parse import urlencode

import httpx

from benchmarks.latency import client_of, instance
from benchmarks.resume import caught_up, measure, percentile
from benchmarks.workload import fill_archive
from events.database import Stores
from events.door import admit
from events.event import Event
from migrations import migrate

TARGET_P50_MS = 10.0
PARTITIONS = 8
TOOLS, WORDS = 200, 500
MODES = ("default", "precise_planning", "information_gathering", "creative")
LEVELS = ("agent", "agent", "agent", "agent", "agent", "user", "user", "user", "user", "org")


def beliefs(number: int) -> Iterator[Event]:
    """So many beliefs of one agent, one user and the organisation, confident enough to be told."""
    dice = random.Random(7)
    moment = datetime.now(UTC).isoformat()
    for place in range(number):
        level = LEVELS[place % len(LEVELS)]
        data = {
            "belief": f"b{place:05}", "kind": "learning", "scope": level, "confidence": dice.uniform(0.71, 1.0),
            "statement": f"With word{place} rather do thing{place} first, and say so", "trigger": trigger(dice),
        }  # fmt: skip
        names = {"agent": "clerk"} if level == "agent" else {"user": "ida"} if level == "user" else {}
        yield admit({"id": f"b{place}", "type": "belief.proposed", "time": moment, "data": data, **names})


def trigger(dice: random.Random) -> dict[str, Any]:
    """A trigger as people write them."""
    tool, word = f"tool{dice.randrange(TOOLS)}", f"word{dice.randrange(WORDS)}"
    kind = dice.randrange(20)
    if kind == 0:
        return {}
    if kind < 10:
        return {"field": "tool", "is": tool}
    if kind < 16:
        return {"field": "goal", "has": word}
    mode = {"field": "mode", "in": [dice.choice(MODES), "default"]}
    return {"all": [mode, {"field": "amount", "above": dice.randrange(1_000)}, {"not": {"field": "tool", "is": tool}}]}


def asked(number: int, seed: int) -> list[str]:
    """Reads for contexts of which none is like another."""
    dice = random.Random(seed)
    paths = []
    for _ in range(number):
        goal = " ".join(f"word{dice.randrange(WORDS)}" for _ in range(12))
        context = {"goal": goal, "tool": f"tool{dice.randrange(TOOLS)}", "mode": dice.choice(MODES)}
        amount = dice.randrange(1_000)
        paths.append(f"/v1/policy?{urlencode({'agent': 'clerk', 'user': 'ida', **context, 'amount': amount})}")
    return paths


_numbers = count()


def verified(client: httpx.Client, user: str) -> None:
    """One more event of a user's scope, durable."""
    data = {"belief": "b00005", "supports": True, "scope": "user"}
    event = {"id": f"v{next(_numbers)}", "type": "belief.verified", "user": user, "data": data}
    client.post("/v1/events", json=event).raise_for_status()


def with_writes(client: httpx.Client, paths: list[str], write: Callable[[int], None]) -> list[float]:
    """Milliseconds of each read, a write before each that is not counted."""
    times = []
    for place, path in enumerate(paths):
        write(place)
        times += measure(client, [path])
    return sorted(times)


def report(client: httpx.Client, number: int, reads: int) -> None:
    """Measure on a running instance and print."""
    caught_up(client)
    lines = {
        "an empty answer (floor)": measure(client, ["/healthz"] * 200),
        "first read": measure(client, asked(1, 1)),
        "nothing is written": measure(client, asked(reads, 2)),
        "others write": with_writes(client, asked(reads // 5, 3), lambda place: verified(client, f"other-{place}")),
        "the user writes": with_writes(client, asked(reads // 20, 4), lambda place: verified(client, "ida")),
    }
    found = client.get(asked(1, 2)[0]).json()
    told = f"{len(found['rules'])} rules of {len(found['rules']) + found['cut']['rules']}"
    more = " or more" * found["cut"]["more"]
    print(f"policy of {number:,} beliefs: a context such as those has room for {told}{more} that hold")
    floor = percentile(lines["an empty answer (floor)"], 0.5)
    for name, times in lines.items():
        p50, p99 = percentile(times, 0.5), percentile(times, 0.99)
        print(f"policy, {name:24s} p50 {p50:7.1f} ms ({p50 / floor:5.1f} x the floor), p99 {p99:7.1f} ms")
    share = percentile(lines["nothing is written"], 0.5) / TARGET_P50_MS
    print(f"policy, share of the target: p50 {share:.2f}: {'met' if share <= 1 else 'not met'}")


def main() -> None:
    """Print percentiles, and whether the target is met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beliefs", type=int, default=10_000)
    parser.add_argument("--reads", type=int, default=1_000)
    parser.add_argument("--database", default="")
    given = parser.parse_args()
    settings = {"REFOLD_EMBEDDING_MODEL": "none"}
    if given.database:
        settings["REFOLD_DATABASE_URL"] = given.database
    with tempfile.TemporaryDirectory() as folder:
        log = Stores(given.database or f"sqlite:///{folder}/db").log()
        try:
            migrate(log)
            fill_archive(log, beliefs(given.beliefs), PARTITIONS)
        finally:
            log.close()
        with instance(folder, **settings) as url, client_of(url) as client:
            report(client, given.beliefs, given.reads)


if __name__ == "__main__":
    main()
