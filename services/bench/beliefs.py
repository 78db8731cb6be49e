"""What beliefs foretell: built from some recorded runs, do they know which of the others will fail?

Runs fall into groups: the trials that a file names, else four quarters in their order. The last group is foretold from
beliefs built from all others: hindsight looks back on each run, and the read model folds what it derives, as it would
in an instance. Each held-out run is judged at three moments: after its first call, half-way through its calls, and
after the last, always without its outcome and what people said of it.

Four ways to make a probability of failing out of beliefs, of which none has a parameter to fit:

    tools            some call fails: 1 - the product of the confidences of the tools of all calls so far
    paths            failures among the paths that began like this run
    tools of paths   failures among the paths that used each tool of this run, over tools (mean of log odds)
    all              mean of the log odds of the three

Which of them is *chosen* for a moment is decided without the last group: by the mean AUC of foretelling each other
group from the rest. ``auc_new_tasks`` foretells each run from beliefs of other tasks alone, since a path may give away
its task. Beside them stands what needs no belief: the number of failed calls so far, and how often the same
task failed before.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from math import ceil, exp, log
from statistics import fmean
from typing import Any, NamedTuple

from events.door import admit
from events.event import Position, Recorded
from events.registry import decode_payload
from events.times import instant
from projections.beliefs import BELIEFS_PROJECTION
from projections.queries.beliefs import beliefs_of
from services.bench.replica import ORG, replica
from services.bench.scoring import Predicted, auc, brier, reliability
from services.importers.run import ImportedRun
from services.reactors.experience import Hindsight
from services.reactors.hindsight import ended_run, experience_of
from services.reactors.trajectory import Call, trajectory

AGENT = "assistant"
GROUPS = 4
PRIOR_WEIGHT = 4.0
"""What the base rate is worth beside counts, in runs: as the prior of a belief's confidence."""
EDGES = (0.0, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 1.0)
MOMENTS: Mapping[str, Callable[[int], int]] = {
    "first call": lambda calls: min(1, calls),
    "half-way": lambda calls: ceil(calls / 2),
    "last call": lambda calls: calls,
}
"""Moment -> how many calls of so many have been answered by then."""

_TRIAL = re.compile(r"task-(?P<task>.+)-trial-(?P<trial>\d+)-[0-9a-f]+")


@dataclass(frozen=True)
class Told:
    """A recorded run whose end is known: as it was by each moment, and what became of it."""

    run: str
    task: str
    group: str
    failed: bool
    experience: dict[str, Any]
    time: str
    calls: list[Call]
    seen: Mapping[str, Hindsight]


def told(run: ImportedRun) -> Told | None:
    """The run, read; None for one that was interrupted, which says nothing of success or failure."""
    recorded = _recorded(run)
    ended = ended_run(recorded)
    if ended is None:
        return None
    seen = Hindsight(ended.run)
    if seen.outcome == "interrupted":
        return None
    named = _TRIAL.fullmatch(run.run)
    calls = [call for call in ended.run.calls.values() if call.state != "open"]
    experience = experience_of(ended, agent=AGENT).get("agent", {})
    return Told(
        run.run, named["task"] if named else run.run, named["trial"] if named else "", seen.outcome == "failed",
        experience, ended.ending.event.time, calls,
        {moment: _so_far(recorded, of(len(calls))) for moment, of in MOMENTS.items()},
    )  # fmt: skip


def _recorded(run: ImportedRun) -> list[Recorded]:
    found = []
    for n, raw in enumerate(run.events):
        event = admit(dict(raw), org=ORG)
        payload = decode_payload(event)
        if payload is not None:
            found.append(Recorded(0, Position(1, n), event, payload))
    return found


def _so_far(recorded: Sequence[Recorded], calls: int) -> Hindsight:
    """The run when so many of its calls were answered, without how it ended and what people said."""
    answered, known = 0, []
    for one in recorded:
        if answered < calls and one.event.type not in ("run.terminated", "feedback.given"):
            known.append(one)
            answered += one.event.type in ("tool.returned", "tool.failed")
    return Hindsight(trajectory(known))


class Path(NamedTuple):
    """A belief about a path: its tools, how often it led to the goal, how often not, and its confidence."""

    tools: list[str]
    worked: int
    failed: int
    confidence: float


