"""Task state: where a task stands, so that a new process can go on where the last one died.

    run.started                  the run, its configuration; the highest attempt is the task's current run
    run.heartbeat                a sign of life
    run.terminated               how the run ended (the first time; ``lost`` only until a sign of life), and so the
                                 task; what it hands on; the workbench is cleared unless the run was cut off
    plan.updated                 the plan's steps, in order; steps that began keep what they did
    step.started/.completed/...  a step's status, summary and raw times, in either order
    tool.called                  a call in flight, with its idempotency key
    tool.returned, tool.failed   the call's first result, bounded; before or after its call; failed ones are to retry
    workbench.updated            what the run has at hand
    decision.made                a decision, for good
    note.written                 the note's next version, or a visible conflict
    model.responded              tokens and cost
    artifact.created             an artifact's latest version
    blocker.*, approval.*        what the task waits for
    checkpoint.saved             a checkpoint of the agent's own runtime; the latest ones, and milestones, are kept
    feedback.given               a judgement of the task, once

Dialogue (``message.added``) is not handled, so progress cannot depend on it. An event after the end of its run is kept
and marked late: it undoes nothing, but a step or call that it reports done is done. A resumed run finds calls without
a result by ``status = in_flight``; that they were interrupted follows at read time from their run being over.
Any order of arrival merges to the same state, except where the order itself is the information: of changes to one thing
(plans, notes of a key, ends of a step that had several), and of a run's end against what that run says after it.
"""

from __future__ import annotations

from collections.abc import Iterable

from events.event import Recorded
from events.types import plan, run, thought, tools, world
from projections.bounds import short
from projections.draft import Draft
from projections.projection import Change, Projection, RowRef, Rows
from projections.task import runs, work, workbench
from projections.task import world as effects
from projections.task.scene import Scene
from projections.task.status import status
from projections.task.tables import BLANKS, TABLES

_HANDLES = frozenset((
    "run.started", "run.heartbeat", "run.terminated", "plan.updated",
    "step.started", "step.completed", "step.failed", "step.skipped",
    "tool.called", "tool.returned", "tool.failed", "decision.made", "note.written", "model.responded",
    "artifact.created", "blocker.raised", "blocker.cleared", "approval.requested", "approval.resolved",
    "checkpoint.saved", "feedback.given", "workbench.updated",
))  # fmt: skip

_FROM_OTHERS = frozenset(("run.started", "run.terminated", "feedback.given", "approval.resolved", "blocker.cleared"))
"""May come after a run's end, or from somebody else: neither late nor a sign of life."""

_NOT_WORK = frozenset(("plan.updated", "run.terminated", "note.written", *_FROM_OTHERS)) - {"run.started"}
"""A task of which only these are known is still planned."""


def apply(recorded: Recorded, rows: Rows) -> Iterable[Change]:
    """Fold one event of a task."""
    event = recorded.event
    if not event.key.startswith("task/"):
        return ()  # feedback on a scope
    draft = Draft(rows, BLANKS)
    task = draft.edit("tasks")
    of_run = event.run or event.type.startswith("run.")
    scene = Scene(event, *recorded.position, draft, task, draft.edit("runs", short(event.run)) if of_run else None)
    _enter(scene, recorded)
    _take(scene, recorded)
    task["status"] = status(task)
    return draft.changes()


def _enter(scene: Scene, recorded: Recorded) -> None:
    event, task = scene.event, scene.task
    task["events"] += 1
    task["first_time"] = task["first_time"] or event.time
    task["last_time"], task["epoch"], task["n"] = event.time, scene.epoch, scene.n
    if event.type not in _NOT_WORK:
        task["active"] = True
    outside = event.type in _FROM_OTHERS
    late_result = getattr(recorded.payload, "late", False)
    runs.enter(scene, from_outside=outside, sign_of_life=not (outside or late_result))


