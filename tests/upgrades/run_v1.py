"""What a process of the former version runs: a registry for ``REFOLD_PROJECTIONS``, and its event type with it."""

from events.registry import EVENT_TYPES
from tests.upgrades.goals_v1 import PROJECTIONS, TYPE

__all__ = ["PROJECTIONS"]

EVENT_TYPES[TYPE.name] = TYPE  # type: ignore[index]
