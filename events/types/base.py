"""What every payload model shares."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec


class Payload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Data of one event type. Types are strict (``"0.9"`` is no number); unknown fields are stored and ignored."""


JsonValue = Any
"""Any JSON value, kept as it came."""

NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""A whole number that every reader of JSON holds exactly, and every store in its 64 bits."""
Number = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
"""A count that begins at 1: an attempt, a version."""
Summand = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
"""A count that folds add up: millions of the largest still fit 64 bits."""
Cost = Annotated[float, msgspec.Meta(ge=-1e15, le=1e15)]
"""An amount of money that folds add up: no sum of them becomes infinite."""
Seconds = Annotated[float, msgspec.Meta(ge=0)]
Unit = Annotated[float, msgspec.Meta(ge=0, le=1)]
"""A share or a confidence, 0..1."""

Level = Literal["user", "agent", "org"]
"""The level of a scope; which one a thing belongs to follows from its kind (``events.keys``)."""
