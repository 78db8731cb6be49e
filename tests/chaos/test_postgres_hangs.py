"""PostgreSQL is stopped (SIGSTOP): connections stay, nothing answers. Nobody waits for ever, and then all goes on."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from tests.instance import Instance, running_instance, until
from tests.servers import PostgresServer, own_postgres

LIMIT_S = 1.0
PATHS = ("/v1/tasks/t1", "/v1/tasks", "/v1/tasks/t1/resume", "/v1/runs", "/v1/runs/t1/events", "/v1/projections")


@contextmanager
def stopped(server: PostgresServer) -> Iterator[None]:
    """Every process of a server stands still."""
    assert server.process is not None
    postmaster = psutil.Process(server.process.pid)
    postmaster.suspend()  # the postmaster first: it starts no further ones then
    processes = [postmaster, *postmaster.children(recursive=True)]
    for process in processes[1:]:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGCONT)


@pytest.mark.chaos
@pytest.mark.timeout(240)
def test_postgres_hangs(tmp_path: Path) -> None:
    """Invariant 8: a read is a 503 that says what to do, a publish a 503 to be sent again; then each is answered."""
    limit = f"{LIMIT_S:g}"
    environ = dict.fromkeys(("REFOLD_STORE_TIMEOUT_S", "REFOLD_READ_TIMEOUT_S", "REFOLD_PUBLISH_TIMEOUT_S"), limit)
    with (
        own_postgres() as server,
        running_instance(tmp_path / "data", REFOLD_DATABASE_URL=server.new_database(), **environ) as instance,
    ):
        first, second = instance.event("t1", "run.started", {"goal": "find it"}), instance.event("t1")
        token = until(lambda: token_of(instance.publish(first)))
        until(lambda: all(get(instance, path, token).status_code == 200 for path in PATHS))
        with stopped(server), ThreadPoolExecutor(16) as threads:
            publishing = threads.submit(instance.publish, second)
            answers = [threads.submit(get, instance, path, token) for path in PATHS * 2]
            assert get(instance, "/healthz").status_code == 200
            for answer in answers:
                check_told(answer.result())
            assert publishing.result().status_code == 503
        until(lambda: instance.publish(second).status_code == 200)
        until(lambda: all(get(instance, path, token).status_code == 200 for path in PATHS))
        items = get(instance, "/v1/runs/t1/events").json()["items"]
        assert [item["id"] for item in items if item["verdict"] == "effective"] == [first["id"], second["id"]]


def token_of(response: httpx.Response) -> str:
    """The token of a publish that was answered in time."""
    return str(response.json()["outcomes"][0]["token"]) if response.status_code == 200 else ""


def get(instance: Instance, path: str, after: str = "") -> httpx.Response:
    """Ask on a connection of one's own."""
    began = time.monotonic()
    response = httpx.get(instance.url + path, params={"after": after} if after else {}, timeout=60, trust_env=False)
    response.extensions["took_s"] = time.monotonic() - began
    return response


def check_told(response: httpx.Response) -> None:
    """It is a problem document that names the limit and what to look at, and came not long after that limit."""
    assert response.status_code == 503, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["retry-after"] == "1"
    problem = response.json()
    assert problem["code"] in ("no_answer", "transient"), problem
    assert problem["code"] == "transient" or ("/readyz" in problem["detail"] and "2 s" in problem["detail"])
    assert response.extensions["took_s"] < 30 * LIMIT_S
