"""kill -9 of the backend while it promotes: each session is one piece of evidence, and a refold agrees."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.instance import Instance, running_instance, until
from tests.soak import soak

LIVES, SESSIONS = 5, 20
WORDS = ("just the bottom line", "skip the reasoning, only the result", "别讲过程", "Don't walk me through it")


@soak
@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_every_session_counts_once(tmp_path: Path) -> None:
    """Whatever is killed in between. REFOLD_SEED repeats a run's choices."""
    seed = int(os.environ.get("REFOLD_SEED") or random.randrange(10**9))
    print("REFOLD_SEED =", seed)
    rng = random.Random(seed)
    for life in range(LIVES):
        with running_instance(tmp_path / "data", REFOLD_LEASE_S="1") as up:
            up.stored(*(said(up, f"{life}-{number}", user) for number in range(SESSIONS) for user in ("ada", "bo")))
            time.sleep(rng.uniform(0.0, 0.6))
            up.process.kill()
            up.process.wait()
    with running_instance(tmp_path / "data", REFOLD_LEASE_S="1") as up:
        for user in ("ada", "bo"):
            until(lambda user=user: rule(up, user).get("supports", 0) >= LIVES * SESSIONS)
        time.sleep(1.0)  # whatever would come twice has time to come
        for user in ("ada", "bo"):
            assert (rule(up, user)["supports"], rule(up, user)["against"]) == (LIVES * SESSIONS, 0)
        assert up.refold("verify", "beliefs").returncode == 0


def said(up: Instance, name: str, user: str) -> dict[str, Any]:
    words = WORDS[hash_of(name) % len(WORDS)]
    who = {"user": user, "agent": "analyst", "session": f"{user}-{name}", "task": f"t-{user}-{name}"}
    return up.event(f"{user}-{name}", data={"role": "user", "content": words}, **who)


def hash_of(name: str) -> int:
    return sum(map(ord, name))


def rule(up: Instance, user: str) -> dict[str, Any]:
    found = up.http.get("/v1/beliefs", params={"user": user}).json()["items"]
    return next((one for one in found if one["statement"].startswith(("Give the conclusion", "只给结论"))), {})
