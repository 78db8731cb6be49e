"""What each org has spent on models today (UTC), so that none spends more than it may."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime

from events.errors import RefoldError
from services.models.routes import Routes

Recorded = Callable[[str, str], Awaitable[int]]
"""Tokens that an org is known to have spent on a day (``2026-03-01``). Raises RefoldError."""


def today() -> date:
    """The day in UTC."""
    return datetime.now(UTC).date()


class Budget:
    """Tokens spent by org and day: what this process has counted, or what is recorded of all, where that is more.

    ``recorded`` comes late by what is not folded yet, and holds what other processes and former lives have spent.
    """

    def __init__(self, routes: Routes, recorded: Recorded | None = None, day: Callable[[], date] = today) -> None:
        self.recorded = recorded
        self._routes = routes
        self._day = day
        self._today = day()
        self._spent: dict[str, int] = defaultdict(int)

    async def is_spent(self, org: str) -> bool:
        """Whether the org has spent what it may today."""
        limit = self._routes.budget(org)
        if limit is None:
            return False
        self._turn()
        return self._spent[org] >= limit or await self._known(org) >= limit

    def spend(self, org: str, tokens: int) -> None:
        """The org spent tokens."""
        self._turn()
        self._spent[org] += tokens

    async def _known(self, org: str) -> int:
        if self.recorded is None:
            return 0
        try:
            return await self.recorded(org, self._today.isoformat())
        except RefoldError:  # who cannot tell now does not stop the others
            return 0

    def _turn(self) -> None:
        if (day := self._day()) != self._today:
            self._today = day
            self._spent.clear()