@dataclass
class Believed:
    """What was learned of runs: beliefs by name, and how often each task failed."""

    confidence: dict[str, float] = field(default_factory=dict)
    paths: list[Path] = field(default_factory=list)
    tasks: dict[str, Counter[bool]] = field(default_factory=dict)
    base_rate: float = 0.5

    def failing_from(self, tools: list[str]) -> float:
        """Share of failures among the paths that begin with these tools, drawn towards the base rate."""
        return self._failing([path for path in self.paths if path.tools[: len(tools)] == tools])

    def failing_with(self, tool: str) -> float:
        """The same among the paths that use a tool."""
        return self._failing([path for path in self.paths if tool in path.tools])

    def _failing(self, paths: Sequence[Path]) -> float:
        worked, failed = sum(path.worked for path in paths), sum(path.failed for path in paths)
        return (PRIOR_WEIGHT * self.base_rate + failed) / (PRIOR_WEIGHT + worked + failed)


def build(runs: Sequence[Told]) -> Believed:
    """Beliefs of runs, by the fold and the read that an instance uses, on the day after the last run."""
    with replica(BELIEFS_PROJECTION) as models:
        for n, one in enumerate(runs):
            if one.experience:
                models.add({
                    "id": f"x{n}", "type": "experience.recorded", "agent": AGENT, "time": one.time,
                    "data": one.experience,
                })  # fmt: skip
        now = max(instant(one.time) for one in runs) + timedelta(days=1)
        found = beliefs_of(models.read(BELIEFS_PROJECTION.name), ORG, f"agent/{AGENT}", now=now)
    believed = Believed(base_rate=fmean(one.failed for one in runs))
    for belief in found:
        if belief["kind"] == "tool_reliability":
            believed.confidence[belief["subject"]] = belief["confidence"]
        elif belief["kind"] == "plan_pattern":
            tools, counts = belief["subject"].split(" > "), (belief["supports"], belief["against"])
            believed.paths.append(Path(tools, *counts, belief["confidence"]))
    for one in runs:
        believed.tasks.setdefault(one.task, Counter())[one.failed] += 1
    return believed


def by_tools(believed: Believed, run: Told, moment: str) -> float:
    """That some call fails."""
    works = 1.0
    for call in run.seen[moment].run.calls.values():
        works *= believed.confidence.get(call.name, 0.5) if call.state != "open" else 1.0
    return 1 - works


def by_paths(believed: Believed, run: Told, moment: str) -> float:
    """Failures among the paths that began like this one."""
    return believed.failing_from(_tools(run, moment))


def by_tools_of_paths(believed: Believed, run: Told, moment: str) -> float:
    """Failures among the paths that used a tool, over the tools used so far."""
    shares = [believed.failing_with(tool) for tool in sorted(set(_tools(run, moment)))]
    return _pooled(shares or [believed.base_rate])


def by_all(believed: Believed, run: Told, moment: str) -> float:
    """What the other three come to."""
    return _pooled([way(believed, run, moment) for way in (by_tools, by_paths, by_tools_of_paths)])


def by_failed_calls(_: Believed, run: Told, moment: str) -> float:
    """No belief: failed calls so far, as something that grows with their number."""
    failed = sum(call.state == "failed" for call in run.seen[moment].run.calls.values())
    return failed / (failed + 1)


def by_same_task(believed: Believed, run: Told, moment: str) -> float:
    """No belief about conduct: how often the same task failed."""
    before = believed.tasks.get(run.task, Counter[bool]())
    return (believed.base_rate + before[True]) / (1 + before.total())


WAYS = {"tools": by_tools, "paths": by_paths, "tools of paths": by_tools_of_paths, "all": by_all}
BESIDE = {"failed calls so far": by_failed_calls, "the same task before": by_same_task}


def _tools(run: Told, moment: str) -> list[str]:
    path = run.seen[moment].path
    return path.split(" > ") if path else []


def _path(run: Told) -> str:
    return run.seen["last call"].path


def _pooled(shares: Sequence[float]) -> float:
    """Mean of log odds, as a probability."""
    safe = [min(max(share, 1e-6), 1 - 1e-6) for share in shares]
    return 1 / (1 + exp(-fmean(log(share / (1 - share)) for share in safe)))


