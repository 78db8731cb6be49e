"""Many things side by side, but not all at once: each holds a connection, and there are more partitions than those."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

AT_ONCE = 32

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


async def map_bounded(
    work: Callable[[_Item], Awaitable[_Result]], items: Iterable[_Item], at_once: int = AT_ONCE
) -> list[_Result | BaseException]:
    """What the work gave or raised for each item, in their order; never more than ``at_once`` of it runs."""
    free = asyncio.Semaphore(at_once)

    async def run(item: _Item) -> _Result:
        async with free:
            return await work(item)

    return await asyncio.gather(*(run(item) for item in items), return_exceptions=True)
