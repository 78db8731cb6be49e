"""Workers that come and go: what one gives up is free at once, however slow the folds beside it are."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from events.clock import now_ms
from projections.engine import reports
from projections.engine.projector import Projector
from projections.projection import Projection
from projections.read_models import ReadModels
from tests.contracts.engine_lab import PARTITIONS, TOY, Lab, lab_in, note, where
from tests.integration.test_ownership import active_dump, caught_up, projector, reference, until

SLOW_S = 0.01


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = lab_in(tmp_path)
    yield lab
    lab.log.close()


def slowly(recorded: Any, rows: Any) -> Any:
    time.sleep(SLOW_S)
    return TOY.apply(recorded, rows)


SLOW = Projection("toy", 1, TOY.tables, TOY.handles, slowly, TOY.names)


def owners(lab: Lab) -> dict[int, str]:
    held = lab.log.read_now(lambda conn: reports.holdings(conn, "toy__g1"))
    return {partition: holding.owner for partition, holding in held.items()}


def busy_tasks() -> list[str]:
    """One task of each partition."""
    return [next(f"t{n}" for n in range(1000) if where(f"t{n}") == partition) for partition in range(PARTITIONS)]


def test_workers_join_and_leave_while_a_backlog_is_folded_slowly(lab: Lab) -> None:
    """Each gets its share between two steps, nothing is lost or doubled, and the log is folded on meanwhile."""
    tasks = busy_tasks()
    events = [note(f"e{i}", tasks[i % PARTITIONS], "a", i) for i in range(200 * PARTITIONS)]
    positions = lab.archive(*events, received_ms=now_ms())

    async def run() -> None:
        log2 = lab.stores.log()
        models = ReadModels([SLOW], lab.stores, lab.log)
        one, two = projector(lab, "one", SLOW), projector(lab, "two", SLOW, log=log2)
        await one.start()

        async def held_by(*workers: Any) -> bool:
            shares = list((await asyncio.to_thread(owners, lab)).values())
            return [shares.count(each.owner) for each in workers] == [PARTITIONS // len(workers)] * len(workers)

        await until(partial(held_by, one))
        await two.start()
        await until(partial(held_by, one, two))
        (status,) = await models.status()
        assert status.lag_events > 0, "it was shared while there was work"
        assert {each.owner for each in status.partitions} == {one.owner, two.owner}
        await one.stop()
        await until(partial(held_by, two))
        await until(partial(caught_up, models), 60)
        await two.stop()
        assert owners(lab) == {}
        log2.close()
        models.close()

    asyncio.run(run())
    assert active_dump(lab) == reference(events, positions)


def test_a_partition_is_free_as_soon_as_it_has_stopped_not_when_all_have(lab: Lab) -> None:
    """Of a worker that stops, the idle partitions do not wait for the one that is in the middle of a slow step."""
    begun, go_on = threading.Event(), threading.Event()

    def stands_still(recorded: Any, rows: Any) -> Any:
        begun.set()
        assert go_on.wait(60)
        return TOY.apply(recorded, rows)

    tasks = busy_tasks()
    lab.archive(note("e1", tasks[0], "a", 1), received_ms=now_ms())

    async def run() -> None:
        slow = Projection("toy", 1, TOY.tables, TOY.handles, stands_still, TOY.names)
        one = Projector([slow], lab.stores, lab.log, "one", lease_ttl_s=60.0, poll_s=0.05)
        await one.start()
        assert await asyncio.to_thread(begun.wait, 60)
        stopping = asyncio.create_task(one.stop())

        async def only_the_busy_one_is_held() -> bool:
            return set(await asyncio.to_thread(owners, lab)) == {where(tasks[0])}

        await until(only_the_busy_one_is_held)
        assert not stopping.done()
        go_on.set()
        await stopping
        assert owners(lab) == {}
        assert len(active_dump(lab)["notes"]) == 1, "the step that ran was finished"

    asyncio.run(run())
