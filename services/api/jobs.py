"""Long work that the API starts: in processes of its own, so that it never stands in the way of a read or a write.

A job process (``services.api.job``) writes what it has to tell as JSON lines: progress, and how it ended, of the whole
or of one projection. A line on its standard input cancels it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import uuid4

import orjson

from events.errors import Transient

_log = logging.getLogger("refold.jobs")

KEPT_JOBS = 100
_LINE_BYTES = 64 << 20
_STDERR_BYTES = 4096
_STOP_S = 5.0

AT_ONCE = 8
"""Jobs that run at once, but for rebuilds: each is a process, with connections of its own to the stores."""

_TELL_APART = ("rebuild",)
"""Kinds of job that tell of each of their projections apart."""

_CHANGE_WHAT_IS_READ = ("rebuild", "rollback")

State = Literal["running", "done", "failed", "cancelled"]

WHOLE = ""
"""Stands for the job itself where a projection is named."""


@dataclass
class Part:
    """What a job has told of itself, or of one projection: its ``result`` when it is done, else the ``error``."""

    state: State = "running"
    progress: dict[str, Any] = field(default_factory=dict)
    result: Any = None
    error: str = ""
    ended_s: float | None = None

    def hear(self, said: Mapping[str, Any]) -> None:
        """Take over what was told: ``progress``, or ``result``, ``error`` or ``cancelled``, which end it."""
        self.progress.update(said.get("progress", {}))
        if "result" in said:
            self.result = said["result"]
            self.end("done")
        elif "error" in said:
            self.end("failed", said["error"])
        elif "cancelled" in said:
            self.end("cancelled", said["cancelled"])

    def end(self, state: State, error: str = "") -> None:
        """How it ended; what was told first counts."""
        if self.state == "running":
            self.state, self.error, self.ended_s = state, error, time.monotonic()


@dataclass
class Job:
    """One job: ``parts`` holds what it told, for each projection that it tells of, else for the WHOLE."""

    id: str
    kind: str
    names: tuple[str, ...]
    options: tuple[str, ...] = ()
    parts: dict[str, Part] = field(default_factory=dict)
    cancelling: list[str] = field(default_factory=list)
    started_s: float = field(default_factory=time.monotonic)
    heard_s: float = field(default_factory=time.monotonic)

    @property
    def running(self) -> bool:
        """Whether any part of it goes on."""
        return any(part.state == "running" for part in self.parts.values())

    @property
    def silent_s(self) -> float:
        """How long it has told nothing."""
        return time.monotonic() - self.heard_s

    def part(self, name: str = WHOLE) -> Part:
        """What it has told of a projection, or of itself where it tells of none apart."""
        return self.parts.get(name) or self.parts[WHOLE]

    def document(self, name: str = WHOLE) -> dict[str, Any]:
        """What the API shows of it. ``eta_s`` is None where nothing can be told yet."""
        part = self.part(name)
        seconds = (part.ended_s or time.monotonic()) - self.started_s
        events, total = part.progress.get("events", 0), part.progress.get("total", 0)
        rate = part.progress.get("events_per_s") or events / max(seconds, 1e-9)
        return {
            "id": self.id,
            "kind": self.kind,
            "projections": list(self.names),
            "state": part.state,
            "phase": part.progress.get("phase", ""),
            "events": events,
            "total": total,
            "events_per_s": round(rate),
            "eta_s": round((total - events) / rate, 1) if rate and total and part.state == "running" else None,
            "seconds": round(seconds, 3),
            "result": part.result,
            "error": part.error,
        }


class Jobs:
    """The jobs of one API process, the last KEPT_JOBS of them. ``environ`` gives the job processes their settings."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = {**os.environ, **environ}
        self._jobs: dict[str, Job] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._processes: dict[str, asyncio.subprocess.Process] = {}

    def running(self, kind: str, name: str) -> Job | None:
        """The job of a kind that works on a projection, if it runs; an older one that stands still is not asked."""
        job = self.latest(kind, name)
        return job if job is not None and job.part(name).state == "running" else None

    def begun(self, name: str, patience_s: float) -> bool:
        """Whether a process that rebuilds a projection, or is about to, has told something in ``patience_s``."""
        job = self.running("rebuild", name)
        return job is not None and job.silent_s < patience_s

    def latest(self, kind: str, name: str) -> Job | None:
        """The job of a kind that worked on a projection last."""
        return next((job for job in reversed(self._jobs.values()) if job.kind == kind and name in job.names), None)

    def get(self, id: str) -> Job | None:
        """A job by its id."""
        return self._jobs.get(id)

    def start(self, kind: str, names: Sequence[str], *options: str) -> Job:
        """Start a job; it runs on by itself. ``options`` are those of the job process.

        Raises Transient while AT_ONCE others run.
        """
        others = [job for job in self._jobs.values() if job.running and job.kind not in _TELL_APART]
        if kind not in _TELL_APART and len(others) >= AT_ONCE:
            kinds = ", ".join(sorted({job.kind for job in others}))
            raise Transient(f"{len(others)} jobs run already ({kinds}): wait until one has ended, or cancel one")
        parts = {name: Part() for name in (names if kind in _TELL_APART else (WHOLE,))}
        job = Job(uuid4().hex, kind, tuple(names), options, parts)
        self._jobs[job.id] = job
        for old in [one.id for one in self._jobs.values() if not one.running][: -KEPT_JOBS or None]:
            del self._jobs[old]
        task = asyncio.create_task(self._run(job), name=f"job {kind} {' '.join(names)}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return job

    def cancel(self, job: Job, name: str = WHOLE) -> None:
        """Ask a job to cancel all, or what it does for one projection; how it ends tells whether it did."""
        job.cancelling.append(name)
        process = self._processes.get(job.id)
        if process is not None:
            _write_cancel(process, name)

    async def stop(self) -> None:
        """End the jobs that run; what they were at is as if it had been killed, which is safe."""
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                process.terminate()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_STOP_S)
            for process in list(self._processes.values()) if late else ():
                with suppress(ProcessLookupError):
                    process.kill()
            await asyncio.gather(*self._tasks)

    async def _run(self, job: Job) -> None:
        command = (sys.executable, "-m", "services.api.job", job.kind, *job.names, *job.options)
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                env=self._environ,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=_LINE_BYTES,
                start_new_session=True,
            )
        except OSError as error:
            self._end(job, f"the job process cannot be started: {error.strerror}")
            return
        self._processes[job.id] = process
        for name in job.cancelling:
            _write_cancel(process, name)
        self._end(job, await _listen(job, process))
        del self._processes[job.id]

    def _end(self, job: Job, error: str) -> None:
        for name, part in job.parts.items():
            part.end("failed" if error else "done", error)
            _log.log(logging.WARNING if part.state == "failed" else logging.INFO, "%s", _ended(job, name, part))


