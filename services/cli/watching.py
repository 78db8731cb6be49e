"""Watching jobs of an instance: a bar for each until all are over, and how a watcher leaves."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from services.cli.client import Client
from services.cli.errors import INTERRUPTED, CliError
from services.cli.output import progress

POLL_S = 0.2


def watch(
    client: Client, paths: Mapping[str, str], describe: Callable[[str], str], leave: Callable[[], str]
) -> dict[str, dict[str, Any]]:
    """Show how far the jobs at these paths are until all are over; their last documents, by the same names.

    Ctrl-C ends the watching: with how far they were, and what ``leave`` says becomes of them.
    """
    jobs: dict[str, dict[str, Any]] = {}
    try:
        jobs |= {name: client.get(path) for name, path in paths.items()}
        with progress("events") as bars:
            lines = {name: bars.add_task(describe(name), total=None, rate="-") for name in jobs}
            while True:
                for name, job in jobs.items():
                    bars.update(lines[name], **_shown(describe(name), job))
                running = [name for name, job in jobs.items() if job["state"] == "running"]
                if not running:
                    return jobs
                time.sleep(POLL_S)
                jobs |= {name: client.get(paths[name]) for name in running}
    except KeyboardInterrupt as interrupt:
        done, total = (sum(job[what] or 0 for job in jobs.values()) for what in ("events", "total"))
        far = f"after {done:,} of {total:,} events" if total else "before the first event"
        raise CliError(f"interrupted {far}: {leave()}", INTERRUPTED) from interrupt


def watch_one(client: Client, path: str, description: str, cancel: str) -> dict[str, Any]:
    """``watch`` for a job that Ctrl-C cancels, since nobody else waits for it; ``cancel`` says what that means."""

    def leave() -> str:
        client.request("DELETE", path)
        return f"it is cancelled; {cancel}"

    return watch(client, {"": path}, lambda _: description, leave)[""]


def _shown(description: str, job: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a bar, of a job that tells ``phase``, ``events``, ``total`` and ``events_per_s``."""
    rate, phase = job.get("events_per_s"), job.get("phase")
    total = job.get("total") or None
    return {
        "completed": total or 0 if job["state"] == "done" else job.get("events") or 0,
        "total": total,
        "rate": f"{rate:,.0f}" if rate else "-",
        "description": f"{description} ({phase})" if phase else description,
    }
