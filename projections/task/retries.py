"""Which calls are to be tried again: those whose newest try has failed.

What tries of one call have in common is its *effect*. They are in order by the positions of their ``tool.called``, so
that it makes no difference which of their results comes first. ``row`` is the workbench's, for which see there.
"""

from __future__ import annotations

from typing import Any

from projections.projection import Row
from projections.task.scene import Mutable

ITEMS = 20
"""Items that a section of the workbench keeps, failures that are counted of one call, calls remembered as come through:
the latest."""

Asked = list[int]
"""The position of a ``tool.called``: epoch and n."""


def is_newer(row: Row, effect: str, asked: Asked) -> bool:
    """Whether no newer try is known to have come through."""
    return all(of != effect or asked > position for of, *position in row["came_through"] or ())


def add(row: Mutable, effect: str, asked: Asked, told: Mutable) -> None:
    """One more failed try; the newest is told, whichever is known first."""
    before, others = _apart(row, effect)
    failed = sorted([*(before["asked"] if before else ()), asked])[-ITEMS:]
    item = told if before is None or failed[-1] == asked else before
    row["to_retry"] = [*others, {**item, "effect": effect, "asked": failed, "failures": len(failed)}][-ITEMS:]


def left_after(row: Row, effect: str, asked: Asked) -> list[Any] | None:
    """The calls to be tried again now that a try of this one came through: failures before it count no more."""
    before, others = _apart(row, effect)
    if before is None:
        return others or None
    failed = [one for one in before["asked"] if one > asked]
    return [*others, {**before, "asked": failed, "failures": len(failed)}] if failed else others or None


def remember(row: Mutable, effect: str, asked: Asked) -> None:
    """A try came through while others, which may be older, have no result yet."""
    known = row["came_through"] or []
    newest = max([asked, *(position for of, *position in known if of == effect)])
    row["came_through"] = [*(one for one in known if one[0] != effect), [effect, *newest]][-ITEMS:]


def shown(item: Any) -> Any:
    """An item as readers see it: without the positions by which failures are told apart."""
    return {name: value for name, value in item.items() if name != "asked"} if _effect(item) else item


def _apart(row: Row, effect: str) -> tuple[Mutable | None, list[Any]]:
    """The item of an effect, and the others."""
    items: list[Any] = row["to_retry"] or []
    own = next((item for item in items if _effect(item) == effect), None)
    return own, [item for item in items if item is not own]


def _effect(item: Any) -> str:
    """The effect that an item stands for; "" for one that the agent wrote itself."""
    return str(item["effect"]) if isinstance(item, dict) and {"effect", "asked", "failures"} <= item.keys() else ""
