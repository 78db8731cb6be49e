"""The workbench of a task: overwritten as the work goes, bounded, cleared when it ends, the same in any order."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from projections.task.retries import ITEMS
from projections.task_state import TASK_STATE
from tests.unit.fold_runner import event, fold


def bench(*events: tuple[str, dict[str, Any]], run: str = "r1") -> dict[str, Any] | None:
    raws = [event(kind, n, task="t1", **({"run": run} | data)) for n, (kind, data) in enumerate(events)]
    rows = fold(TASK_STATE, raws).table("workbench")
    return rows[0] if rows else None


def has(**sections: Any) -> tuple[str, dict[str, Any]]:
    return "workbench.updated", sections


Said = tuple[str, dict[str, Any]]

CALL: Said = ("tool.called", {"call_id": "c1", "name": "ring", "arguments": {"who": "bank"}, "step": "s"})
FAILED: Said = ("tool.failed", {"call_id": "c1", "error": "engaged"})
AGAIN: Said = ("tool.called", {"call_id": "c2", "name": "ring", "arguments": {"who": "bank"}, "step": "s"})


def test_a_section_that_is_given_takes_the_place_of_the_former_one_or_goes_behind_it() -> None:
    row = bench(
        has(observations=["a"], preconditions=["p"]),
        has(observations=["b"]),
        has(observations=["c", "b"], requirements=["r"], add=True),
        has(preconditions=[]),
    )
    assert row is not None
    assert (row["observations"], row["preconditions"], row["requirements"]) == (["c", "b"], None, ["r"])


def test_it_is_bounded_in_items_and_in_their_size() -> None:
    row = bench(*(has(observations=[n], add=True) for n in range(ITEMS + 5)), has(to_retry=["x" * 9_000]))
    assert row is not None
    assert row["observations"] == list(range(5, ITEMS + 5))
    assert (row["to_retry"][0]["clipped"], len(row["to_retry"][0]["head"])) == (True, 1_000)


def test_a_failed_call_is_to_be_tried_again_until_the_same_call_comes_through() -> None:
    row = bench(CALL, FAILED, AGAIN, ("tool.failed", {"call_id": "c2", "error": "engaged"}))
    assert row is not None
    (item,) = row["to_retry"]
    assert (item["name"], item["arguments"], item["failures"], item["call_id"]) == ("ring", {"who": "bank"}, 2, "c2")
    other = ("tool.called", {"call_id": "c3", "name": "ring", "arguments": {"who": "shop"}})
    row = bench(CALL, FAILED, other, ("tool.returned", {"call_id": "c3"}))
    assert row is not None and len(row["to_retry"]) == 1, "another call"
    row = bench(CALL, FAILED, AGAIN, ("tool.returned", {"call_id": "c2"}))
    assert row is not None and row["to_retry"] is None


def test_the_ends_of_a_failed_call_merge_in_either_order() -> None:
    """C14."""
    found = []
    for order in permutations([CALL, FAILED]):
        row = bench(*order)
        assert row is not None
        found.append([{**item, "asked": None} for item in row["to_retry"]])
    assert found[0] == found[1]


OTHER: Said = ("tool.called", {"call_id": "c9", "name": "wait", "arguments": {}})
THIRD: Said = ("tool.called", {"call_id": "c3", "name": "ring", "arguments": {"who": "bank"}, "step": "s"})
CAME: dict[str, Said] = {call: ("tool.returned", {"call_id": call}) for call in ("c1", "c2", "c3", "c9")}
WENT: dict[str, Said] = {call: ("tool.failed", {"call_id": call, "error": call}) for call in ("c1", "c2", "c3")}


@pytest.mark.parametrize(
    ("ends", "failures"),
    [
        ([WENT["c1"], CAME["c2"], CAME["c9"]], 0),
        ([CAME["c1"], WENT["c2"], CAME["c9"]], 1),
        ([WENT["c1"], CAME["c2"], WENT["c3"]], 1),
        ([WENT["c1"], WENT["c2"], WENT["c3"]], 3),
        ([WENT["c1"], WENT["c2"], CAME["c3"]], 0),
    ],
)
def test_the_newest_try_decides_whichever_result_comes_first(ends: list[Said], failures: int) -> None:
    """C14: an older try that comes through late does not undo the failure of a newer one, nor the other way round."""
    found = []
    for order in permutations(ends):
        row = bench(CALL, AGAIN, THIRD, OTHER, *order)
        told = (row or {}).get("to_retry") or []
        found.append([(item["call_id"], item["error"], item["failures"], item["asked"]) for item in told])
    assert all(one == found[0] for one in found)
    assert [failed for _, _, failed, _ in found[0]] == ([failures] if failures else [])


def test_what_came_through_is_remembered_no_longer_than_others_are_on_their_way() -> None:
    row = bench(CALL, AGAIN, has(observations=["a"]), CAME["c2"])
    assert row is not None and len(row["came_through"]) == 1
    row = bench(CALL, AGAIN, has(observations=["a"]), CAME["c2"], CAME["c1"])
    assert row is not None and row["came_through"] is None


@pytest.mark.parametrize("reason", ["end_turn", "error_streak"])
def test_it_is_cleared_when_the_work_ends(reason: str) -> None:
    assert bench(has(observations=["a"]), ("run.terminated", {"reason": reason})) is None


@pytest.mark.parametrize("reason", ["interrupt", "lost", "timeout"])
def test_whoever_resumes_goes_on_at_the_same_workbench(reason: str) -> None:
    """C20."""
    started = ("run.started", {"run": "r2", "attempt": 2})
    row = bench(
        ("run.started", {}), has(observations=["a"]), ("run.terminated", {"reason": reason}), started,
        has(observations=["b"], add=True, run="r2"),
    )  # fmt: skip
    assert row is not None
    assert (row["observations"], row["run"]) == (["a", "b"], "r2")


def test_what_comes_late_changes_nothing() -> None:
    """C15."""
    late: list[Said] = [has(observations=["late"]), CALL, FAILED]
    assert bench(("run.terminated", {"reason": "end_turn"}), *late) is None
    row = bench(("run.started", {}), has(observations=["a"]), ("run.started", {"run": "r2", "attempt": 2}), *late)
    assert row is not None
    assert (row["observations"], row["to_retry"]) == (["a"], None)