async def _listen(job: Job, process: asyncio.subprocess.Process) -> str:
    """Take over what a job's process tells until it ends; why it failed as a whole, if it did."""
    assert process.stdout is not None
    assert process.stderr is not None
    stderr = asyncio.create_task(_tail(process.stderr))
    failed = ""
    async for line in process.stdout:
        said, job.heard_s = orjson.loads(line), time.monotonic()
        named = said.get("projection", WHOLE)
        if named in job.parts:
            job.parts[named].hear(said)
        failed = said.get("error", failed) if named == WHOLE else failed
    code = await process.wait()
    said_last = await stderr
    if process.stdin is not None:
        process.stdin.close()
    if code and not failed:
        return f"the job process ended with code {code}: {said_last or 'it said nothing'}"
    return failed


def _ended(job: Job, name: str, part: Part) -> str:
    """What became of a job, or of one of its parts, in a line for the log."""
    what = f"{job.kind} of {name or ' '.join(job.names)} {part.state}"
    if part.error:
        return f"{what}: {part.error}"
    if job.kind in _CHANGE_WHAT_IS_READ and isinstance(part.result, dict):
        return f"{what}: generation {part.result.get('generation')} is read"
    return what


def _write_cancel(process: asyncio.subprocess.Process, name: str) -> None:
    if process.stdin is not None and not process.stdin.is_closing():
        process.stdin.write(f"{name}\n".encode())


async def _tail(stream: asyncio.StreamReader) -> str:
    """The last lines of a stream that is read to its end."""
    tail = b""
    while chunk := await stream.read(_STDERR_BYTES):
        tail = (tail + chunk)[-_STDERR_BYTES:]
    return tail.decode("utf-8", "replace").strip()
