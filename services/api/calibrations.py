"""``/v1/calibrations``: when beliefs are looked at again, and looking at them now."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from services.api.deps import BackendDep, OrgDep
from services.api.reading import now
from services.calibrating.opening import calibration_of
from services.schedule import Schedule

router = APIRouter(tags=["beliefs"])


@router.get("/v1/calibrations")
async def when(backend: BackendDep) -> dict[str, Any]:
    """When beliefs were and will be looked at, by the schedule, and by which model (empty: by evidence alone)."""
    settings = backend.settings
    schedule, moment = Schedule.parse(settings.calibrate), now()
    slots = {"last": schedule.latest(moment), "next": schedule.following(moment)} if schedule is not None else {}
    shown = {name: slot.isoformat(timespec="seconds") for name, slot in slots.items()}
    return {"schedule": settings.calibrate, "model": settings.calibrate_model, **shown}


@router.post("/v1/calibrations")
async def look_now(backend: BackendDep, org: OrgDep) -> dict[str, Any]:
    """Look at the org's candidate beliefs now, beside the schedule: how many hold, are doubtful, or are untouched.

    What was found is recorded as events (``belief.reviewed``). It is no evidence, and changes no confidence.
    """
    slot = now().replace(microsecond=0)
    verdicts = await calibration_of(backend, org).review(slot)
    counts = {name: verdicts.get(name, 0) for name in ("holds", "doubtful", "untouched")}
    return {"slot": slot.isoformat(timespec="seconds"), **counts}
