"""A small world for each point: made anew, broken at that point, continued by others, and then looked at.

``python -m tests.chaos.rounds WORLD STORE SIGNAL FOLDER [DATABASE_URL]`` goes through the points of one world; the test
files beside it start that, since forking wants a process without threads.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from importlib import import_module
from math import ceil
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
from sqlalchemy import make_url

from events.database import Stores
from tests.chaos.faults import POINTS, Child, fork, prepare_to_fork
from tests.soak import ALL

ROOT = Path(__file__).parents[2]
MOST = 8
"""Points that a part consists of at most: on a slow machine a process looks more often, and passes more of them."""

_READS = ("XREAD", "GET", "TYPE", "HGET", "XRANGE", "SUBSCRIBE")

BLOCKED_S = 0.25
"""How long others get while a process sleeps that may hold a lock: then it is woken, since nobody else can go on."""


class World(ABC):
    """What a scenario consists of. Everything that opens a store runs in a child."""

    def __init__(self, folder: Path, store: str, database_url: str) -> None:
        self.folder = folder
        self.template = folder / "template"
        self.count_file = folder / "points"
        self.store = store
        self.server_url = database_url
        self.prefix = f"points_{uuid4().hex[:8]}_"
        self.url = f"sqlite:///{self.template}" if store == "sqlite" else self._database("template")
        self.children: list[Child] = []
        self.number = 0

    @abstractmethod
    def make_template(self) -> None:
        """Fill the empty stores at ``self.url``; in a child."""

    @abstractmethod
    def broken_by(self, armed: Callable[[Callable[[], Any]], Child], signum: signal.Signals) -> None:
        """One round: run the victim with ``armed(work)``, let others go on, check."""

    def begin(self) -> None:
        """Make the template."""
        if self.store == "postgresql":
            self._sql(f'CREATE DATABASE "{self.prefix}template"')
        self.run("template", self.make_template)

    def end(self) -> None:  # noqa: B027  most have nothing to do
        """Let go of what ``begin`` opened."""

    def renew(self) -> None:
        """A fresh copy of the template."""
        self.number += 1
        name = f"round{self.number}"
        if self.store == "sqlite":
            shutil.rmtree(self.folder / f"round{self.number - 1}", ignore_errors=True)
            shutil.copytree(self.template, self.folder / name)
            self.url = f"sqlite:///{self.folder / name}"
            return
        self._sql(f'DROP DATABASE IF EXISTS "{self.prefix}round{self.number - 1}" WITH (FORCE)')
        self._sql(f'CREATE DATABASE "{self.prefix}{name}" TEMPLATE "{self.prefix}template"')
        self.url = self._database(name)

    def round(self, at: int, signum: signal.Signals) -> None:
        """Break the world at one point (0: at none). The names of the points passed are in ``count_file`` then."""
        self.renew()

        def armed(work: Callable[[], Any]) -> Child:
            def victim() -> None:
                POINTS.arm(at, signum)
                work()
                POINTS.disarm()
                self.count_file.write_text("\n".join(" ".join(name.split())[:120] for name in POINTS.names))

            return fork("victim", victim, self.children)

        try:
            self.broken_by(armed, signum)
        except BaseException:
            print(f"at point {at} ({signum.name})", file=sys.stderr)
            raise
        finally:
            self.kill_all()

    def fork(self, name: str, work: Callable[[], Any]) -> Child:
        """A process beside the victim."""
        return fork(name, work, self.children)

    def run(self, name: str, work: Callable[[], Any]) -> None:
        """A process that must end well."""
        self.fork(name, work).must_end_well()

    def kill_all(self) -> None:
        """End whatever still runs."""
        for child in self.children:
            child.send(signal.SIGKILL)
            child.wait()
        self.children.clear()

    def stores(self) -> Stores:
        """The stores of this round; in a child."""
        return Stores(self.url)

    def _database(self, name: str) -> str:
        return make_url(self.server_url).set(database=self.prefix + name).render_as_string(hide_password=False)

    def _sql(self, statement: str) -> None:
        with psycopg.connect(self.server_url, autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[arg-type]


def go_through(world: World, signum: signal.Signals, stride: int) -> None:
    """Run into the points of a world one after another: into all that are chosen, or every ``stride``-th of them."""
    began = time.monotonic()
    try:
        world.begin()
        world.round(0, signum)
        names = world.count_file.read_text().splitlines()
        chosen = chosen_of(names, signum)
        step = 1 if ALL else max(stride, ceil(len(chosen) / MOST))
        chosen = chosen[step // 2 :: step]
        assert chosen, f"no point is chosen of {len(names)}, with a stride of {stride}"
        for at in chosen:
            world.round(at, signum)
    finally:
        world.kill_all()
        world.end()
    print(f"{len(chosen)} of {len(names)} points, {signum.name}, {time.monotonic() - began:.1f} s")


def chosen_of(names: Sequence[str], signum: signal.Signals) -> list[int]:
    """The numbers of the points to run into.

    A kill shows in what it left outside, so it matters only around what has an effect there: a commit, a command that
    writes. A sleeper wakes with what it had read, so to it every point is another one.
    """
    if ALL or signum != signal.SIGKILL:
        return list(range(1, len(names) + 1))
    effects = []
    writes = False
    for number, name in enumerate(names, 1):
        if name.startswith("redis ") and name != "redis answered":
            writes = not any(f"\\r\\n{read}\\r\\n" in name for read in _READS)
        if name in ("COMMIT", "committed") or (name.startswith("redis ") and writes):
            effects.append(number)
    return effects


def every_point(world: str, store: str, signum: str, folder: Path, database_url: str, *, stride: int = 1) -> None:
    """Go through the points of a world in a process of its own; raises when one of them breaks it."""
    command = [sys.executable, "-m", "tests.chaos.rounds", world, store, signum, str(folder), database_url, str(stride)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-8000:]


def main() -> None:
    """The command line."""
    name, store, signum, folder, database_url, stride = sys.argv[1:]
    world = import_module(f"tests.chaos.{name}").WORLD(Path(folder), store, database_url)
    prepare_to_fork()
    go_through(world, signal.Signals[signum], int(stride))


if __name__ == "__main__":
    main()
