"""Whether a rule reads like an order to act against the people whom its reader works for."""

from __future__ import annotations

from functools import lru_cache

from services.curation.safety import hides, is_order, visible


@lru_cache(maxsize=16_384)
def doubt(text: str) -> bool:
    """The curator's judgement of a text (C39), remembered: policies tell the same rules again and again.

    Text that hides a part of itself is doubtful whatever it says; invisible characters hide no order.
    """
    return hides(text) or is_order(visible(text))
