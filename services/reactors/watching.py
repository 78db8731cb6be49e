"""Who watches one partition for lost runs: what each open run was last seen doing, and whether it has fallen silent.

A run is watched from its start until its end. Silence is measured by when the archive received events, and never
longer than somebody has been looking. No silence counts while a run waits for an approval; a call that was declared to
take long counts as a sign of life until it should have returned. Pure: the caller brings events and the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from events.archive.erasing import ERASED
from events.archive.reader import Archived
from events.event import Event, Position, Recorded
from events.registry import FROM_OUTSIDE
from events.types.run import RunTerminated
from events.types.tools import ToolCalled, ToolFailed, ToolReturned
from events.types.world import ApprovalRequested, ApprovalResolved
from services.reactors.trajectory import trajectory

REMEMBERED = 10_000
"""Runs that are known to be over, so that what comes late of them is not looked up."""


class RunKey(NamedTuple):
    """A run."""

    org: str
    task: str
    run: str


@dataclass
class Life:
    """An open run: the position before its first event that matters here, and what it was last seen doing."""

    before: Position
    last: Event
    last_ms: int
    approvals: set[str] = field(default_factory=set)
    calls: dict[str, int] = field(default_factory=dict)
    """Open calls that were declared to take long, and until when, in Unix milliseconds."""
    told_ms: int = 0
    """When it was given up last; the log may not have taken that."""

    def quiet_from(self, since_ms: int) -> int:
        """From when on its silence counts, for somebody who has been looking since ``since_ms``."""
        return max(self.last_ms, self.told_ms, since_ms, *self.calls.values())


class Watch:
    """The open runs of one partition, from ``position`` on. ``read`` makes an event's payload, None for none."""

    def __init__(self, position: Position, read: Callable[[Archived], Recorded | None]) -> None:
        self.position = position
        self.strangers: dict[RunKey, tuple[Position, Archived]] = {}
        self._read = read
        self._lives: dict[RunKey, Life] = {}
        self._over: dict[RunKey, None] = {}

    def see(self, archived: Archived) -> None:
        """The next event of the partition. An unknown run's goes to ``strangers``: it began before, or is over."""
        before, self.position = self.position, archived.position
        ended_erased = archived.verdict == ERASED and archived.type == "run.terminated"
        if archived.verdict != "effective" and not ended_erased:
            return
        event = archived.event()
        if not event.run or event.key != f"task/{event.task}":
            return
        key = RunKey(event.org, event.task, event.run)
        life = self._lives.get(key)
        if ended_erased:
            self._lives.pop(key, None)
            self._forget(key)
        elif life is not None:
            self._add(key, life, archived)
        elif archived.type == "run.started":
            self._lives[key] = Life(before, event, archived.received_ms)
        elif archived.type not in FROM_OUTSIDE and key not in self._over:
            self.strangers[key] = (self.strangers[key][0] if key in self.strangers else before, archived)

    def meet(self, key: RunKey, events: Iterable[Recorded]) -> None:
        """A stranger, given all its events: watched when it was given up as lost and lives, or began before."""
        before, archived = self.strangers.pop(key)
        run = trajectory(events)
        if run.started is None or run.ending is not None:
            if run.ending is None or not _is_lost(run.ending.payload):
                self._forget(key)  # one that is lost may come back
            return
        life = self._lives[key] = Life(before, archived.event(), archived.received_ms)
        life.approvals.update(run.approvals)

    def silent(self, now_ms: int, since_ms: int, limit_s: float) -> list[Life]:
        """The runs that have been silent for too long, and since they were told so."""
        oldest_ms = now_ms - limit_s * 1000
        return [life for life in self._lives.values() if not life.approvals and life.quiet_from(since_ms) < oldest_ms]

    def low_water(self) -> Position:
        """The position from which on everything must be seen again to know what is known here."""
        return min((life.before for life in self._lives.values()), default=self.position)

    def _add(self, key: RunKey, life: Life, archived: Archived) -> None:
        if archived.type == "run.terminated":
            recorded = self._read(archived)
            lost = recorded is not None and isinstance(recorded.payload, RunTerminated) and _is_lost(recorded.payload)
            del self._lives[key]
            if not lost:
                self._forget(key)
            return
        if archived.type not in FROM_OUTSIDE:
            life.last, life.last_ms = archived.event(), archived.received_ms
        if archived.type in _TELLING and (recorded := self._read(archived)) is not None:
            _learn(life, recorded, archived.received_ms)

    def _forget(self, key: RunKey) -> None:
        self._over[key] = None
        if len(self._over) > REMEMBERED:
            del self._over[next(iter(self._over))]


_TELLING = frozenset(("tool.called", "tool.returned", "tool.failed", "approval.requested", "approval.resolved"))


def _is_lost(payload: RunTerminated) -> bool:
    return payload.reason == "lost"


def _learn(life: Life, recorded: Recorded, received_ms: int) -> None:
    """What an event says of how long its run may be silent."""
    match recorded.payload:
        case ToolCalled(call_id=call, expected_s=expected_s) if expected_s:
            life.calls[call] = received_ms + int(expected_s * 1000)
        case ToolReturned(call_id=call) | ToolFailed(call_id=call):
            life.calls.pop(call, None)
        case ApprovalRequested(approval=approval):
            life.approvals.add(approval)
        case ApprovalResolved(approval=approval):
            life.approvals.discard(approval)
            life.last_ms = received_ms
        case _:
            pass
