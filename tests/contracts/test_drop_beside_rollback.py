"""Somebody drops a generation while somebody else goes back to it: what is read is never dropped."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from events.database import Database, Stores
from events.errors import Refused
from projections import generations
from projections.rebuilding.rebuild import drop, rebuild
from projections.rebuilding.verify import verify
from tests.contracts.engine_lab import TOY, Lab, note
from tests.contracts.test_opposite_orders import until_one_waits


@pytest.fixture
def lab(postgres: Any) -> Any:
    """With two generations, of which the second one is read."""
    lab = Lab(Stores(postgres.new_database()))
    lab.archive(note("e1", "t", "a", 1))
    for _ in range(2):
        rebuild(TOY, lab.stores, lab.log)
    yield lab
    lab.log.close()


def meanwhile(first: Callable[[Any], None], second: Callable[[], Any], db: Database) -> Exception | None:
    """Begin ``second`` while the transaction of ``first`` is open and holds it up; the error that it ends with."""
    done: Future[None] = Future()
    go_on: Future[None] = Future()

    def slowly(conn: Any) -> None:
        first(conn)
        done.set_result(None)
        go_on.result(60)

    with ThreadPoolExecutor(2) as threads:
        committing = threads.submit(db.write_now, slowly)
        try:
            done.result(60)
            waiting = threads.submit(second)
            until_one_waits(db)
        finally:
            go_on.set_result(None)
        committing.result(60)
        return waiting.exception(60)  # type: ignore[return-value]


def test_what_is_gone_back_to_meanwhile_is_not_dropped(lab: Lab) -> None:
    former = lab.log.read_now(partial(generations.get, projection="toy", number=1))
    other = lab.stores.log()
    error = meanwhile(
        partial(generations.activate, generation=former), partial(drop, former, lab.stores, other), lab.log
    )
    other.close()
    assert isinstance(error, Refused) and "toy__g1 is active and cannot be dropped" in str(error)
    assert verify(TOY, lab.stores, lab.log).equal, "it is still there"


def test_what_is_dropped_meanwhile_is_not_gone_back_to(lab: Lab) -> None:
    former = lab.log.read_now(partial(generations.get, projection="toy", number=1))
    other = lab.stores.log()
    activate = partial(other.write_now, partial(generations.activate, generation=former))
    error = meanwhile(partial(generations.retire_for_good, generation=former), activate, lab.log)
    other.close()
    assert isinstance(error, Refused) and "cannot be activated" in str(error)
    active = lab.log.read_now(partial(generations.active, projection="toy"))
    assert active is not None and active.number == 2
