"""What the end of a run, and each failure on its way, is put down to: its plan, a tool, or luck. Pure.

**Plan.** The executed path is compared with the plan in force. Leaving it is: dropping, renaming or reordering steps
that are not over, beginning a step that no plan names, beginning one before an earlier one, skipping one. A plan that
only grows, or only tells how far it is, is not left. A run without a plan leaves its course when a tool that failed is
given up for another one. A failure that was got over before (the tool worked in the same step, the step was
completed) is no reason to leave; whether any other one stands before the first departure is its ``Deviation``.

**Tool.** A failed call says by what came after it whether the tool or its arguments were to blame; one that never
worked is put down to its arguments where its error says so (``services.reactors.causes``: ``invalid_input``). A command
that ran and ended with a code of its own is put down to nothing: the tool did what it is for. Whether a tool fails
more than it always does is judged where its other runs are known (``projections.beliefs``).

**Luck.** A result at the edge of a limit that the run itself declares: of its budget the last of ``calls``, ``steps``,
``turns`` or ``retries`` of one tool (also ``max_calls`` ...), or more than 95 % of ``tokens``, ``cost`` or ``seconds``;
a score within 5 % of ``pass_score`` (also ``min_score``, ``threshold``; of the budget or of the run's own result). So
is a result that people judge in opposite ways. A score of 0 or less speaks against what it is given for; a higher one
does not, on a scale that only its giver knows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from events.times import instant
from events.types.belief import Attribution
from projections.bounds import canonical
from services.reactors.causes import kind_of
from services.reactors.trajectory import Call, Plan, Step, Trajectory, has_exit_code

EDGE = 0.05
"""A margin to a limit, as a share of it, that is no margin."""

REASONS: Mapping[str, str] = {
    "followed_plan": "the run did as its plan says",
    "switched_before_failure": "the run left its plan though nothing had failed: the plan was not tried",
    "switched_after_failure": "the run left its plan, or without one a tool, when something had failed",
    "path_failed": "no tool failed in the end, and there was no plan: what was done was not what was needed",
    "worked_with_other_arguments": "the same tool worked later, called with other arguments",
    "worked_when_repeated": "the same call worked later",
    "arguments_refused": "the tool said that what it was given is invalid",
    "kept_failing": "the tool failed again and again, and never worked in this run",
    "call_failed": "the call failed once, and was not tried again",
    "ended_by_tool": "the run ended with this tool's failure",
    "judged_bad": "somebody scored it 0 or less",
    "budget_at_limit": "the run had nothing left of a budget",
    "retries_at_limit": "the tool worked at the last try that the budget allows",
    "score_at_limit": "the score is within 5 % of the one that decides",
    "judges_disagree": "one judged it good, another bad",
}
"""What each reason of an attribution means."""

Deviation = Literal["none", "before_failure", "after_failure"]

_COUNTED = ("calls", "steps", "turns")
_MEASURED = ("tokens", "cost", "seconds")
_PASSES = ("pass_score", "min_score", "threshold")


class Departure(NamedTuple):
    """The moment at which a run left its plan, or the course it was on."""

    at: int
    how: Literal["changed_plan", "unplanned_step", "out_of_order", "skipped_step", "changed_tool"]


def put_down(to: Literal["plan", "tool", "luck"], reason: str) -> Attribution:
    """An attribution by one of the ``REASONS``."""
    if reason not in REASONS:
        raise ValueError(f"{reason!r} is not among the reasons of an attribution")
    return Attribution(to=to, reason=reason)


def departures(run: Trajectory) -> list[Departure]:
    """When the run left its plan, the first time first."""
    found = [Departure(step.skipped, "skipped_step") for step in run.steps.values() if step.skipped]
    if run.plans:
        found += [Departure(plan.at, "changed_plan") for plan in changed_plans(run)] + _unplanned(run)
    else:
        found += _given_up_tools(run)
    return sorted(found)


def deviation(run: Trajectory) -> Deviation:
    """Whether the run left its plan, and if so, before or after something had failed."""
    left = departures(run)
    if not left:
        return "none"
    return "after_failure" if troubled(run, 0, left[0].at) else "before_failure"


def changed_plans(run: Trajectory) -> list[Plan]:
    """The versions of the plan that left the one before."""
    return [new for old, new in pairwise(run.plans) if _is_left(old, new)]


def troubled(run: Trajectory, since: int, upto: int) -> bool:
    """Whether something failed between two events of the run that was not got over by the latter."""
    trouble: set[tuple[str, str]] = set()
    for call in sorted(run.calls.values(), key=lambda call: call.ended):
        if since < call.ended < upto:
            (trouble.add if call.state == "failed" else trouble.discard)((call.name, call.step))
    steps = [step for step in run.steps.values() if step.state != "completed"]
    return bool(trouble) or any(since < step.failed < upto for step in steps)


@dataclass(frozen=True)
class Calls:
    """How the calls of a run ended, tool by tool: what a failed one is put down to by."""

    worked: Mapping[str, int]
    """Tool -> when it last worked."""
    worked_so: Mapping[tuple[str, str], int]
    """Tool and arguments -> when it last worked with them."""
    failures: Mapping[str, int]

    @classmethod
    def of(cls, run: Trajectory) -> Calls:
        """Those of a run."""
        worked: dict[str, int] = {}
        worked_so: dict[tuple[str, str], int] = {}
        for call in sorted(run.calls.values(), key=lambda call: call.ended):
            if call.state == "returned":
                worked[call.name] = worked_so[call.name, canonical(call.arguments)] = call.ended
        return cls(worked, worked_so, Counter(call.name for call in run.calls.values() if call.state == "failed"))

    def put_down(self, failed: Call) -> Attribution | None:
        """What a failed call is put down to, by what came of the same tool later; None for a command's own code."""
        if has_exit_code(failed.result):
            return None
        if self.worked.get(failed.name, 0) > failed.ended:
            again = self.worked_so.get((failed.name, canonical(failed.arguments)), 0) > failed.ended
            return (
                put_down("tool", "worked_when_repeated") if again else put_down("plan", "worked_with_other_arguments")
            )
        if kind_of(failed.error) == "invalid_input":
            return put_down("plan", "arguments_refused")
        keeps = self.failures[failed.name] > 1 and failed.name not in self.worked
        return put_down("tool", "kept_failing" if keeps else "call_failed")


