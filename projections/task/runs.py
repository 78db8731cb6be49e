"""Effects of run events: which run is current, how it ended, and what comes late."""

from __future__ import annotations

from events.types.run import Addressed, RunStarted, RunTerminated
from projections.bounds import clip_json, short, whole
from projections.task import costs, workbench
from projections.task.scene import JSON_LIMIT, Mutable, Scene
from projections.task.status import interrupts, verdict


def enter(scene: Scene, *, from_outside: bool, sign_of_life: bool) -> None:
    """Before any effect: count the event on its run, and find out whether it comes late.

    An event is late when its run is over or superseded by a newer attempt. A run that was given up as lost is not over
    when it shows a sign of life.
    """
    run, task = scene.run, scene.task
    if run is None:
        return
    if not run["events"]:
        task["runs"] += 1
        run["full"] = whole(scene.event.run)
    run["events"] += 1
    run["last_time"], run["epoch"], run["n"] = scene.event.time, scene.epoch, scene.n
    if not task["run"]:
        task["run"] = scene.event.run
    superseded = 0 < run["attempt"] < task["attempt"]
    if run["provisional"] and sign_of_life and not superseded:
        _revive(scene, run)
    elif (run["over"] or superseded) and not from_outside:
        scene.mark_late()


def _revive(scene: Scene, run: Mutable) -> None:
    run["over"] = run["provisional"] = run["interrupted"] = False
    run["reason"] = run["outcome"] = run["detail"] = run["ended"] = ""
    run["result"] = None
    run["revived"] += 1
    if scene.task["run"] == scene.event.run:
        _leave(scene.task, "", "", "")


def _leave(task: Mutable, left_as: str, reason: str, detail: str) -> None:
    task["verdict"], task["reason"], task["detail"] = left_as, reason, detail


def started(scene: Scene, run: Mutable, payload: RunStarted) -> None:
    """The run is known; the highest attempt becomes the task's current run. A second start of a run changes nothing."""
    if run["attempt"]:
        return
    event, task = scene.event, scene.task
    run.update(
        attempt=payload.attempt,
        parent_run=payload.parent_run,
        parent=short(payload.parent_run),
        goal=payload.goal,
        mode=payload.mode,
        model=payload.model,
        settles=payload.settles,
        settle_deadline_s=payload.settle_deadline_s,
        budget=payload.budget,
        digests=_digests(payload),
        agent=event.agent,
        user=event.user,
        session=event.session,
        started=event.time,
    )
    if payload.attempt > task["attempt"]:
        task.update(run=event.run, attempt=payload.attempt, goal=payload.goal or task["goal"])
        task.update(agent=event.agent, user=event.user, session=event.session)
        _leave(task, run["outcome"], run["reason"], run["detail"])
    elif payload.attempt < task["attempt"]:
        task["goal"] = task["goal"] or payload.goal


def _digests(payload: RunStarted) -> dict[str, str]:
    """What the run was configured with, by digest; the model by name."""
    parts: dict[str, Addressed | None] = {
        "system_prompt": payload.system_prompt,
        "tools": payload.tools,
        "plan": payload.plan,
    }
    digests = {name: part.digest for name, part in parts.items() if part is not None}
    return {"model": payload.model, **digests} if payload.model else digests


def terminated(scene: Scene, run: Mutable, payload: RunTerminated) -> None:
    """The first end of a run wins; only ``lost`` gives way, to an end that somebody saw. Later ones are late."""
    if run["over"] and not (run["provisional"] and payload.reason != "lost"):
        scene.mark_late(payload.reason)
        return
    task = scene.task
    left_as = verdict(payload.reason, payload.outcome, task)
    run.update(
        over=True,
        provisional=payload.reason == "lost",
        ended=scene.event.time,
        reason=payload.reason,
        outcome=left_as,
        detail=scene.text(payload.detail),
        result=clip_json(payload.result, JSON_LIMIT, at_most=len(scene.event.data)),
        interrupted=interrupts(payload.reason, left_as),
    )
    if task["run"] == scene.event.run:
        _leave(task, left_as, payload.reason, run["detail"])
        if left_as != "interrupted":
            workbench.clear(scene)


def used_tokens(scene: Scene, tokens_in: int, tokens_out: int, cost: float, currency: str) -> None:
    """Totals over all runs of the task, and per run."""
    task = scene.task
    for row in (task, scene.run):
        if row is not None:
            row["tokens_in"] += tokens_in
            row["tokens_out"] += tokens_out
    if cost:
        task["cost"] = costs.added(task["cost"], currency, cost)
