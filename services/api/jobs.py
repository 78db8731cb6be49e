"""Long work that the API starts: in processes of its own, so that it never stands in the way of a read or a write.

A job process (``services.api.job``) writes its progress as JSON lines, and its result or error as the last one.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import uuid4

import orjson

KEPT_JOBS = 100
_LINE_BYTES = 64 << 20
_STDERR_BYTES = 4096
_STOP_S = 5.0


@dataclass
class Job:
    """One job. ``progress`` is what it told last; ``result`` stands when it is done, ``error`` when it failed."""

    id: str
    kind: str
    names: tuple[str, ...]
    options: tuple[str, ...] = ()
    state: Literal["running", "done", "failed"] = "running"
    progress: dict[str, Any] = field(default_factory=dict)
    result: Any = None
    error: str = ""
    started_s: float = field(default_factory=time.monotonic)
    heard_s: float = field(default_factory=time.monotonic)
    ended_s: float | None = None

    @property
    def seconds(self) -> float:
        """How long it has run, or ran."""
        return (self.ended_s or time.monotonic()) - self.started_s

    @property
    def silent_s(self) -> float:
        """How long it has told nothing."""
        return time.monotonic() - self.heard_s

    def document(self) -> dict[str, Any]:
        """What the API shows of it. ``eta_s`` is None where nothing can be told yet."""
        events, total = self.progress.get("events", 0), self.progress.get("total", 0)
        rate = self.progress.get("events_per_s") or events / max(self.seconds, 1e-9)
        return {
            "id": self.id,
            "kind": self.kind,
            "projections": list(self.names),
            "state": self.state,
            "phase": self.progress.get("phase", ""),
            "events": events,
            "total": total,
            "events_per_s": round(rate),
            "eta_s": round((total - events) / rate, 1) if rate and total and self.state == "running" else None,
            "seconds": round(self.seconds, 3),
            "result": self.result,
            "error": self.error,
        }


class Jobs:
    """The jobs of one API process, the last KEPT_JOBS of them. ``environ`` gives the job processes their settings."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = {**os.environ, **environ}
        self._jobs: dict[str, Job] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._processes: set[asyncio.subprocess.Process] = set()

    def running(self, kind: str, name: str) -> Job | None:
        """The job of a kind that works on a projection, if it runs; an older one that stands still is not asked."""
        job = self.latest(kind, name)
        return job if job is not None and job.state == "running" else None

    def latest(self, kind: str, name: str) -> Job | None:
        """The job of a kind that worked on a projection last."""
        return next((job for job in reversed(self._jobs.values()) if job.kind == kind and name in job.names), None)

    def get(self, id: str) -> Job | None:
        """A job by its id."""
        return self._jobs.get(id)

    def start(self, kind: str, names: Sequence[str], *options: str) -> Job:
        """Start a job; it runs on by itself. ``options`` are those of the job process."""
        job = Job(uuid4().hex, kind, tuple(names), options)
        self._jobs[job.id] = job
        for old in [one.id for one in self._jobs.values() if one.state != "running"][: -KEPT_JOBS or None]:
            del self._jobs[old]
        task = asyncio.create_task(self._run(job, options), name=f"job {kind} {' '.join(names)}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return job

    async def stop(self) -> None:
        """End the jobs that run; what they were at is as if it had been killed, which is safe."""
        for process in self._processes:
            with suppress(ProcessLookupError):
                process.terminate()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_STOP_S)
            for process in self._processes if late else ():
                with suppress(ProcessLookupError):
                    process.kill()
            await asyncio.gather(*self._tasks)

    async def _run(self, job: Job, options: Sequence[str]) -> None:
        command = (sys.executable, "-m", "services.api.job", job.kind, *job.names, *options)
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                env=self._environ,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=_LINE_BYTES,
                start_new_session=True,
            )
        except OSError as error:
            self._end(job, f"the job process cannot be started: {error.strerror}")
            return
        self._processes.add(process)
        assert process.stdout is not None
        assert process.stderr is not None
        stderr = asyncio.create_task(_tail(process.stderr))
        async for line in process.stdout:
            said, job.heard_s = orjson.loads(line), time.monotonic()
            job.progress.update(said.get("progress", {}))
            job.result = said.get("result", job.result)
            job.error = said.get("error", job.error)
        code = await process.wait()
        self._processes.discard(process)
        said_last = await stderr
        if code and not job.error:
            job.error = f"the job process ended with code {code}: {said_last or 'it said nothing'}"
        self._end(job, job.error)

    def _end(self, job: Job, error: str) -> None:
        job.error, job.ended_s = error, time.monotonic()
        job.state = "failed" if error else "done"


async def _tail(stream: asyncio.StreamReader) -> str:
    """The last lines of a stream that is read to its end."""
    tail = b""
    while chunk := await stream.read(_STDERR_BYTES):
        tail = (tail + chunk)[-_STDERR_BYTES:]
    return tail.decode("utf-8", "replace").strip()
