"""What a process of the next version runs where it renamed ``goals``, and split it: a registry, and its event type."""

from events.registry import EVENT_TYPES
from projections.registry import PROJECTIONS as SHIPPED
from tests.upgrades.goals_v2 import OBJECTIVES, PROGRESS, TITLES, TYPE

PROJECTIONS = {**SHIPPED, **{one.name: one for one in (OBJECTIVES, PROGRESS, TITLES)}}

EVENT_TYPES[TYPE.name] = TYPE  # type: ignore[index]
