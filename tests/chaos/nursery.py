"""Lives of agents: each a process of its own, forked from one that has imported everything, so that many are cheap.

``python -m tests.chaos.nursery`` reads JSON lines as orders: ``{"live": agent, ...}`` begins a life and answers its
process id; ``{"wait": pid, "stopped": bool}`` answers how it stands: its exit code, negative for a signal, or
``stopped``. ``Nursery`` is the other end.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from refold import Conflict, Refold, RefoldError, Resume

from tests.chaos.faults import Child, fork
from tests.chaos.paying_agent import Job, fragile, work, work_async, work_without_asking
from tests.instance import ROOT, environment

LOST, FAILED = 3, 4
"""How an agent ends that lost its task to another one, and one that another error of Refold ended."""

PATIENCE_S = 60.0


class Nursery:
    """Begins lives, and tells how they end. A ``with`` block; what lives at its end is killed."""

    def __enter__(self) -> Nursery:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.nursery"],
            cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.communicate(timeout=PATIENCE_S)

    def live(self, **job: Any) -> int:
        """Begin a life; its process id. See ``paying_agent.Job`` and ``contend``."""
        return int(self._ask({"live": job.get("agent", "sync"), **job}))

    def end_of(self, pid: int, *, stopped: bool = False) -> int | str:
        """How a life ended; with ``stopped``, or that it stopped."""
        return self._ask({"wait": pid, "stopped": stopped})  # type: ignore[no-any-return]

    def _ask(self, order: dict[str, Any]) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


# ---- what a life does


def pay(order: dict[str, Any]) -> None:
    """The life of a paying agent; ``count`` is a file that is told how many lines it went through."""
    count = order.pop("count", "")
    job = Job(**order)
    works: dict[str, Callable[[], Any]] = {
        "sync": lambda: work(job),
        "async": lambda: asyncio.run(work_async(job)),
        "without asking": lambda: work_without_asking(job),
    }
    passed = fragile(job, works[job.agent])
    if count:
        Path(count).write_text(str(passed))


class Together(Refold):
    """A client that waits, once it knows what earlier attempts left, until ``all_of_them`` know it, too."""

    folder: Path
    all_of_them: int

    def resume(self, task: str, *, after: str = "", **how: Any) -> Resume:
        """As any client's; the first answer is waited with."""
        try:
            return super().resume(task, after=after, **how)
        finally:
            if not after:
                (self.folder / f"ready-{os.getpid()}").touch()
                while len(list(self.folder.glob("ready-*"))) < self.all_of_them:
                    time.sleep(0.001)


def contend(order: dict[str, Any]) -> None:
    """Resume a task at the same instant as others, ``all_of_them`` together, and write down what came of it.

    It makes ``updates``, each of them durable before it is counted as accepted.
    """
    folder = Path(order["folder"])
    report: dict[str, Any] = {"run": "", "winner": "", "accepted": 0}
    together = Together(order["url"], agent="racer", spool=order["spool"])
    together.folder, together.all_of_them = folder, order["all_of_them"]
    with together as client:
        run = client.run(task=order["task"], resume=True)
        report["run"] = run.id
        try:
            with run:
                for number in range(order["updates"]):
                    with run.tool("update", {"n": number}, side_effect=True, key=f"{run.id}/{number}"):
                        report["accepted"] += 1
        except Conflict as conflict:
            report["winner"] = conflict.winner
    (folder / f"report-{os.getpid()}.json").write_text(json.dumps(report))


AGENTS: dict[str, Callable[[dict[str, Any]], None]] = {"contender": contend}


def _life(order: dict[str, Any]) -> None:
    agent = order.pop("live")
    try:
        AGENTS.get(agent, pay)(order)
    except Conflict:
        os._exit(LOST)
    except RefoldError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        os._exit(FAILED)


@contextmanager
def _killing(children: list[Child]) -> Iterator[None]:
    try:
        yield
    finally:
        for child in children:
            child.send(signal.SIGKILL)


def main() -> None:
    """Take orders until there are no more."""
    children: list[Child] = []
    by_pid: dict[int, Child] = {}
    gc.collect()
    gc.freeze()
    with _killing(children):
        for line in sys.stdin:
            order = json.loads(line)
            if "live" in order:
                child = fork("life", lambda order=order: _life(order), children)  # type: ignore[misc]
                by_pid[child.pid] = child
                answer: Any = child.pid
            else:
                answer = by_pid[order["wait"]].wait(PATIENCE_S, stopped=order["stopped"])
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
