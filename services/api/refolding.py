"""What a rebuild job does: all its projections in one pass; those that another process rebuilds are watched."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from events.database import Database, Stores
from events.errors import RefoldError, Refused, Transient
from projections import generations
from projections.generations import Generation
from projections.projection import Projection
from projections.rebuilding.progress import Cancelled, Progress
from projections.rebuilding.rebuild_together import NotAllRebuilt, rebuild_together
from services.api.telling import say, say_progress

WATCH_S = 0.3

OUTAGE_S = 120.0
"""How long the store may be away before a rebuild fails; what is folded by then, the next one continues."""


@dataclass(frozen=True)
class Options:
    """How to rebuild; see ``projections.rebuilding.rebuild``."""

    check: bool = False
    allow_dead_letters: bool = False
    rate: float | None = None
    processes: int | None = None


@dataclass
class Refolding:
    """Rebuilds projections, and tells of each apart how it goes and how it ends."""

    stores: Stores
    db: Database
    lease_s: float
    cancel: Callable[[str], bool]
    options: Options
    _before: dict[str, int] = field(default_factory=dict)
    _watched: dict[str, Generation] = field(default_factory=dict)
    _away_since: float | None = None

    def run(self, projections: Sequence[Projection]) -> None:
        """Rebuild them. One whose builder elsewhere dies is continued here; a store that is away is waited for."""
        left = list(projections)
        while left:
            again = self._rebuild(left)
            if again:
                time.sleep(WATCH_S)
            left = [each for each in left if each.name in again and self._is_open(each.name)]

    def _rebuild(self, projections: Sequence[Projection]) -> set[str]:
        """Rebuild those that nobody else rebuilds; the names of those that are to be tried again."""
        built: Mapping[str, Generation]
        failures: Mapping[str, RefoldError] = {}
        try:
            for each in projections:
                if each.name not in self._before:
                    self._before[each.name] = self._active(each.name)
            built = rebuild_together(
                projections, self.stores, self.db,
                progress=self._say_progress, cancel=self.cancel, verify=self.options.check,
                allow_dead_letters=self.options.allow_dead_letters, processes=self.options.processes,
                lease_ttl_s=self.lease_s, max_events_per_s=self.options.rate,
            )  # fmt: skip
        except NotAllRebuilt as error:
            built, failures = error.built, error.failures
        except Transient as error:
            built, failures = {}, {each.name: error for each in projections}
        for name, generation in built.items():
            say(name, result={"generation": generation.number})
        again = {name for name, why in failures.items() if _is_taken(why) or self._passes(why)}
        for name in failures.keys() - again:
            told = {"cancelled" if isinstance(failures[name], Cancelled) else "error": str(failures[name])}
            say(name, **told)
        return again

    def _say_progress(self, name: str, progress: Progress) -> None:
        self._away_since = None
        say_progress(name, progress)

    def _passes(self, why: RefoldError) -> bool:
        """Whether it failed since a store is away, and that not for too long."""
        if not isinstance(why, Transient):
            return False
        self._away_since = self._away_since or time.monotonic()
        return time.monotonic() - self._away_since < OUTAGE_S

    def _is_open(self, name: str) -> bool:
        """Whether it is still to be rebuilt, here or elsewhere; what it came to elsewhere is told."""
        try:
            return self._look(name)
        except Transient:
            return True

    def _look(self, name: str) -> bool:
        building = self.db.read_now(partial(generations.building, projection=name))
        if building is not None:
            self._watched[name] = building
            if building.progress:
                say_progress(name, Progress(**building.progress))
            return True
        active = self._active(name)
        if active != self._before.setdefault(name, active):
            note = {"note": "another process rebuilt it, perhaps without the check"} if self.options.check else {}
            say(name, result={"generation": active, **note})
            return False
        watched = self._watched.get(name)
        if watched is None:
            return True
        say(name, cancelled=f"{watched.name}, which another process built, was cancelled or failed its check")
        return False

    def _active(self, name: str) -> int:
        found = self.db.read_now(partial(generations.active, projection=name))
        return 0 if found is None else found.number


def _is_taken(why: RefoldError) -> bool:
    return isinstance(why, Refused) and why.code == "already_rebuilding"
