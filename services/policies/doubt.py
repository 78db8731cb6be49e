"""Whether a rule reads like an order to act against the people whom its reader works for."""

from __future__ import annotations

from functools import lru_cache

from services.curation.safety import is_order


@lru_cache(maxsize=16_384)
def doubt(text: str) -> bool:
    """The curator's judgement of a text (C39), remembered: policies tell the same rules again and again."""
    return is_order(text)