def _take(scene: Scene, recorded: Recorded) -> None:  # one line a type: long, and flat
    match recorded.payload:
        case tools.ToolCalled() as payload:
            work.called(scene, payload)
        case tools.ToolReturned() | tools.ToolFailed() as payload:
            work.answered(scene, payload)
        case plan.StepStarted(step=step, title=title):
            work.step_started(scene, step, title)
        case plan.StepCompleted(step=step, title=title, summary=summary, result=result):
            kept = work.step_result(scene, result)
            work.step_ended(scene, step, "completed", title, summary=scene.text(summary), result=kept)
        case plan.StepFailed(step=step, title=title, error=error):
            work.step_ended(scene, step, "failed", title, error=scene.text(error))
        case plan.StepSkipped(step=step, title=title, reason=reason):
            work.step_ended(scene, step, "skipped", title, summary=scene.text(reason))
        case thought.ModelResponded() as payload:
            runs.used_tokens(scene, payload.tokens_in, payload.tokens_out, payload.cost, payload.currency)
        case thought.DecisionMade() as payload:
            effects.decided(scene, payload)
        case thought.NoteWritten() as payload:
            effects.noted(scene, payload)
        case plan.PlanUpdated() as payload:
            work.plan_updated(scene, payload)
        case run.RunStarted() as payload if scene.run is not None:
            runs.started(scene, scene.run, payload)
        case run.RunTerminated() as payload if scene.run is not None:
            runs.terminated(scene, scene.run, payload)
        case world.ArtifactCreated() as payload:
            effects.made(scene, payload)
        case world.BlockerRaised() as payload:
            effects.blocked(scene, payload)
        case world.BlockerCleared() as payload:
            effects.unblocked(scene, payload)
        case world.ApprovalRequested() as payload:
            effects.asked(scene, payload)
        case world.ApprovalResolved() as payload:
            effects.resolved(scene, payload)
        case world.CheckpointSaved() as payload:
            effects.saved(scene, payload)
        case world.FeedbackGiven() as payload:
            effects.judged(scene, payload)
        case world.WorkbenchUpdated() as payload:
            workbench.updated(scene, payload)


def names(recorded: Recorded) -> Iterable[RowRef]:
    """The rows that ``apply`` will ask for."""
    event = recorded.event
    if not event.key.startswith("task/"):
        return ()
    own = _named(recorded)
    return (RowRef("tasks"), RowRef("runs", (short(event.run),)), *own)


def _named(recorded: Recorded) -> Iterable[RowRef]:
    match recorded.payload:
        case tools.ToolCalled(call_id=call) | tools.ToolReturned(call_id=call) | tools.ToolFailed(call_id=call):
            return (RowRef("calls", (short(recorded.event.run), short(call), 1)), RowRef("workbench"))
        case run.RunTerminated() | world.WorkbenchUpdated():
            return (RowRef("workbench"),)
        case (
            plan.StepStarted(step=step)
            | plan.StepCompleted(step=step)
            | plan.StepFailed(step=step)
            | plan.StepSkipped(step=step)
        ):
            return (RowRef("steps", (short(step),)),)
        case plan.PlanUpdated(steps=steps):
            return (RowRef("plan"), *(RowRef("steps", (short(step.id),)) for step in steps))
        case thought.NoteWritten(key=note):
            return (RowRef("notes", (short(note),)),)
        case world.ArtifactCreated(name=name):
            return (RowRef("artifacts", (short(name),)),)
        case world.BlockerRaised(blocker=blocker) | world.BlockerCleared(blocker=blocker):
            return (RowRef("blockers", (short(blocker),)),)
        case world.ApprovalRequested(approval=approval) | world.ApprovalResolved(approval=approval):
            return (RowRef("approvals", (short(approval),)),)
        case world.FeedbackGiven() as payload:
            return (RowRef("feedback", (effects.feedback_key(recorded.event, payload),)),)
        case _:
            return ()


TASK_STATE = Projection(name="task_state", version=3, tables=TABLES, handles=_HANDLES, apply=apply, names=names)
