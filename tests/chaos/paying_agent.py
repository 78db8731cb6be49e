"""An agent that acts on the world outside, and may die or freeze between any two of its lines.

It pays through a bank, which knows each idempotency key and pays it once, and prints through a printer, which does as
often what it is told, but can be asked what it printed. What counts as a line is every line of this file's agents; and
``deep``, those of the SDK below them, in all their threads.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import refold
from refold import AsyncRefold, Policy, Refold

QUICK = Policy(flush_s=0.2, backoff_s=0.05, backoff_max_s=0.2)
"""Sends late what nobody waits for, so that a kill finds it unsent; and tries again soon."""

TIMEOUT_S = 20.0
STEPS = ("order", "pay", "print", "tell")
SDK = str(Path(refold.__file__).parent)


@dataclass(frozen=True)
class Bank:
    """Pays each key once, however often it is asked to: see ``bank.py``."""

    url: str

    def pay(self, key: str, amount: int) -> str:
        """Pay; the receipt."""
        answer = httpx.post(f"{self.url}/{key}", json={"amount": amount}, timeout=TIMEOUT_S, trust_env=False)
        return str(answer.raise_for_status().json()["receipt"])

    def paid(self, key: str) -> str | None:
        """The receipt of a payment, or None."""
        answer = httpx.get(f"{self.url}/{key}", timeout=TIMEOUT_S, trust_env=False)
        return str(answer.json()["receipt"]) if answer.status_code == 200 else None


@dataclass(frozen=True)
class Printer:
    """Prints whatever it is told to, again and again. Each page bears its key."""

    path: Path

    def print(self, key: str, text: str) -> str:
        """Print; the name of the page."""
        page = json.dumps({"key": key, "text": text}) + "\n"
        with self.path.open("a") as tray:
            tray.write(page)
            tray.flush()
            os.fsync(tray.fileno())
        return f"page {key}"

    def printed(self, key: str) -> str | None:
        """The page that bears a key, or None."""
        if any(page["key"] == key for page in pages(self.path)):
            return f"page {key}"
        return None


def pages(path: Path) -> list[dict[str, str]]:
    """What the printer has printed."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@dataclass(frozen=True)
class Job:
    """One life of an agent: where it finds what, and at which of its lines it gets which signal (0: at none)."""

    url: str
    bank: str
    tray: str
    spool: str
    task: str
    agent: str = "sync"
    at: int = 0
    signum: int = signal.SIGKILL
    deep: bool = False


def work(job: Job) -> None:
    """The sync agent: four steps, four effects."""
    bank, printer = Bank(job.bank), Printer(Path(job.tray))
    backend = Refold(job.url, agent="payer", spool=job.spool, policy=QUICK, timeout_s=TIMEOUT_S)
    with backend as client:  # noqa: SIM117 - each of them a line to die at
        with client.run("pay and tell", task=job.task, resume=True) as run:
            run.plan(STEPS)
            for step in run.pending(STEPS):
                with run.step(step) as block:
                    run.note("progress", step)
                    if step == "pay":
                        with run.tool("pay", {"amount": 40}, side_effect=True, already_done=bank.paid) as call:
                            if not call.done:
                                call.result = bank.pay(call.key, 40)
                        block.result = call.result
                    elif step == "print":
                        for copy in ("first", "second"):
                            key = f"{job.task}/{copy}"
                            print_ = run.tool("print", side_effect=True, already_done=printer.printed, key=key)
                            with print_ as call:
                                if not call.done:
                                    call.result = printer.print(call.key, copy)
                    elif step == "tell":
                        tell = run.tool("tell", side_effect=True, already_done=bank.paid, key=f"{job.task}.tell")
                        with tell as call:
                            if not call.done:
                                call.result = bank.pay(call.key, 1)
                        run.artifact("letter", uri="file:///letter", step=step)
                    block.summary = f"{step} is done"
            run.checkpoint({"done": list(STEPS)})


async def work_async(job: Job) -> None:
    """The async agent: two steps, two effects."""
    bank, printer = Bank(job.bank), Printer(Path(job.tray))
    backend = AsyncRefold(job.url, agent="payer", spool=job.spool, policy=QUICK, timeout_s=TIMEOUT_S)
    async with backend as client:  # noqa: SIM117 - each of them a line to die at
        async with client.run("pay and print", task=job.task, resume=True) as run:
            await run.plan(["pay", "print"])
            for step in run.pending(["pay", "print"]):
                async with run.step(step):
                    await run.note("progress", step)
                    if step == "pay":
                        async with run.tool("pay", {"amount": 1}, side_effect=True, already_done=bank.paid) as call:
                            if not call.done:
                                call.result = bank.pay(call.key, 1)
                    else:
                        async with run.tool("print", side_effect=True, already_done=printer.printed) as call:
                            if not call.done:
                                call.result = printer.print(call.key, "once")


def work_without_asking(job: Job) -> None:
    """An agent whose printer cannot be asked: what may have been printed is not printed again."""
    printer = Printer(Path(job.tray))
    backend = Refold(job.url, agent="payer", spool=job.spool, policy=QUICK, timeout_s=TIMEOUT_S)
    with backend as client:  # noqa: SIM117 - each of them a line to die at
        with client.run("print", task=job.task, resume=True) as run:
            with run.step("print"):
                for copy in ("first", "second"):
                    with run.tool("print", {"copy": copy}, side_effect=True) as call:
                        if not call.done:
                            call.result = printer.print(call.key, copy)
                    run.note(copy, call.result)
                run.heartbeat()


def fragile(job: Job, agent: Callable[[], Any]) -> int:
    """Run an agent, which gets its signal at one of its lines; how many lines it went through."""
    line = threading.Lock()
    passed = 0

    def pass_one(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal passed
        if event == "line":
            with line:
                passed += 1
                if passed == job.at:
                    os.kill(os.getpid(), job.signum)
        return pass_one

    def enter(frame: FrameType, _: str, __: Any) -> Any:
        name = frame.f_code.co_filename
        ours = name == __file__ and frame.f_code is not pass_one.__code__
        return pass_one if ours or (job.deep and name.startswith(SDK)) else None

    if job.deep:
        threading.settrace(enter)
    sys.settrace(enter)
    try:
        agent()
    finally:
        sys.settrace(None)
    return passed


def chosen(lines: int, stride: int) -> range:
    """Every ``stride``-th of so many lines, beginning in the middle of a stride."""
    return range((stride + 1) // 2, lines + 1, stride)
