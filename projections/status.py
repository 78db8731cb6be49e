"""How far a read model is, partition by partition, and whether it gets on: from what its owners have written down.

Any process can tell, wherever the owners run. Seconds are of one clock, the database's.

==============  =======================================================================================
live            what was archived more than a moment ago is folded
behind          it gets on, and is not there yet
paused          an error that may pass holds it up; it tries again by itself (``reason``)
stuck           it does not get on, though there is work (``reason``)
unowned         no live worker holds it
stale           other code made the generation: rebuild it
rebuilding      a generation that will replace it is being made
abandoned       whoever was rebuilding it died or stands still
missing         there is no generation yet
==============  =======================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, select, tuple_

from events.archive.schema import event_log
from events.clock import database_now_ms
from events.event import Position
from projections import generations
from projections.engine import ownership
from projections.engine.reports import Holding
from projections.generations import Generation

FRESH_S = 2.0
"""An event that was archived so lately does not make its partition ``behind``."""
STUCK_S = 30.0
"""How long a partition that has work may stand still."""

PartitionState = Literal["live", "behind", "paused", "stuck", "unowned"]
State = Literal["live", "behind", "paused", "stuck", "unowned", "stale", "rebuilding", "abandoned", "missing"]

_WORST_FIRST: tuple[PartitionState, ...] = ("stuck", "unowned", "paused", "behind", "live")


@dataclass(frozen=True)
class PartitionStatus:
    """One partition of one read model.

    ``lag_s``: age of the oldest archived event that is not folded. ``owner``: the process that holds it, "" for none.
    ``still_s``: seconds since it got on, as its owner says; None where it has not said. ``events_per_s``: how fast it
    got on lately; ``eta_s``: how long the rest takes at that pace, None when that cannot be told.
    """

    partition: int
    position: Position
    state: PartitionState
    lag_events: int
    lag_s: float
    owner: str
    still_s: float | None
    events_per_s: float
    eta_s: float | None
    reason: str


@dataclass(frozen=True)
class ProjectionStatus:
    """One read model: how many events behind the archive, for how many seconds, and what it waits for.

    ``progress`` is that of a rebuild which is not done. ``lag_s`` is that of the partition that waits longest,
    ``eta_s`` that of the one that needs longest.
    """

    name: str
    generation: int
    state: State
    lag_events: int
    lag_s: float
    dead_letters: int
    parked_keys: int
    reason: str = ""
    progress: Mapping[str, Any] | None = None
    events_per_s: float = 0.0
    eta_s: float | None = None
    partitions: Sequence[PartitionStatus] = ()


def partition_status(
    partition: int,
    position: Position,
    lag_events: int,
    lag_s: float,
    holding: Holding | None,
    paused: str,
    stuck_after_s: float = STUCK_S,
) -> PartitionStatus:
    """Judge one partition. ``holding``: who holds it, None for nobody; ``paused``: the reason in its checkpoint."""
    reason = paused or (holding.waits_for if holding is not None else "")
    still_s = None if holding is None else holding.still_s
    state: PartitionState = "live"
    if holding is None:
        state = "unowned"
    # an owner that never said anything may be at its first batch; what just came keeps nobody waiting
    elif lag_events and min(lag_s, still_s or 0.0) > stuck_after_s:
        state = "stuck"
    elif lag_events and reason:
        state = "paused"
    elif lag_s > FRESH_S:
        state = "behind"
    rate = 0.0 if holding is None else holding.events_per_s
    eta_s = lag_events / rate if lag_events and rate > 0 else None if lag_events else 0.0
    return PartitionStatus(
        partition, position, state, lag_events, lag_s, "" if holding is None else holding.owner, still_s, rate, eta_s,
        reason if state in ("stuck", "paused") else "",
    )  # fmt: skip


def projection_status(
    name: str,
    generation: int,
    state: State,
    partitions: Sequence[PartitionStatus],
    *,
    dead_letters: int,
    parked_keys: int,
    reason: str,
    progress: Mapping[str, Any] | None,
) -> ProjectionStatus:
    """Sum up the partitions of a read model."""
    etas = [each.eta_s for each in partitions]
    return ProjectionStatus(
        name, generation, state,
        sum(each.lag_events for each in partitions),
        max((each.lag_s for each in partitions), default=0.0),
        dead_letters, parked_keys, reason, progress,
        sum(each.events_per_s for each in partitions),
        None if None in etas else max((eta for eta in etas if eta is not None), default=0.0),
        partitions,
    )  # fmt: skip


def overall(
    name: str, partitions: Sequence[PartitionStatus], *, building: bool, built: bool, stale: bool
) -> tuple[State, str]:
    """What is told of a read model as a whole, and why: its rebuild first, else its worst partitions.

    ``building``: another generation is begun, and ``built``: somebody is at it.
    """
    if building and not built:
        return "abandoned", why_abandoned(name)
    if building:
        return "rebuilding", why_stale(name, rebuilding=True) if stale else ""
    if stale:
        return "stale", why_stale(name, rebuilding=False, folded=any(each.owner for each in partitions))
    states = {each.state for each in partitions}
    state: PartitionState = next((state for state in _WORST_FIRST if state in states), "live")
    return state, _why(name, state, partitions)


def _why(name: str, state: PartitionState, partitions: Sequence[PartitionStatus]) -> str:
    """Which partitions are in this state, why, and what to do."""
    those = [each for each in partitions if each.state == state]
    which = "it" if len(those) == len(partitions) else _named([each.partition for each in those])
    reason = next((each.reason for each in those if each.reason), "")
    if state == "unowned":
        return f"no worker folds {which}: start one with `refold worker --role projector --projections {name}`"
    if state == "stuck":
        still_s = max(each.still_s or 0.0 for each in those)
        said = reason or f"{those[0].owner} does not say why: see the log of that process"
        return f"{which} stood still for {still_s:.0f} s: {said}"
    return reason if which == "it" or not reason else f"{which}: {reason}"


def _named(partitions: Sequence[int]) -> str:
    return f"partition{'' if len(partitions) == 1 else 's'} {', '.join(map(str, partitions))}"


def oldest_waiting_s(conn: Connection, behind: Mapping[int, Position]) -> dict[int, float]:
    """For each partition the age in seconds of the first archived event after a position: a look at its key each."""
    table = event_log.c
    now = database_now_ms(conn) if behind else 0
    ages = {}
    for partition, position in behind.items():
        following = select(table.received_ms).where(
            table.partition == partition, tuple_(table.epoch, table.n) > tuple_(*position)
        )
        received = conn.execute(following.order_by(table.epoch, table.n).limit(1)).scalar()
        ages[partition] = 0.0 if received is None else max(0.0, (now - received) / 1000)
    return ages


def find_building(conn: Connection, projection: str) -> tuple[Generation | None, bool]:
    """The generation that is being built, or was when its builder died; and whether a builder is at it."""
    return generations.building(conn, projection), ownership.is_held(conn, ownership.rebuild_lease(projection))


def why_abandoned(name: str) -> str:
    """What is said of a rebuild that nobody is at."""
    return f"the process that rebuilt it died or stands still: run `refold rebuild {name}` to continue its work"


def why_stale(name: str, *, rebuilding: bool, folded: bool = False) -> str:
    """What is said of a generation that other code made. ``folded``: live workers of that code go on with it."""
    if rebuilding:
        return "made by other code: it is being rebuilt"
    if folded:
        return f"made by other code, whose workers fold it: `refold rebuild {name}` is only to take it from them"
    return f"made by other code: run `refold rebuild {name}`"
