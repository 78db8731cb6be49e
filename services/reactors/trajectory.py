"""One run as it went: its steps, calls and what else it left, gathered from its events. Pure.

Events merge in any order: a result may come before its call, an end before its start. What came first is told by the
order of the log: ``at`` and the like number the run's events from 1, 0 is never; clocks of hosts differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from events.event import Event, Position, Recorded
from events.registry import FROM_OUTSIDE
from events.types.plan import PlanUpdated, StepCompleted, StepFailed, StepSkipped, StepStarted, StepStatus
from events.types.run import Outcome, RunStarted, RunTerminated
from events.types.thought import DecisionMade, MessageAdded, ModelResponded
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

BY_ERROR = frozenset(("timeout", "panic_stop"))
"""Those that tell that an error ended it, which may be that of a call."""

MAX_DETAIL = 2_000
"""Characters of an error that the SDK tells when a run ends."""

_EXIT_CODES = ("exit_code", "returncode", "exit_status")


@dataclass
class Call:
    """One tool call. ``error`` is what a failed one said; a result that reports failure counts as failed.

    ``event`` is the id of the event that gave it its state, ``begun`` and ``ended`` tell when.
    """

    call_id: str
    name: str = ""
    arguments: Any = None
    step: str = ""
    side_effect: bool = False
    idempotency_key: str = ""
    state: Literal["open", "returned", "failed"] = "open"
    result: Any = None
    error: str = ""
    event: str = ""
    begun: int = 0
    ended: int = 0


@dataclass
class Step:
    """One step; ``failures`` counts how often it failed before it came to its present state.

    ``event`` is the id of the event that gave it its state; ``begun`` tells when it was first worked on, ``failed``
    when it first failed, ``skipped`` when it was given up.
    """

    step: str
    title: str = ""
    state: StepStatus = "planned"
    summary: str = ""
    error: str = ""
    failures: int = 0
    event: str = ""
    begun: int = 0
    failed: int = 0
    skipped: int = 0


@dataclass(frozen=True)
class Plan:
    """A version of the plan: (id, title) of its steps in order, and those that were over when it was made."""

    at: int
    event: str
    steps: tuple[tuple[str, str], ...]
    over: frozenset[str]


@dataclass
class Spent:
    """What a run used: assistant's turns, tokens of its models, money."""

    turns: int = 0
    tokens: int = 0
    cost: float = 0.0


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
    beginning: Event | None = None
    """The event that started it."""
    steps: dict[str, Step] = field(default_factory=dict)
    calls: dict[str, Call] = field(default_factory=dict)
    plans: list[Plan] = field(default_factory=list)
    artifacts: list[ArtifactCreated] = field(default_factory=list)
    decisions: list[DecisionMade] = field(default_factory=list)
    feedback: dict[FeedbackGiven, str] = field(default_factory=dict)
    """What people said of it, and the id of its event; of what was said twice in the same words the first."""
    spent: Spent = field(default_factory=Spent)
    answer: Any = None
    """What the assistant said last."""
    length: int = 0
    """How many events it is made of."""
    blockers: dict[str, str] = field(default_factory=dict)
    approvals: dict[str, str] = field(default_factory=dict)
    denied: int = 0
    """How often a person said no."""
    ending: Ending | None = None
    """The terminal event that counts: the first. ``lost`` is provisional: any other, or a sign of life, replaces it."""

    @property
    def open_steps(self) -> list[Step]:
        """Planned or started steps that came to no end."""
        return [step for step in self.steps.values() if step.state in ("planned", "in_progress", "failed")]

    def ended_by(self, call: Call) -> bool:
        """Whether the run ended by the very error that a call failed with.

        Nobody stopped such a run: it did not get over the failure, though it can be resumed.
        """
        if self.ending is None or self.ending.payload.reason not in BY_ERROR:
            return False
        detail = self.ending.payload.detail
        return bool(detail) and call.state == "failed" and detail == call.error[:MAX_DETAIL]

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
    code = _exit_code(result)
    if code:
        return f"exit {code}"
    error = result.get("error")
    return str(error) if error else ""


def has_exit_code(result: Any) -> bool:
    """Whether a result is that of a command which ran to its end."""
    return isinstance(result, dict) and _exit_code(result) is not None


