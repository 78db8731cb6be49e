"""Any order of arrival merges to the same state, where the order is not itself the information.

What is promised, for the events of one attempt at a task: the state does not depend on the order in which they arrive,
as long as those stay in order of which the later one *means* that it is later:

* what changes one thing again: plans; notes of one key; artifacts of one name; checkpoints; words of the workbench;
  ends of the run; starts among starts, and ends among ends, of one step, blocker or approval that has several of them
  (then all of its events); results of one call; uses of one call id;
* the run's end, and whatever it judges: what a run says after its end is late, and an end of turn completes the task
  or leaves it blocked by what is open then;
* a plan and the steps that it drops: a step that began stays, one that had not goes;
* calls for the same effect among each other, not their results: what came through needs no other try.

So a result may come before its call, an end before its start, a step before its plan, and everything before the run's
start; and events of different tasks are in no order at all, parent and child included. Only what tells the arrival
itself differs: positions, the first and the last time, which step is called the current one, and in which order calls
turned out to be tried again.

Attempts are in order by the log, which takes the start of attempt n after that of n-1 alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.task.workbench import SECTIONS
from projections.task_state import TASK_STATE
from tests.unit.fold_runner import Folded, event, record

ARRIVAL = frozenset((
    "epoch", "n", "first_epoch", "first_n", "result_epoch", "result_n", "first_time", "last_time", "current_step",
    "slot", "came_through",
))  # fmt: skip
"""Columns that tell of the arrival itself."""


@dataclass(frozen=True)
class Said:
    """An event and the things whose order it belongs to: two events that share one stay in order."""

    type: str
    data: dict[str, Any]
    ordered: frozenset[str] = frozenset()
    run: str = "r1"
    task: str = "t1"


@dataclass
class Story:
    """What happened in a task, as it happened."""

    said: list[Said] = field(default_factory=list)

    def say(self, type: str, *ordered: str, **data: Any) -> None:
        """One more event."""
        self.said.append(Said(type, data, frozenset(ordered)))


@st.composite
def stories(draw: st.DrawFn) -> list[Said]:
    """An attempt with a plan, steps that are done once or again, calls, blockers, approvals, notes and the rest."""
    story = Story()
    steps = draw(st.lists(st.sampled_from("abcd"), unique=True, max_size=4))
    if draw(st.booleans()):
        story.say("plan.updated", "plan", steps=[{"id": step, "title": step.upper()} for step in steps])
    for step in steps:
        _step(draw, story, step)
    for number in range(draw(st.integers(0, 3))):
        _call(draw, story, f"c{number}")
    for kind, ends in (("blocker", "blocker.cleared"), ("approval", "approval.resolved")):
        if draw(st.booleans()):
            begins = "blocker.raised" if kind == "blocker" else "approval.requested"
            more = {"approved": draw(st.booleans())} if kind == "approval" else {"detail": "gone"}
            story.say(begins, **{kind: kind})
            if draw(st.booleans()):
                story.say(ends, **{kind: kind}, **more)
    for version in range(draw(st.integers(0, 3))):
        story.say("note.written", "note", key="k", content=version, expected_version=draw(st.integers(0, 2)))
    for number in range(draw(st.integers(0, 3))):
        story.say("decision.made", chosen=f"d{number}", question="q")
        story.say("artifact.created", name=f"f{number}", uri=f"file:///{number}")
        story.say("model.responded", tokens_in=number, cost=number / 4)
        story.say("feedback.given", text=f"good {number}", score=number / 2)
        story.say("message.added", role="user", content=f"m{number}")
        story.say("checkpoint.saved", "checkpoint", data=number, checkpoint=f"p{number}")
    return [Said("run.started", {"goal": "g", "attempt": 1, "model": "m"}), *story.said]


def _step(draw: st.DrawFn, story: Story, step: str) -> None:
    times = draw(st.integers(0, 2))
    apart = (f"step {step}",) if times > 1 else ()
    for number in range(times):
        end = draw(st.sampled_from(("completed", "failed", "skipped", "")))
        story.say("step.started", *apart, step=step, title=f"do {step}")
        details: dict[str, dict[str, Any]] = {
            "completed": {"summary": "s", "result": number},
            "failed": {"error": "e"},
            "skipped": {"reason": "r"},
        }
        if end:
            story.say(f"step.{end}", *apart, step=step, **details[end])


def _call(draw: st.DrawFn, story: Story, call: str) -> None:
    what: dict[str, Any] = {
        "name": "f",
        "arguments": {"x": call},
        "step": draw(st.sampled_from(("", "a"))),
        "side_effect": True,
    }
    key = draw(st.sampled_from((call, "of two")))
    story.say("tool.called", f"key {key}", call_id=call, idempotency_key=f"key {key}", **what)
    for number in range(draw(st.integers(0, 2))):
        outcome: dict[str, Any] = draw(st.sampled_from(({"result": number}, {"error": f"e{number}"})))
        kind = "tool.returned" if "result" in outcome else "tool.failed"
        story.say(kind, f"result {call}", call_id=call, **outcome)


def arrivals(said: Sequence[Said], dice: random.Random) -> Iterator[int]:
    """Numbers of the events in an order of chance, in which those that share something stay in order."""
    left = list(range(len(said)))
    while left:
        held: set[str] = set()
        ready = []
        for number in left:
            if not said[number].ordered & held:
                ready.append(number)
            held |= said[number].ordered
        number = dice.choice(ready)
        left.remove(number)
        yield number


def state(
    said: Sequence[Said],
    order: Iterable[int],
    times: Sequence[str] | None = None,
    without: frozenset[str] = frozenset(),
) -> list[bytes]:
    """The rows after the events arrived in this order, without what tells of it; ids and times are the events'."""
    raws = [event(one.type, n, task=one.task, run=one.run, data=one.data) for n, one in enumerate(said)]
    if times is not None:
        raws = [{**raw, "time": time} for raw, time in zip(raws, times, strict=True)]
    folded = Folded(TASK_STATE).fold(record([raws[number] for number in order]))
    rows = []
    for (org, key, table, _), row in folded.rows.items():
        kept = {name: value for name, value in row.items() if name not in ARRIVAL | without}
        if table == "workbench":
            items = [{**item, "asked": None} for item in kept["to_retry"] or ()]
            kept = {**kept, "to_retry": sorted(items, key=orjson.dumps), "time": "", "run": ""}
            if not any(kept[section] for section in SECTIONS):
                continue  # as good as none
        rows.append(orjson.dumps([org, key, table, kept], option=orjson.OPT_SORT_KEYS))
    return sorted(rows)


