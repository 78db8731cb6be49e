"""One run as it went: its steps, calls and what else it left, gathered from its events. Pure.

Events merge in any order: a result may come before its call, an end before its start.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from events.event import Event, Position, Recorded
from events.types.plan import PlanUpdated, StepCompleted, StepFailed, StepSkipped, StepStarted, StepStatus
from events.types.run import Outcome, RunStarted, RunTerminated
from events.types.thought import DecisionMade
from events.types.tools import ToolCalled, ToolFailed, ToolReturned
from events.types.world import (
    ApprovalRequested,
    ApprovalResolved,
    ArtifactCreated,
    BlockerCleared,
    BlockerRaised,
    FeedbackGiven,
)

INTERRUPTING = frozenset(("interrupt", "timeout", "budget_exhausted", "lost", "panic_stop"))
"""Termination reasons that leave a run unfinished (DESIGN 3)."""

FROM_OUTSIDE = frozenset((
    "feedback.given", "approval.resolved", "card.summarized", "card.invalidated", "card.restored", "context.assembled",
    "settlement.attempted", "settlement.requested", "settlement.recorded", "settlement.degraded",
))  # fmt: skip
"""Events about a run that are no sign of its life."""


@dataclass
class Call:
    """One tool call. ``error`` is what a failed one said; a result that reports failure counts as failed."""

    call_id: str
    name: str = ""
    arguments: Any = None
    step: str = ""
    side_effect: bool = False
    idempotency_key: str = ""
    state: Literal["open", "returned", "failed"] = "open"
    result: Any = None
    error: str = ""


@dataclass
class Step:
    """One step; ``failures`` counts how often it failed before it came to its present state."""

    step: str
    title: str = ""
    state: StepStatus = "planned"
    summary: str = ""
    error: str = ""
    failures: int = 0


@dataclass(frozen=True)
class Ending:
    """A terminal event of the run, where it stands in the log."""

    position: Position
    event: Event
    payload: RunTerminated


@dataclass
class Trajectory:
    """What the events of one run say."""

    started: RunStarted | None = None
    steps: dict[str, Step] = field(default_factory=dict)
    calls: dict[str, Call] = field(default_factory=dict)
    plans: int = 0
    artifacts: list[ArtifactCreated] = field(default_factory=list)
    decisions: list[DecisionMade] = field(default_factory=list)
    feedback: list[FeedbackGiven] = field(default_factory=list)
    blockers: dict[str, str] = field(default_factory=dict)
    approvals: dict[str, str] = field(default_factory=dict)
    ending: Ending | None = None
    """The terminal event that counts: the first. ``lost`` is provisional: any other, or a sign of life, replaces it."""

    @property
    def open_steps(self) -> list[Step]:
        """Planned or started steps that came to no end."""
        return [step for step in self.steps.values() if step.state in ("planned", "in_progress", "failed")]

    def outcome(self) -> Outcome:
        """What became of the run, by the table of DESIGN 3; an outcome that its ending names wins."""
        ending = self.ending
        if ending is None:
            return "interrupted"
        if ending.payload.outcome:
            return ending.payload.outcome
        if ending.payload.reason in INTERRUPTING:
            return "interrupted"
        if ending.payload.reason == "end_turn":
            return "blocked" if self.open_steps else "completed"
        return "failed"


def trajectory(events: Iterable[Recorded]) -> Trajectory:
    """Gather the effective events of one run, given in log order."""
    run = Trajectory()
    for recorded in events:
        if run.ending is not None and run.ending.payload.reason == "lost" and recorded.event.type not in FROM_OUTSIDE:
            run.ending = None
        _add(run, recorded)
    return run


def reported_error(result: Any) -> str:
    """What a returned result itself says went wrong: a non-zero exit code, or an ``error`` member; else empty."""
    if not isinstance(result, dict):
        return ""
    for name in ("exit_code", "returncode", "exit_status"):
        code = result.get(name)
        if isinstance(code, int) and not isinstance(code, bool) and code != 0:
            return f"exit {code}"
    error = result.get("error")
    return str(error) if error else ""


def _add(run: Trajectory, recorded: Recorded) -> None:
    payload = recorded.payload
    match payload:
        case RunStarted():
            run.started = run.started or payload
        case RunTerminated():
            run.ending = run.ending or Ending(recorded.position, recorded.event, payload)
        case PlanUpdated() | StepStarted() | StepCompleted() | StepFailed() | StepSkipped():
            _add_step(run, payload)
        case ToolCalled() | ToolReturned() | ToolFailed():
            _add_call(run, payload)
        case ArtifactCreated():
            run.artifacts.append(payload)
        case DecisionMade():
            run.decisions.append(payload)
        case FeedbackGiven():
            run.feedback.append(payload)
        case BlockerRaised():
            run.blockers[payload.blocker] = payload.description
        case BlockerCleared():
            run.blockers.pop(payload.blocker, None)
        case ApprovalRequested():
            run.approvals[payload.approval] = payload.action
        case ApprovalResolved():
            run.approvals.pop(payload.approval, None)
        case _:
            pass


def _add_step(run: Trajectory, payload: PlanUpdated | StepStarted | StepCompleted | StepFailed | StepSkipped) -> None:
    if isinstance(payload, PlanUpdated):
        run.plans += 1
        planned = {step.id for step in payload.steps}
        for dropped in [s.step for s in run.steps.values() if s.state == "planned" and s.step not in planned]:
            del run.steps[dropped]
        for one in payload.steps:
            step = run.steps.setdefault(one.id, Step(one.id))
            step.title = one.title or step.title
            if step.state == "planned":
                step.state = one.status
        return
    step = run.steps.setdefault(payload.step, Step(payload.step))
    step.title = payload.title or step.title
    match payload:
        case StepStarted():
            if step.state in ("planned", "failed"):
                step.state = "in_progress"
        case StepCompleted():
            step.state, step.summary = "completed", payload.summary
        case StepFailed():
            step.failures += 1
            step.error = payload.error
            if step.state != "completed":
                step.state = "failed"
        case StepSkipped():
            if step.state != "completed":
                step.state = "skipped"


def _add_call(run: Trajectory, payload: ToolCalled | ToolReturned | ToolFailed) -> None:
    call = run.calls.setdefault(payload.call_id, Call(payload.call_id))
    call.name = payload.name or call.name
    match payload:
        case ToolCalled():
            call.arguments, call.step = payload.arguments, payload.step
            call.side_effect, call.idempotency_key = payload.side_effect, payload.idempotency_key
        case ToolReturned() if call.state == "open":
            call.result, call.error = payload.result, reported_error(payload.result)
            call.state = "failed" if call.error else "returned"
        case ToolFailed() if call.state == "open":
            call.state, call.error = "failed", payload.error
        case _:
            pass
