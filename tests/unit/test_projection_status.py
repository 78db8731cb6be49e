"""Behind but moving is healthy, stuck is not: what is told of a partition, and of a read model as a whole."""

from __future__ import annotations

import pytest

from events.event import Position
from projections.engine.reports import Holding, Report, Reporter
from projections.engine.worker import LEAST_LIMIT, STEP_S, next_limit
from projections.status import FRESH_S, STUCK_S, PartitionStatus, overall, partition_status, projection_status

AT = Position(1, 9)


def partition(
    number: int = 0, lag: int = 0, lag_s: float = 0.0, held: Holding | None = None, paused: str = ""
) -> PartitionStatus:
    return partition_status(number, AT, lag, lag_s, held, paused)


def moving(still_s: float | None = 0.5, rate: float = 100.0, waits_for: str = "") -> Holding:
    return Holding("host:1/a", still_s, rate, waits_for)


@pytest.mark.parametrize(
    ("lag", "lag_s", "held", "paused", "state"),
    [
        (0, 0.0, moving(), "", "live"),
        (3, FRESH_S / 2, moving(), "", "live"),
        (900, 500.0, moving(), "", "behind"),
        (900, 500.0, moving(STUCK_S + 1), "", "stuck"),
        # idle for an hour, and an event has just come: nobody waited for long
        (1, 0.1, moving(3600.0, 0.0), "", "live"),
        (1, FRESH_S + 1, moving(3600.0, 0.0), "", "behind"),
        # an owner that has just taken over and said nothing yet
        (900, 500.0, moving(None), "", "behind"),
        (9, 5.0, moving(5.0, 0.0, "the disk is away"), "", "paused"),
        (9, 5.0, moving(5.0, 0.0), "the disk is away", "paused"),
        (9, 500.0, moving(STUCK_S + 1, 0.0), "the disk is away", "stuck"),
        # what held it up is over
        (0, 0.0, moving(), "the disk is away", "live"),
        (0, 0.0, None, "", "unowned"),
        (9, 500.0, None, "", "unowned"),
    ],
)
def test_the_state_of_a_partition(lag: int, lag_s: float, held: Holding | None, paused: str, state: str) -> None:
    found = partition(0, lag, lag_s, held, paused)
    assert found.state == state
    assert bool(found.reason) == (state in ("paused", "stuck") and bool(paused or (held and held.waits_for)))


def test_how_long_it_will_take() -> None:
    assert partition(0, 500, 60.0, moving(rate=100.0)).eta_s == 5.0
    assert partition(0, 500, 60.0, moving(rate=0.0)).eta_s is None
    assert partition(0, 500, 60.0, None).eta_s is None
    assert partition(0, 0, 0.0, moving(rate=0.0)).eta_s == 0.0


def test_a_read_model_is_as_its_worst_partition() -> None:
    live, behind, nobody = partition(0, held=moving()), partition(1, 900, 60.0, moving()), partition(2, 5, 1.0)
    ill = partition(3, 7, STUCK_S + 5, moving(STUCK_S + 3, 0.0, "boom"))

    def told(*partitions: PartitionStatus, stale: bool = False) -> tuple[str, str]:
        return overall("cards", partitions, building=False, built=False, stale=stale)

    assert told(live) == ("live", "")
    assert told(live, behind) == ("behind", "")
    assert told(live, behind, nobody)[0] == "unowned"
    assert "partition 2" in told(live, nobody)[1]
    assert "refold worker --role projector --projections cards" in told(live, nobody)[1]
    assert "no worker folds it" in told(nobody)[1]
    assert told(ill, nobody, live) == ("stuck", "partition 3 stood still for 33 s: boom")
    assert "host:1/a does not say why" in told(partition(0, 9, 99.0, moving(99.0)))[1]
    assert told(nobody, stale=True) == ("stale", "made by other code: run `refold rebuild cards`")
    assert told(ill, stale=True)[0] == "stale"
    assert "whose workers fold it" in told(live, nobody, stale=True)[1], "a rolling deploy is not to be undone"


def test_a_rebuild_is_told_before_all_else() -> None:
    def told(*, built: bool, stale: bool) -> tuple[str, str]:
        return overall("cards", [partition()], building=True, built=built, stale=stale)

    assert told(built=True, stale=False) == ("rebuilding", "")
    assert told(built=True, stale=True) == ("rebuilding", "made by other code: it is being rebuilt")
    assert told(built=False, stale=True)[0] == "abandoned"


def test_sums_over_partitions() -> None:
    def summed(*partitions: PartitionStatus) -> tuple[int, float, float, float | None]:
        s = projection_status(
            "x", 1, "live", partitions, dead_letters=0, parked_keys=0, reason="", progress=None
        )  # fmt: skip
        return s.lag_events, s.lag_s, s.events_per_s, s.eta_s

    one, two = partition(0, 10, 5.0, moving(rate=10.0)), partition(1, 100, 3.0, moving(rate=20.0))
    assert summed(one, two) == (110, 5.0, 30.0, 5.0)
    assert summed(one, partition(2, 1, 9.0)) == (11, 9.0, 10.0, None)
    assert summed() == (0, 0.0, 0.0, 0.0)


def test_reports_are_made_of_what_changed() -> None:
    reporter, unit, nothing = Reporter(), ("cards__g1", 3), Report(False, 0.0, "")
    assert reporter.look([(unit, 0, "")], 10.0) == {unit: nothing}, "whoever takes it over says so"
    assert reporter.look([(unit, 50, "")], 12.0) == {unit: Report(True, 25.0, "")}
    assert reporter.look([(unit, 100, "")], 14.0) == {unit: Report(True, 25.0, "")}, "moving is news each time"
    assert reporter.look([(unit, 100, "")], 16.0) == {unit: nothing}
    assert reporter.look([(unit, 100, "")], 18.0) == {}
    assert reporter.look([(unit, 100, "away")], 20.0) == {unit: Report(False, 0.0, "away")}
    assert reporter.look([(unit, 100, "away")], 22.0) == {}
    assert reporter.look([], 24.0) == {}
    assert reporter.look([(unit, 7, "")], 26.0) == {unit: Report(True, 0.0, "")}, "given up and taken over again"
    assert reporter.look([(unit, 8, "")], 27.0) == {unit: Report(True, 1.0, "")}


def test_steps_grow_while_they_are_quick_and_shrink_when_a_fold_is_slow() -> None:
    assert next_limit(100, 100, 0.01) == 200
    assert next_limit(100, 60, 0.01) == 100, "there were no more events: that tells nothing"
    assert next_limit(800, 800, STEP_S * 0.8) == 800
    assert next_limit(800, 800, STEP_S * 2) == 400
    assert next_limit(2000, 2000, 100.0) == LEAST_LIMIT