def luck(run: Trajectory) -> list[Attribution]:
    """Why the result of the run says nothing: it stands at the edge of a limit."""
    edges = {
        "budget_at_limit": _at_budget(run),
        "retries_at_limit": _at_retries(run),
        "score_at_limit": _at_score(run),
        "judges_disagree": len(set(judgements(run, "run", "").values())) > 1,
    }
    return [put_down("luck", reason) for reason, at_edge in edges.items() if at_edge]


def judgements(run: Trajectory, kind: str, target: str) -> dict[str, bool]:
    """Giver -> whether their latest score of a part of the run is good, more than 0. The whole run has any target."""
    return {
        given.by: given.score > 0
        for given in run.feedback
        if given.score is not None
        and (
            given.target_kind == kind and given.target == target if kind != "run" else given.target_kind in ("run", "")
        )
    }


def judged_bad(run: Trajectory, kind: str, target: str) -> bool:
    """Whether all who scored a part of the run scored it 0 or less, and somebody did."""
    given = judgements(run, kind, target).values()
    return bool(given) and not any(given)


def _is_left(old: Plan, new: Plan) -> bool:
    """Whether steps that are not over are missing in the new plan, have other titles, or another order."""
    open_steps = [step for step in old.steps if step[0] not in new.over | old.over]
    kept = set(open_steps)
    return [step for step in new.steps if step in kept] != open_steps


def _unplanned(run: Trajectory) -> list[Departure]:
    planned = {step for plan in run.plans for step, _ in plan.steps}
    found = []
    for step in run.steps.values():
        if not step.begun or step.begun < run.plans[0].at:
            continue
        if step.step not in planned:
            found.append(Departure(step.begun, "unplanned_step"))
        elif _overtakes(run, step):
            found.append(Departure(step.begun, "out_of_order"))
    return found


def _overtakes(run: Trajectory, step: Step) -> bool:
    """Whether the step began before one that its plan has earlier."""
    plan = next((plan for plan in reversed(run.plans) if plan.at <= step.begun), run.plans[0])
    names = [name for name, _ in plan.steps]
    earlier = names[: names.index(step.step)] if step.step in names else []
    known = [run.steps[name] for name in earlier if name in run.steps and name not in plan.over]
    return any(not other.begun or other.begun > step.begun for other in known if not other.skipped)


def _given_up_tools(run: Trajectory) -> list[Departure]:
    begun = sorted(call.begun for call in run.calls.values())
    last = {call.name: call.begun for call in sorted(run.calls.values(), key=lambda call: call.begun)}
    return [
        Departure(begun[bisect_right(begun, call.ended)], "changed_tool")
        for call in run.calls.values()
        if call.state == "failed" and last[call.name] < call.ended < begun[-1]
    ]


def _limit(run: Trajectory, name: str) -> float | None:
    """A limit that the run declares, above 0."""
    budget = (run.started.budget if run.started else None) or {}
    return next((limit for key in (name, f"max_{name}") if (limit := _number(budget.get(key))) and limit > 0), None)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _at_budget(run: Trajectory) -> bool:
    tried = sum(step.begun > 0 for step in run.steps.values())
    used = {"calls": float(len(run.calls)), "steps": float(tried), "turns": float(run.spent.turns)}
    counted = [(used[name], limit) for name in _COUNTED if (limit := _limit(run, name))]
    spent = {"tokens": float(run.spent.tokens), "cost": run.spent.cost, "seconds": _seconds(run)}
    measured = [(spent[name], limit) for name in _MEASURED if (limit := _limit(run, name))]
    return any(so_far >= limit for so_far, limit in counted) or any(
        so_far > (1 - EDGE) * limit for so_far, limit in measured
    )


def _seconds(run: Trajectory) -> float:
    """How long the run took; 0 where the clocks of its hosts contradict each other."""
    if run.beginning is None or run.ending is None:
        return 0.0
    return max(0.0, (instant(run.ending.event.time) - instant(run.beginning.time)).total_seconds())


def _at_retries(run: Trajectory) -> bool:
    """Whether a tool worked after as many failures in a row, in one step, as there are retries."""
    limit = _limit(run, "retries")
    in_a_row: Counter[tuple[str, str]] = Counter()
    for call in run.calls.values() if limit else ():
        key = (call.name, call.step)
        if call.state == "returned" and limit and in_a_row.pop(key, 0) >= limit:
            return True
        in_a_row[key] += call.state == "failed"
    return False


def _at_score(run: Trajectory) -> bool:
    """Whether the score of the run is within the edge of the one that decides."""
    found = run.ending.payload.result if run.ending else None
    result = found if isinstance(found, dict) else {}
    budget = (run.started.budget if run.started else None) or {}
    decides = next((limit for key in _PASSES for at in (result, budget) if (limit := _number(at.get(key)))), None)
    scores = [given.score for given in run.feedback if given.target_kind in ("run", "") and given.score is not None]
    own = _number(result.get("score"))
    score = own if own is not None else scores[-1] if scores else None
    return decides is not None and score is not None and abs(score - decides) <= EDGE * abs(decides)
