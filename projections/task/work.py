"""Effects of plan, step and tool events: what is to be done, what is done, and what is under way."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from events.types.plan import PlanUpdated
from events.types.tools import ToolCalled, ToolFailed, ToolReturned
from projections.bounds import canonical, clip_json, short, whole
from projections.draft import pairs_end, pairs_start
from projections.task import workbench
from projections.task.scene import JSON_LIMIT, Mutable, Scene
from projections.task.status import DONE

_RANK = {"": 0, "planned": 0, "in_progress": 1, "failed": 2, "skipped": 3, "completed": 3}


def plan_updated(scene: Scene, payload: PlanUpdated) -> None:
    """The plan is replaced. Steps that began stay; planned ones that are no longer wanted go."""
    plan = scene.draft.edit("plan")
    wanted = list(dict.fromkeys(step.id for step in payload.steps))
    kept = set(wanted)
    for gone in plan["steps"] or ():
        if gone not in kept:
            _unplan(scene, gone)
    seen: set[str] = set()
    for step in payload.steps:
        if step.id in seen:
            continue
        row = _step(scene, step.id)
        row["title"] = step.title or row["title"]
        _place(scene.task, row, len(seen))
        seen.add(step.id)
        if _RANK[step.status] > _RANK[row["status"]] or not (row["started"] or row["ended"]):
            _set_status(scene.task, row, step.status)
    plan.update(
        steps=wanted, version=plan["version"] + 1, reason=payload.reason, time=scene.event.time, epoch=scene.epoch
    )
    plan["n"] = scene.n
    scene.task.update(plan_version=plan["version"], plan_digest=plan_digest(payload))


def plan_digest(payload: PlanUpdated) -> str:
    """What tells one plan from another: its steps' ids and titles in their order, not how far they are."""
    return f"sha256:{sha256(canonical([[step.id, step.title] for step in payload.steps]).encode()).hexdigest()}"


def _step(scene: Scene, step: str) -> Mutable:
    row = scene.draft.edit("steps", short(step))
    if not row["status"]:
        row["status"] = "planned"
        row["full"] = whole(step)
        scene.task["steps"] += 1
    return row


def _place(task: Mutable, row: Mutable, place: int | None) -> None:
    if row["status"] not in DONE:
        task["steps_open"] += (place is not None) - (row["place"] is not None)
    row["place"] = place


def _unplan(scene: Scene, step: str) -> None:
    row = scene.draft.edit("steps", short(step))
    _place(scene.task, row, None)
    if not (row["started"] or row["ended"]):
        _set_status(scene.task, row, "planned")  # so that it leaves no count behind
        scene.draft.drop("steps", short(step))
        scene.task["steps"] -= 1


def _set_status(task: Mutable, row: Mutable, status: str) -> None:
    done = (status in DONE) - (row["status"] in DONE)
    task["steps_done"] += done
    if row["place"] is not None:
        task["steps_open"] -= done
    row["status"] = status


def step_started(scene: Scene, step: str, title: str) -> None:
    """Work on a step begins, or begins again. A start that comes after its end only fills in the time."""
    row = _step(scene, step)
    row["title"] = row["title"] or title
    row["attempts"] += 1
    if row["ahead"] or scene.late:
        row["started"] = row["started"] or scene.event.time
        row["ahead"] = False
        return
    pairs_start(row)
    row["started"], row["ended"] = scene.event.time, ""
    _set_status(scene.task, row, "in_progress")
    scene.task["current_step"] = step
    scene.stamp(row)


def step_ended(scene: Scene, step: str, status: str, title: str, **details: Any) -> None:
    """A step is completed, failed or skipped. What came late still counts as done, but undoes nothing."""
    row = _step(scene, step)
    row["title"] = row["title"] or title
    if scene.late and row["status"] in DONE:
        return
    pairs_end(row)
    row["ended"] = scene.event.time
    _set_status(scene.task, row, status)
    row.update(summary="", result=None, error="")
    row.update(details)
    if scene.task["current_step"] == step:
        scene.task["current_step"] = ""
    scene.stamp(row)


def step_result(scene: Scene, result: Any) -> Any:
    """A step's result as far as a row keeps it."""
    return clip_json(result, JSON_LIMIT, at_most=len(scene.event.data))


def called(scene: Scene, payload: ToolCalled) -> None:
    """A call is in flight until its result comes, in whatever order the two arrive."""
    row = _use_of(scene, payload.call_id)
    if row["called"]:
        same = row["status"] == "in_flight" and row["name"] == payload.name
        if same and row["idempotency_key"] == payload.idempotency_key and row["arguments"] == _bounded(scene, payload):
            return  # announced twice
        row = _next_use(scene, payload.call_id)
    row.update(
        called=True,
        name=payload.name,
        arguments=_bounded(scene, payload),
        step=payload.step,
        idempotency_key=payload.idempotency_key,
        side_effect=payload.side_effect,
        expected_s=payload.expected_s,
        called_at=scene.event.time,
        epoch=scene.epoch,
        n=scene.n,
    )
    if not row["status"]:
        row["status"] = "in_flight"
        scene.task["calls"] += 1
        scene.task["calls_in_flight"] += 1
    if scene.late:
        row["late"] = True
    _lay_out(scene, row)


def _bounded(scene: Scene, payload: ToolCalled) -> Any:
    return clip_json(payload.arguments, JSON_LIMIT, at_most=len(scene.event.data))


def answered(scene: Scene, payload: ToolReturned | ToolFailed) -> None:
    """The first result of a call counts, late or not; further ones change nothing but their count."""
    row = _use_of(scene, payload.call_id)
    if row["status"] in ("returned", "failed"):
        row["repeats"] += 1
        return
    task = scene.task
    if row["status"] == "in_flight":
        task["calls_in_flight"] -= 1
    else:
        task["calls"] += 1
    if isinstance(payload, ToolReturned):
        row["status"] = "returned"
        row["result"] = clip_json(payload.result, JSON_LIMIT, at_most=len(scene.event.data))
    else:
        row["status"] = "failed"
        row["error"] = scene.text(payload.error)
        task["calls_failed"] += 1
    row["name"] = row["name"] or payload.name
    row.update(returned_at=scene.event.time, result_epoch=scene.epoch, result_n=scene.n)
    if scene.late or payload.late:
        row["late"] = True
    _lay_out(scene, row)


def _lay_out(scene: Scene, call: Mutable) -> None:
    """What a call of which both ends are known, in either order, means for the workbench."""
    if call["called"] and call["status"] == "failed":
        workbench.failed(scene, call)
    elif call["called"] and call["status"] == "returned":
        workbench.succeeded(scene, call)


def _use_of(scene: Scene, call_id: str) -> Mutable:
    """The row of the latest use of a call id."""
    run, call = short(scene.event.run), short(call_id)
    first = scene.draft.edit("calls", run, call, 1)
    if not first["uses"]:
        first["uses"] = 1
        first.update(full=whole(call_id), run_id=scene.event.run)
    return first if first["uses"] == 1 else scene.draft.edit("calls", run, call, first["uses"])


def _next_use(scene: Scene, call_id: str) -> Mutable:
    run, call = short(scene.event.run), short(call_id)
    first = scene.draft.edit("calls", run, call, 1)
    first["uses"] += 1
    row = scene.draft.edit("calls", run, call, first["uses"])
    row.update(full=whole(call_id), run_id=scene.event.run)
    return row
