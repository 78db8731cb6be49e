"""kill -9 of everything while runs end: each of them is settled, once, and looked back on, once."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.instance import Instance, running_instance, until
from tests.soak import ALL, soak

LIVES = 12 if ALL else 4


@soak  # test_settled_by_model_once kills as often, and asks a model as well
@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_each_run_is_settled_once(tmp_path: Path) -> None:
    """C5, C8: the settler dies before, in and after its append; REFOLD_SEED repeats a run's choices."""
    seed = int(os.environ.get("REFOLD_SEED") or random.randrange(10**9))
    print("REFOLD_SEED =", seed)
    rng = random.Random(seed)
    runs: list[str] = []
    for _ in range(LIVES):
        with running_instance(tmp_path / "data") as up:
            for _ in range(rng.randint(1, 6)):
                runs += end_a_run(up, f"run{len(runs)}")
            time.sleep(rng.uniform(0, 0.4))
            if rng.random() < 0.3:
                os.kill(int((up.data / "redis" / "redis.pid").read_text()), signal.SIGKILL)
            up.process.kill()
            up.process.wait()
    with running_instance(tmp_path / "data") as up:
        until(lambda: all(settlements(up, run) for run in runs))
        time.sleep(2)
        assert [settlements(up, run) for run in runs] == [1] * len(runs)
        experiences = up.http.get("/v1/log").json()["events"] - sum(archived(up, run) for run in runs)
        # one to the user's scope, one to the agent's, which belong to no run's task
        assert experiences >= 2 * len(runs)
        verified = up.refold("verify")
        assert verified.returncode == 0, verified.stdout.decode()


def end_a_run(up: Instance, run: str) -> list[str]:
    """Publish a run that ends; its name, once that is durable."""
    common = {"run": run, "user": "u1", "agent": "coder"}
    call = {"call_id": "c", "name": "bash", "arguments": {"command": "make"}}
    events: list[dict[str, Any]] = [
        {**common, "id": f"{run}-1", "type": "tool.called", "data": call},
        {**common, "id": f"{run}-2", "type": "tool.returned", "data": {"call_id": "c", "result": "ok"}},
        {**common, "id": f"{run}-3", "type": "run.terminated", "data": {"reason": "end_turn"}},
    ]
    try:
        return [run] if up.publish(*events).status_code == 200 else []
    except httpx.HTTPError:
        return []


def settlements(up: Instance, run: str) -> int:
    items = up.http.get(f"/v1/runs/{run}/events").json()["items"]
    return Counter(e["type"] for e in items if e["verdict"] == "effective")["settlement.degraded"]


def archived(up: Instance, run: str) -> int:
    return len(up.http.get(f"/v1/runs/{run}/events").json()["items"])