TIMES = frozenset((
    "time", "started", "ended", "called_at", "returned_at", "raised", "cleared", "requested", "resolved", "written_at",
))  # fmt: skip
"""Columns that hold a raw time, as it was published."""


@settings(max_examples=40, deadline=None)
@given(stories(), st.integers(0, 2**32))
def test_events_of_an_attempt_merge_in_any_order(said: list[Said], seed: int) -> None:
    """C14: result before call, end before start, step before plan, the run's start last of all."""
    inorder = state(said, range(len(said)))
    assert state(said, arrivals(said, random.Random(seed))) == inorder
    assert state(said, [*range(1, len(said)), 0]) == inorder


def _of_second(one: Said) -> Said:
    """An event as the second attempt says it: in order, and of effects of its own (see the last rule above)."""
    key = {"idempotency_key": "another"} if one.type == "tool.called" else {}
    return replace(one, run="r2", data={**one.data, **key}, ordered=frozenset(("second",)))


@settings(max_examples=15, deadline=None)
@given(stories(), stories(), st.integers(0, 2**32))
def test_late_results_of_the_attempt_before_come_whenever_they_like(
    before: list[Said], after: list[Said], seed: int
) -> None:
    """C20: between, before or after all that the new attempt says; each call is answered once."""
    late = [
        replace(one, data={**one.data, "late": True})
        for one in before
        if one.type in ("tool.returned", "tool.failed") and one.data["call_id"] == "c0"
    ]
    first = [one for one in before if one.data.get("call_id") != "c0" or one.type == "tool.called"]
    started, *second = [_of_second(one) for one in after]
    started = replace(started, data={**started.data, "attempt": 2})
    said = [*first, started, *second, *late]
    begin = len(first) + 1
    rest = [begin + number for number in arrivals(said[begin:], random.Random(seed))]
    assert state(said, [*range(begin), *rest]) == state(said, range(len(said)))


@settings(max_examples=15, deadline=None)
@given(stories(), stories(), st.integers(0, 2**32))
def test_tasks_are_in_no_order_at_all(parent: list[Said], child: list[Said], seed: int) -> None:
    """A sub-agent's task before its parent's, after it, or both at once."""
    begins = replace(child[0], data={**child[0].data, "parent_run": "r1"})
    theirs = [replace(one, task="t2", run="r9") for one in (begins, *child[1:])]
    # a chain is of one task: told apart by it
    said = [replace(one, ordered=frozenset(f"{one.task} {name}" for name in one.ordered)) for one in (*parent, *theirs)]
    alone = state(said, range(len(said)))
    assert state(said, arrivals(said, random.Random(seed))) == alone
    assert state(said, [*range(len(parent), len(said)), *range(len(parent))]) == alone


@settings(max_examples=15, deadline=None)
@given(stories(), st.integers(0, 2**32))
def test_times_order_nothing(said: list[Said], seed: int) -> None:
    """C25, C37: whatever the clocks of the hosts say, apart from the raw times that are kept, the state is the same."""
    dice = random.Random(seed)
    clocks = [f"2026-03-01T{dice.randrange(24):02}:{dice.randrange(60):02}:00.{dice.randrange(1000):03}Z" for _ in said]
    order = range(len(said))
    assert state(said, order, clocks, without=TIMES) == state(said, order, without=TIMES)
