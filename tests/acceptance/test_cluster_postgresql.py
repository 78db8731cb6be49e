"""The backend scaled out over processes, on a Redis Cluster and PostgreSQL, by the commands that a user types."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.instance import REFOLD, ROOT, environment, refold, until
from tests.redis_cluster import RedisCluster
from tests.servers import PostgresServer, free_port

DATASETS = Path(os.environ.get("REFOLD_DATASETS") or ROOT.parent / "shared" / "data")
SAMPLES = ROOT / "tests" / "fixtures" / "imports"
WORKERS = (("archiver", "inbox", "reactors"), ("projector",), ("projector",), ("api",))
"""Processes, and the roles of each."""
LIMIT = "20"


@pytest.fixture
def environ(cluster: RedisCluster, postgres: PostgresServer, tmp_path: Path) -> dict[str, str]:
    port = free_port()
    return {
        "REDIS_URL": cluster.url, "REFOLD_DATABASE_URL": postgres.new_database(), "REFOLD_DATA": str(tmp_path / "data"),
        "REFOLD_HTTP_PORT": str(port), "REFOLD_URL": f"http://127.0.0.1:{port}",
    }  # fmt: skip


@pytest.fixture
def workers(environ: dict[str, str], tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The worker processes; each must stop cleanly."""
    processes = []
    for number, roles in enumerate(WORKERS):
        with (tmp_path / f"worker-{number}.log").open("wb") as log:
            command = [*REFOLD, "worker", *(text for role in roles for text in ("--role", role))]
            processes.append(subprocess.Popen(command, cwd=ROOT, env=environment(**environ), stdout=log, stderr=log))
    try:
        until(lambda: ready(environ["REFOLD_URL"], processes, tmp_path), 240)
        yield processes
        for process in processes:
            process.terminate()
        assert [process.wait(60) for process in processes] == [0] * len(WORKERS), logs(tmp_path)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def logs(folder: Path) -> str:
    return "\n".join(f"--- {log.name}\n{log.read_text()[-2000:]}" for log in sorted(folder.glob("*.log")))


def ready(url: str, processes: list[subprocess.Popen[bytes]], folder: Path) -> bool:
    assert all(process.poll() is None for process in processes), logs(folder)
    try:
        return httpx.get(f"{url}/readyz", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def answer(environ: dict[str, str], *arguments: str) -> Any:
    """What a command prints as JSON; it must succeed."""
    done = refold(*arguments, "--json", **environ)
    assert done.returncode == 0, done.stdout.decode()[-2000:] + done.stderr.decode()[-2000:]
    return json.loads(done.stdout.decode().strip().splitlines()[-1])


@pytest.mark.timeout(600)
def test_what_is_imported_arrives_once_and_verifies(
    environ: dict[str, str], workers: list[subprocess.Popen[bytes]], cluster: RedisCluster
) -> None:
    """C43, C46: each node of the cluster has its part of the log, and every read model is what the log says."""
    real = DATASETS / "tau-bench-airline"
    source = real if real.is_dir() else SAMPLES / "chat"
    for _ in range(2):
        answer(environ, "import", str(source), "--format", "chat", "--limit", LIMIT, "--wait")
        events = until(lambda: settled(environ), 240)
    found = answer(environ, "verify")
    assert found["equal"], found
    assert events == answer(environ, "status")["events"] > 0
    redis = next(
        check for check in answer(environ | {"REFOLD_HTTP_PORT": "0"}, "doctor")["checks"] if check["name"] == "Redis"
    )
    assert redis["state"] == "ok" and "cluster, 3 masters" in redis["found"], redis
    assert all(node.run("DBSIZE") > 0 for node in cluster.masters())


def settled(environ: dict[str, str]) -> int:
    """Events in the archive, once every run that ended is settled and every projection has folded all there is."""
    before, status = 0, {}
    for _ in range(2):
        before, status = status.get("events", 0), answer(environ, "status")
    lag = sum(one["lag_events"] for one in status["projections"])
    return int(status["events"]) if lag == 0 and before == status["events"] else 0
