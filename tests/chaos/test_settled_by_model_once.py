"""kill -9 of the backend while a model is asked, and of an agent in mid-run: each run is settled once, from its whole
conversation."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.instance import Instance, environment, running_instance, until
from tests.model_server import ModelServer, good, model_server, says
from tests.soak import ALL

LIVES = 8 if ALL else 2

AGENT = """
import os, sys
from refold import Refold
client = Refold(sys.argv[1], agent="a", session="killed", spool=False)
run = client.run("fix it", run="killed", model="m", system_prompt="Be careful.").__enter__()
run.message("user", "请修复")
call = run.tool("pay", {"amount": 3}, side_effect=True).__enter__()
os.kill(os.getpid(), 9)
"""


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_each_run_is_settled_by_its_model_once(tmp_path: Path) -> None:
    """C8: whatever the backend had asked, heard or appended when it was killed. REFOLD_SEED repeats a run's choices."""
    seed = int(os.environ.get("REFOLD_SEED") or random.randrange(10**9))
    print("REFOLD_SEED =", seed)
    rng = random.Random(seed)
    with model_server(lambda body: rng.choice([good(after_s=0.2), good(), says("no")])) as model:
        stores = {"REFOLD_MODEL_URL": model.url, "REFOLD_WATCHDOG_S": "3", "REFOLD_LEASE_S": "1"}
        runs: list[str] = []
        for life in range(LIVES):
            with running_instance(tmp_path / "data", **stores) as up:
                if life == 0:
                    killed = subprocess.run([sys.executable, "-c", AGENT, up.url], env=environment(), check=False)
                    assert killed.returncode == -signal.SIGKILL
                for _ in range(rng.randint(2, 5)):
                    runs.append(end_a_run(up, f"run{len(runs)}"))
                time.sleep(rng.uniform(0.05, 0.6))
                up.process.kill()
                up.process.wait()
        with running_instance(tmp_path / "data", **stores) as up:
            runs.append("killed")
            until(lambda: all(sum(settled(up, run).values()) for run in runs))
            assert [sum(settled(up, run).values()) for run in runs] == [1] * len(runs)
            asked(model, up)
            assert up.refold("verify", "settlements").returncode == 0


def end_a_run(up: Instance, run: str) -> str:
    said = [
        ("run.started", {"model": "m"}),
        ("message.added", {"role": "user", "content": run}),
        ("run.terminated", {"reason": "end_turn"}),
    ]
    up.stored(*(up.event(run, kind, data, session=f"s-{run}") for kind, data in said))
    return run


def settled(up: Instance, run: str) -> Counter[str]:
    items = up.http.get(f"/v1/runs/{run}/events").json()["items"]
    kinds = Counter(e["type"] for e in items if e["verdict"] == "effective")
    assert kinds["settlement.attempted"] <= 4
    return Counter({kind: kinds[kind] for kind in ("settlement.recorded", "settlement.degraded")})


def asked(model: ModelServer, up: Instance) -> None:
    """What the killed agent's model is asked with is what its agent had said, and that its payment is in doubt."""
    bodies = [body for body in model.requests if body["messages"][0]["content"] == "Be careful."]
    assert bodies
    for body in bodies:
        prompt, user, call, result, instruction = body["messages"]
        assert prompt["role"] == "system" and user == {"role": "user", "content": "请修复"}
        assert json.loads(call["tool_calls"][0]["function"]["arguments"]) == {"amount": 3}
        assert "[no result" in result["content"]
        assert "The run has ended: lost" in instruction["content"]
        assert "side effect without an answer, check before repeating: pay" in instruction["content"]

    def state() -> dict[str, Any] | None:
        answer = up.http.get("/v1/sessions/killed/state")
        return answer.json() if answer.status_code == 200 else None

    found = until(state)
    assert found["settled_runs"] == 1 and found["settling"] == []
