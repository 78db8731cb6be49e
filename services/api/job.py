"""``python -m services.api.job rebuild|verify NAME...``: one job in a process of its own; see ``services.api.jobs``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from events.archive.queries import count_events
from events.database import Database, Stores
from events.errors import RefoldError, Refused
from projections import generations
from projections.generations import Generation
from projections.projection import Projection
from projections.rebuild import Progress, rebuild
from projections.registry import load_projections
from projections.verify import as_document, verify
from services.settings import Settings

WATCH_S = 0.3
REPORT_EVERY_S = 0.1


@dataclass(frozen=True)
class _Job:
    stores: Stores
    db: Database
    settings: Settings

    def rebuild(self, projection: Projection, check: bool) -> dict[str, Any]:
        """Rebuild it. One that runs elsewhere is watched to its end instead, and continued if its process dies.

        ``note`` says so when the one that was watched may have lacked the check that was asked for.
        """
        before = self._active(projection)
        while True:
            try:
                built = rebuild(
                    projection, self.stores, self.db,
                    progress=_progress, verify=check, lease_ttl_s=self.settings.lease_s,
                )  # fmt: skip
            except Refused as refusal:
                if refusal.code != "already_rebuilding":
                    raise
                time.sleep(WATCH_S)
                elsewhere = self.db.read_now(lambda conn: generations.building(conn, projection.name))
                if elsewhere is not None and elsewhere.progress:
                    _progress(Progress(**elsewhere.progress))
                now = self._active(projection)
                if now is None or now == before:
                    continue
                note = {"note": "another process rebuilt it, perhaps without the check"} if check else {}
                return {"generation": now.number, **note}
            return {"generation": built.number}

    def verify(self, projections: Sequence[Projection]) -> dict[str, Any]:
        """Verify them one after the other. Each counts as many events as the log has now, so that the total stands."""
        results, each = [], self.db.read_now(count_events)
        for number, projection in enumerate(projections, 1):
            phase = f"{projection.name}, {number} of {len(projections)}"
            told = _Throttled(phase, (number - 1) * each, each, len(projections) * each)
            results.append(verify(projection, self.stores, self.db, progress=told))
        return as_document(results)

    def _active(self, projection: Projection) -> Generation | None:
        return self.db.read_now(lambda conn: generations.active(conn, projection.name))


class _Throttled:
    """Tells progress at most every REPORT_EVERY_S: ``share`` events of ``total``, which follow ``before`` others."""

    def __init__(self, phase: str, before: int, share: int, total: int) -> None:
        self.phase, self.before, self.share, self.total = phase, before, share, total
        self.told_s = 0.0

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self.told_s >= REPORT_EVERY_S or done == total:
            self.told_s = now
            events = self.before + (self.share * done // total if total else self.share)
            _say(progress={"phase": self.phase, "events": events, "total": self.total})


def _progress(progress: Progress) -> None:
    known = {"phase": progress.phase, "events": progress.done, "total": progress.total}
    _say(progress={**known, "events_per_s": progress.events_per_s})


def _say(**value: Any) -> None:
    sys.stdout.buffer.write(orjson.dumps(value, default=str) + b"\n")
    sys.stdout.buffer.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one job; the exit code is 1 when it failed, its last line then says why."""
    parser = argparse.ArgumentParser(prog="services.api.job")
    parser.add_argument("kind", choices=("rebuild", "verify"))
    parser.add_argument("names", nargs="+")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args(arguments)
    try:
        settings = Settings.read(os.environ)
        known = load_projections(settings.projections)
        stores = Stores(settings.stores_url)
        db = stores.log()
        job = _Job(stores, db, settings)
        try:
            if given.kind == "rebuild":
                _say(result=job.rebuild(known[given.names[0]], given.check))
            else:
                _say(result=job.verify([known[name] for name in given.names]))
        finally:
            db.close()
    except RefoldError as error:
        _say(error=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