def _exit_code(result: dict[str, Any]) -> int | None:
    """The first code that is not 0; 0 when all are, None when there is none."""
    codes = [code for name in _EXIT_CODES if isinstance(code := result.get(name), int) and not isinstance(code, bool)]
    return next(filter(None, codes), 0) if codes else None


def _add(run: Trajectory, recorded: Recorded) -> None:
    payload = recorded.payload
    run.length += 1
    match payload:
        case RunStarted():
            if run.started is None:
                run.started, run.beginning = payload, recorded.event
        case RunTerminated():
            run.ending = run.ending or Ending(recorded.position, recorded.event, payload)
        case PlanUpdated():
            _add_plan(run, payload, recorded.event.id)
        case StepStarted() | StepCompleted() | StepFailed() | StepSkipped():
            _add_step(run, payload, recorded.event.id)
        case ToolCalled() | ToolReturned() | ToolFailed():
            _add_call(run, payload, recorded.event.id)
        case MessageAdded() | ModelResponded():
            _add_turn(run, payload)
        case FeedbackGiven():
            run.feedback.setdefault(payload, recorded.event.id)
        case _:
            _add_around(run, payload)


def _add_around(run: Trajectory, payload: Any) -> None:
    """What stands around the work."""
    match payload:
        case ArtifactCreated():
            run.artifacts.append(payload)
        case DecisionMade():
            run.decisions.append(payload)
        case BlockerRaised():
            run.blockers[payload.blocker] = payload.description
        case BlockerCleared():
            run.blockers.pop(payload.blocker, None)
        case ApprovalRequested():
            run.approvals[payload.approval] = payload.action
        case ApprovalResolved():
            run.approvals.pop(payload.approval, None)
            if not payload.approved:
                run.denied += 1
        case _:
            pass


def _add_turn(run: Trajectory, payload: MessageAdded | ModelResponded) -> None:
    if isinstance(payload, ModelResponded):
        run.spent.tokens += payload.tokens_in + payload.tokens_out
        run.spent.cost += payload.cost
    elif payload.role == "assistant":
        run.spent.turns += 1
        run.answer = payload.content


def _add_plan(run: Trajectory, payload: PlanUpdated, event: str) -> None:
    planned = {step.id for step in payload.steps}
    for dropped in [s.step for s in run.steps.values() if s.state == "planned" and s.step not in planned]:
        del run.steps[dropped]
    for one in payload.steps:
        step = run.steps.setdefault(one.id, Step(one.id))
        step.title = one.title or step.title
        if step.state == "planned":
            step.state = one.status
            if one.status not in ("planned", "skipped"):
                step.begun = step.begun or run.length
            if one.status == "failed":
                step.failed = step.failed or run.length
    over = frozenset(s.step for s in run.steps.values() if s.state in ("completed", "failed", "skipped"))
    titles = tuple((one.id, run.steps[one.id].title) for one in payload.steps)
    run.plans.append(Plan(run.length, event, titles, over))


def _add_step(run: Trajectory, payload: StepStarted | StepCompleted | StepFailed | StepSkipped, event: str) -> None:
    step = run.steps.setdefault(payload.step, Step(payload.step))
    step.title = payload.title or step.title
    before = step.state
    match payload:
        case StepStarted():
            if step.state in ("planned", "failed"):
                step.state = "in_progress"
        case StepCompleted():
            step.state, step.summary = "completed", payload.summary
        case StepFailed():
            step.failures += 1
            step.failed = step.failed or run.length
            step.error = payload.error
            if step.state != "completed":
                step.state = "failed"
        case StepSkipped():
            if step.state != "completed":
                step.state = "skipped"
                step.skipped = step.skipped or run.length
    if not isinstance(payload, StepSkipped):
        step.begun = step.begun or run.length
    if step.state != before or not step.event:
        step.event = event


def _add_call(run: Trajectory, payload: ToolCalled | ToolReturned | ToolFailed, event: str) -> None:
    call = run.calls.setdefault(payload.call_id, Call(payload.call_id))
    call.name = payload.name or call.name
    before = call.state
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
    call.begun = call.begun or run.length
    if call.state != before:
        call.ended = run.length
    if call.state != before or not call.event:
        call.event = event