def measure(runs: Sequence[Told]) -> dict[str, Any]:
    """Foretell the last group from the others; the document that the command prints.

    Raises ValueError for too few groups, and for runs of which none calls a tool.
    """
    groups = _groups(runs)
    if len(groups) < 2:
        raise ValueError("there is nothing to foretell from: it takes two groups of runs, such as trials")
    if not any(run.calls for run in runs):
        raise ValueError("there is nothing to foretell from: none of these runs calls a tool")
    *known, last = groups
    everything = [run for group in known for run in group]
    believed, trial = build(everything), _trial(known, last, everything)
    rows = [_row(trial, believed, moment, way) for moment in MOMENTS for way in (*WAYS, *BESIDE)]
    for moment in MOMENTS:
        ours = [row for row in rows if row["moment"] == moment and row["way"] in WAYS and row["held_in"] is not None]
        if ours:
            max(ours, key=lambda row: row["held_in"])["chosen"] = True
    chosen = next((row["way"] for row in rows if row["moment"] == "last call" and row["chosen"]), "all")
    worked = [
        Predicted(believed.confidence.get(call.name, 0.5), call.state == "returned")
        for run in last
        for call in run.calls
    ]
    known_paths = {" > ".join(path.tools): path.confidence for path in believed.paths}
    went = [Predicted(known_paths[path], not run.failed) for run in last if (path := _path(run)) in known_paths]
    ended = [Predicted(1 - WAYS[chosen](believed, run, "last call"), not run.failed) for run in last]
    base = believed.base_rate
    return {
        "built_from": len(everything),
        "foretold": len(last),
        "failed": sum(run.failed for run in last),
        "base_rate": round(base, 4),
        "brier_of_base_rate": round(brier([Predicted(base, run.failed) for run in last]), 4),
        "rows": rows,
        "calls": _table(worked),
        "paths": _table(went),
        "runs": {"way": chosen, **_table(ended)},
    }


class _Trial(NamedTuple):
    """The runs to foretell, with beliefs of all others that are known, and what to choose a way by.

    ``held_in``: each known group, with beliefs of the other ones. ``new``: the runs to foretell as if nobody had tried
    their task before, with beliefs of other tasks alone.
    """

    last: Sequence[Told]
    held_in: list[list[tuple[Believed, Told]]]
    new: list[tuple[Believed, Told]]


def _trial(known: Sequence[Sequence[Told]], last: Sequence[Told], everything: Sequence[Told]) -> _Trial:
    held_in = []
    for n, held in enumerate(known):
        rest = [run for m, group in enumerate(known) if m != n for run in group]
        if rest:
            believed = build(rest)
            held_in.append([(believed, run) for run in held])
    others = {task: [run for run in everything if run.task != task] for task in {run.task for run in last}}
    of_others = {task: build(runs) for task, runs in others.items() if runs}
    return _Trial(last, held_in, [(of_others[run.task], run) for run in last if run.task in of_others])


def _groups(runs: Sequence[Told]) -> list[list[Told]]:
    names = sorted({run.group for run in runs}, key=lambda name: (len(name), name))
    if len(names) > 1:
        return [[run for run in runs if run.group == name] for name in names]
    size = ceil(len(runs) / GROUPS) or 1
    return [list(runs[at : at + size]) for at in range(0, len(runs), size)]


def _row(trial: _Trial, believed: Believed, moment: str, way: str) -> dict[str, Any]:
    """One way at one moment: on the last group, the same without its tasks, and (``held_in``) on each other group."""
    tell = (WAYS | BESIDE)[way]
    predicted = [Predicted(tell(believed, run, moment), run.failed) for run in trial.last]
    area = auc(predicted)
    new = auc([Predicted(tell(of_others, run, moment), run.failed) for of_others, run in trial.new if way in WAYS])
    folds = [auc([Predicted(tell(rest, run, moment), run.failed) for rest, run in held]) for held in trial.held_in]
    areas = [fold.value for fold in folds if fold is not None]
    return {
        "moment": moment, "way": way, "chosen": False, "held_in": round(fmean(areas), 4) if areas else None,
        "auc": None if area is None else [round(figure, 4) for figure in area],
        "auc_new_tasks": None if new is None else round(new.value, 4), "brier": round(brier(predicted), 4),
    }  # fmt: skip


def _table(predicted: Sequence[Predicted]) -> dict[str, Any]:
    bins = [
        {"from": b.low, "to": b.high, "number": b.number, "said": round(b.mean, 4), "came": round(b.came, 4)}
        for b in reliability(predicted, EDGES)
    ]
    return {"number": len(predicted), "brier": round(brier(predicted), 4) if predicted else None, "bins": bins}
