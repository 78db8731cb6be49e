"""``/v1/runs/{run}/settlement`` and ``/v1/sessions/{session}/state``: the notes that runs leave."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query

from events.keys import session_key
from projections.queries import settlements
from services.api.deps import After, BackendDep, OrgDep
from services.api.listings import run_summary
from services.api.problems import Problem
from services.api.reading import missing, read

router = APIRouter(tags=["settlements"])
SETTLEMENTS = "settlements"
_POLL_S = 0.05


@router.get("/v1/runs/{run:name}/settlement")
async def of_run(
    run: str,
    backend: BackendDep,
    org: OrgDep,
    after: After = None,
    wait_s: Annotated[float, Query(ge=0, le=60, description="How long to wait for a run that is being settled")] = 0.0,
) -> dict[str, Any]:
    """The settlement of a run, with its former versions. While there is none, the answer says why."""
    deadline = time.monotonic() + wait_s
    while True:
        work = partial(settlements.settlement_of_run, org=org, run=run)
        found = await read(backend, SETTLEMENTS, work, org=org, after=after)
        if found.value is not None:
            return {**found.value, "read": found.note}
        if time.monotonic() >= deadline:
            break
        await asyncio.sleep(_POLL_S)
    summary = await backend.db.read(lambda conn: run_summary(conn, org, run))
    if summary["terminated"]:
        raise Problem(404, "settling", f"run {run!r} has ended and is being settled: ask again, or give `wait_s`")
    raise Problem(404, "no_settlement", f"run {run!r} has not ended, so it is not settled")


@router.get("/v1/sessions/{session:name}/state")
async def state(session: str, backend: BackendDep, org: OrgDep, after: After = None) -> dict[str, Any]:
    """The session's latest state: what its next context starts from."""
    work = partial(settlements.session_document, org=org, session=session)
    found = await read(backend, SETTLEMENTS, work, org=org, key=session_key(session), after=after)
    if found.value is None:
        raise missing(found, "no_session_state", f"no run of session {session!r} is settled")
    return {**found.value, "read": found.note}
