"""``python -m services.api.job KIND NAME...``: one job in a process of its own; see ``services.api.jobs``.

A line on standard input cancels the work for the projection that it names, an empty one everything. SIGTERM ends the
process as soon as what it holds is given back; a rebuild that is ended so is continued by the next one.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from events.archive.queries import count_events
from events.database import Database, Stores
from events.errors import RefoldError
from projections.projection import Projection
from projections.rebuilding.cancel import is_requested
from projections.rebuilding.dry_run import dry_run
from projections.rebuilding.mend import mend
from projections.rebuilding.progress import Cancelled
from projections.rebuilding.rebuild import rollback
from projections.rebuilding.scope import Scope
from projections.rebuilding.verify import as_document, verify
from services.api.refolding import Options, Refolding
from services.api.retrying import retry
from services.api.telling import Throttled, channel, say
from services.card_templates import projections_of
from services.settings import Settings

_LOOK_S = 0.5


class Cancels:
    """What is to be cancelled: as standard input says, and as is marked in the log store from elsewhere."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._named: set[str] = set()
        self._looked_s: dict[str, float] = {}
        threading.Thread(target=self._listen, name="cancel", daemon=True).start()

    def __call__(self, name: str = "") -> bool:
        """Whether the work for this projection is to end."""
        return bool(self._named & {"", name}) or (name != "" and self._marked(name))

    def _marked(self, name: str) -> bool:
        now = time.monotonic()
        if now - self._looked_s.get(name, -_LOOK_S) < _LOOK_S:
            return False
        self._looked_s[name] = now
        if self._db.read_now(lambda conn: is_requested(conn, name)):
            self._named.add(name)
        return name in self._named

    def _listen(self) -> None:
        # not sys.stdin, whose lock a thread that waits would hold when the interpreter ends
        told = b""
        while chunk := os.read(0, 4096):
            *lines, told = (told + chunk).split(b"\n")
            self._named.update(line.decode() for line in lines)


@dataclass(frozen=True)
class _Work:
    """What the job kinds have in common."""

    stores: Stores
    db: Database
    settings: Settings
    cancel: Cancels
    options: Options
    scope: Scope

    def rebuild(self, projections: Sequence[Projection]) -> None:
        """Rebuild them in one pass, and tell of each apart."""
        Refolding(self.stores, self.db, self.settings.lease_s, self.cancel, self.options).run(projections)

    def verify(self, projections: Sequence[Projection]) -> None:
        """Verify them one after the other. Each counts as many events as the log has now, so that the total stands."""
        results, each = [], self.db.read_now(count_events)
        for number, projection in enumerate(projections, 1):
            phase = f"{projection.name}, {number} of {len(projections)}"
            told = Throttled(phase, (number - 1) * each, each, len(projections) * each)
            results.append(verify(projection, self.stores, self.db, progress=told, cancel=self.cancel))
        say(result=as_document(results))

    def dry_run(self, projections: Sequence[Projection]) -> None:
        """Tell what a rebuild of the first would change."""
        told = Throttled("folding")
        run = dry_run(
            projections[0], self.stores, self.db,
            scope=self.scope, told=told, cancel=self.cancel, max_events_per_s=self.options.rate,
        )  # fmt: skip
        say(result=run.as_dict())

    def repair(self, projections: Sequence[Projection]) -> None:
        """Mend a part of the live generation of the first."""
        told = Throttled("folding")
        mended = mend(projections[0], self.stores, self.db, self.scope, told=told, cancel=self.cancel)
        say(result=mended.as_dict())

    def rollback(self, projections: Sequence[Projection]) -> None:
        """Go back to the generation of the first that was read before."""
        former = rollback(projections[0].name, self.stores, self.db, projections[0])
        say(result={"generation": former.number, "current_code": former.matches(projections[0])})

    def retry(self, projections: Sequence[Projection]) -> None:
        """Fold dead letters of the first again."""
        say(result=retry(projections[0], self.stores, self.db, self.scope))


KINDS: Mapping[str, Callable[[_Work, Sequence[Projection]], None]] = {
    "rebuild": _Work.rebuild,
    "verify": _Work.verify,
    "dry-run": _Work.dry_run,
    "repair": _Work.repair,
    "rollback": _Work.rollback,
    "retry": _Work.retry,
}


NICE = 10
"""How far a job, and the processes that it starts, give way to those whom somebody waits for."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one job; the exit code is 1 when it failed as a whole, its last line then says why."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    channel()
    if hasattr(os, "nice"):
        os.nice(NICE)
    given = _parser().parse_args(arguments)
    options = Options(given.check, given.allow_dead_letters, given.rate, given.processes)
    try:
        settings = Settings.read(os.environ)
        known = projections_of(settings)
        stores = Stores(settings.stores_url)
        db = stores.log()
        try:
            work = _Work(stores, db, settings, Cancels(db), options, Scope(given.org, given.key))
            KINDS[given.kind](work, [known[name] for name in given.names])
        finally:
            db.close()
    except Cancelled as error:
        say(cancelled=str(error))
    except RefoldError as error:
        say(error=str(error))
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="services.api.job")
    parser.add_argument("kind", choices=tuple(KINDS))
    parser.add_argument("names", nargs="+")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--allow-dead-letters", action="store_true")
    parser.add_argument("--rate", type=float)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--org")
    parser.add_argument("--key")
    return parser


if __name__ == "__main__":
    sys.exit(main())
