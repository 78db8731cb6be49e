"""kill -9 of the backend while it curates: everything proposed is decided once, and nothing is remembered twice."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.instance import Instance, running_instance, until
from tests.soak import ALL

LIVES = 6 if ALL else 1
USERS = ("ada", "bo")


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_everything_proposed_is_decided_once(tmp_path: Path) -> None:
    """C16, C46: every fact is proposed twice, in other letters. REFOLD_SEED repeats a run's choices."""
    seed = int(os.environ.get("REFOLD_SEED") or random.randrange(10**9))
    print("REFOLD_SEED =", seed)
    rng = random.Random(seed)
    settings = {"REFOLD_LEASE_S": "1", "REFOLD_EMBEDDING_MODEL": "none"}
    for life in range(LIVES):
        with running_instance(tmp_path / "data", **settings) as up:
            up.stored(*(proposal(life, number, user) for number in range(60) for user in USERS))
            time.sleep(rng.uniform(0.0, 0.5))
            up.process.kill()
            up.process.wait()
    with running_instance(tmp_path / "data", **settings) as up:
        until(lambda: all(decided(up, user) == 60 * LIVES for user in USERS))
        for user in USERS:
            said = Counter(memory["content"].casefold() for memory in items(up, "/v1/memories", user))
            assert said == {
                f"release {life}-{n} needs a review by team {n}": 1 for life in range(LIVES) for n in range(30)
            }
            fates = Counter(fate.get("reason", "") for fate in items(up, "/v1/memories/proposals", user))
            assert fates == {"": 30 * LIVES, "duplicate": 30 * LIVES}
        assert up.refold("verify", "memories").returncode == 0


def proposal(life: int, number: int, user: str) -> dict[str, Any]:
    fact = f"release {life}-{number // 2} needs a review by team {number // 2}"
    data = {"content": fact.upper() if number % 2 else fact, "scope": "user"}
    return {"id": f"p{life}-{number}", "type": "memory.proposed", "user": user, "data": data}


def items(up: Instance, path: str, user: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = up.http.get(path, params={"user": user, "limit": 1000}).json()["items"]
    return found


def decided(up: Instance, user: str) -> int:
    return sum(fate["status"] != "pending" for fate in items(up, "/v1/memories/proposals", user))
