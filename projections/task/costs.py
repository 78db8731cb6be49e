"""Money that adds up: the same total whatever the order of its parts, as sums of floats are not.

A total is kept as decimal text. Each part is taken as it was written in its event (0.1 is a tenth) and rounded to a
millionth of a millionth by itself, before it is added: from there on nothing is rounded.
"""

from __future__ import annotations

from decimal import Context, Decimal

_UNIT = Decimal("1e-12")
_EXACT = Context(prec=60)
"""27 digits hold the largest part (``events.types.base.Cost``), 60 the sum of more of them than a log has positions."""

Costs = dict[str, str]
"""Totals by currency, as decimal text."""


def added(costs: Costs | None, currency: str, cost: float) -> Costs:
    """The totals with one more part."""
    part = Decimal(repr(cost)).quantize(_UNIT, context=_EXACT)
    total = _EXACT.add(Decimal(str((costs or {}).get(currency, "0"))), part)  # str: former code kept a float
    return {**(costs or {}), currency: f"{total.normalize(_EXACT):f}"}


def amounts(costs: Costs | None) -> dict[str, float]:
    """The totals as JSON numbers, each the nearest to what it is."""
    return {currency: float(total) for currency, total in sorted((costs or {}).items())}
