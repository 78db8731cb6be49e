"""A real ``refold up`` for tests of what talks to it: its own data folder, free ports, ended by its process id."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from tests import warm
from tests.redis_cluster import redis_cluster
from tests.servers import own_postgres
from tests.warm import WarmProcess

ROOT = Path(__file__).parents[1]
PROGRAM = "services.cli.main"
REFOLD = (sys.executable, "-m", PROGRAM)
READY_S = 60.0
SETTLE_S = 60.0
NO_MODEL = {"REFOLD_EMBEDDING_FORM": "light", "REFOLD_EMBEDDING_MODEL": "none"}
"""An embedding model takes a process more at every start, and torch some seconds: tests that are about them ask."""
WITH_MODEL = {"REFOLD_EMBEDDING_MODEL": "use-multilingual"}
_STORES = ("REFOLD_DATABASE_URL", "REDIS_URL")


def environment(**more: str) -> dict[str, str]:
    """The environment without what would lead a command to another instance, or shape its output."""
    unwanted = ("REDIS_URL", "COLUMNS")
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith("REFOLD_") and name not in unwanted
    }
    return {**kept, **NO_MODEL, **more}


def refold(*arguments: str, stdin: bytes = b"", cwd: Path = ROOT, **environ: str) -> subprocess.CompletedProcess[bytes]:
    """Run one command to its end, without what its imports take: see ``tests.warm``."""
    path = os.pathsep.join(part for part in (str(ROOT), os.environ.get("PYTHONPATH", "")) if part)
    env = environment(PYTHONPATH=path, **environ)
    return warm.run(PROGRAM, *arguments, stdin=stdin, environ=env, cwd=cwd, timeout_s=100)


@dataclass
class Instance:
    """A running instance. Names made by ``name`` are new, so that tests can share it.

    ``stores`` are settings of stores that it did not start itself.
    """

    data: Path
    url: str
    process: WarmProcess
    http: httpx.Client
    stores: dict[str, str] = field(default_factory=dict)

    @property
    def stores_url(self) -> str:
        """Where its stores are, as ``Stores`` takes it."""
        return self.stores.get("REFOLD_DATABASE_URL", f"sqlite:///{self.data / 'db'}")

    def name(self, stem: str = "r") -> str:
        return f"{stem}-{uuid4().hex[:12]}"

    def event(self, run: str, type: str = "message.added", data: Any = None, **members: Any) -> dict[str, Any]:
        """A raw event with an id of its own."""
        given = {"role": "user", "content": "hello"} if data is None else data
        raw = {"id": f"e-{uuid4().hex}", "type": type, "run": run, "data": given, "time": "2026-03-01T10:00:00Z"}
        return raw | members

    def publish(self, *events: Any, **options: Any) -> httpx.Response:
        """Post events, whatever the answer."""
        return self.http.post("/v1/events", json=list(events), **options)

    def stored(self, *events: Any) -> str:
        """Post events that must all be stored; the token of the last."""
        response = self.publish(*events)
        assert response.status_code == 200, response.text
        return str(response.json()["outcomes"][-1]["token"])

    def refold(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run a command against this instance."""
        return refold(*arguments, stdin=stdin, REFOLD_DATA=str(self.data), **self.stores)


@contextmanager
def running_instance(data: Path, **environ: str) -> Iterator[Instance]:
    """Start ``refold up`` on a folder, and end it; on stores of its own where ``TESTS_ON`` says so."""
    with _stores() as stores, _running(data, stores | environ) as instance:
        yield instance


@contextmanager
def _stores() -> Iterator[dict[str, str]]:
    """Settings of a Redis Cluster and PostgreSQL that were just started (``TESTS_ON=cluster-postgresql``), or none."""
    if os.environ.get("TESTS_ON", "embedded") == "embedded":
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="refold-cluster-") as folder, own_postgres() as server:
        cluster = redis_cluster(Path(folder))
        try:
            yield {"REFOLD_DATABASE_URL": server.new_database(), "REDIS_URL": cluster.url}
        finally:
            cluster.kill()


@contextmanager
def _running(data: Path, environ: dict[str, str]) -> Iterator[Instance]:
    log = (data.parent / f"{data.name}.log").open("wb")
    process = WarmProcess(PROGRAM, "up", "--data", str(data), "--http", "0", environ=environment(**environ), stderr=log)
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        assert line.startswith("ready http://"), (data.parent / f"{data.name}.log").read_text()
        url = line.split()[1]
        with httpx.Client(base_url=url, timeout=60, trust_env=False) as http:
            yield Instance(data, url, process, http, {n: v for n, v in environ.items() if n in _STORES})
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(SETTLE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
        log.close()


def until(condition: Any, timeout_s: float = SETTLE_S) -> Any:
    """Call until the answer is true; the answer."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer = condition()
        if answer:
            return answer
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.05)
