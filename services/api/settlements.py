"""``/v1/runs/{run}/settlement``, ``/v1/runs/{run}/settle`` and ``/v1/sessions/{session}/state``: what runs leave."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from hashlib import blake2b
from typing import Annotated, Any

from fastapi import APIRouter, Query

from events.archive.reader import Archive
from events.event import Recorded
from events.keys import session_key
from projections.queries import settlements
from services.api.deps import After, BackendDep, OrgDep
from services.api.in_time import LONGEST_WAIT_S
from services.api.listings import run_summary
from services.api.problems import Problem
from services.api.reading import Found, missing, read
from services.composition import Backend
from services.reactors.evidence import evidence
from services.reactors.reactor import PAGE, read_recorded
from services.reactors.trajectory import trajectory

router = APIRouter(tags=["settlements"])
SETTLEMENTS = "settlements"
_POLL_S = 0.05

Wait = Annotated[
    float, Query(ge=0, le=LONGEST_WAIT_S, description="How long to wait for what is being settled, in seconds")
]


@router.get("/v1/runs/{run:name}/settlement")
async def of_run(
    run: str,
    backend: BackendDep,
    org: OrgDep,
    after: After = None,
    wait_s: Wait = 0.0,
    version: Annotated[int, Query(ge=1, le=2**53, description="The least version that will do")] = 1,
) -> dict[str, Any]:
    """The settlement of a run, with its former versions. While there is none, the answer says why."""

    def is_there(found: Found) -> bool:
        return found.value is not None and found.value["version"] >= version

    found = await _waiting(partial(_settlement, backend, org, run, after), is_there, wait_s)
    if is_there(found):
        return {**found.value, "read": found.note}
    summary = await backend.db.read(lambda conn: run_summary(conn, org, run))
    if summary["terminated"]:
        raise Problem(404, "settling", f"run {run!r} has ended and is being settled: ask again, or give `wait_s`")
    raise Problem(404, "no_settlement", f"run {run!r} has not ended, so it is not settled")


@router.post("/v1/runs/{run:name}/settle", status_code=202)
async def settle_again(
    run: str,
    backend: BackendDep,
    org: OrgDep,
    by: Annotated[str, Query(max_length=256, description="Who asks for it")] = "",
    detail: Annotated[str, Query(max_length=2_000, description="Why")] = "",
) -> dict[str, Any]:
    """Settle an ended run again, on purpose: the answer names the version to come. Former ones are kept.

    Recorded as an event. Asking again before that version is there changes nothing.
    """
    found = await _settlement(backend, org, run, None)
    if found.value is None:
        summary = await backend.db.read(lambda conn: run_summary(conn, org, run))
        if not summary["terminated"]:
            raise Problem(409, "not_ended", f"run {run!r} has not ended, so it cannot be settled")
        raise Problem(409, "settling", f"run {run!r} is being settled for the first time: ask for that one")
    version = found.value["version"] + 1
    event = {
        "id": f"settle-{version}-{blake2b(run.encode(), digest_size=16).hexdigest()}",
        "type": "settlement.requested",
        "run": run,
        "data": {"version": version, "by": by, "detail": detail},
        **{name: found.value[name] for name in ("agent", "user", "session", "task") if found.value.get(name)},
    }
    outcome = (await backend.publisher.publish([event], org=org, source="settlements"))[0]
    if outcome.status not in ("stored", "duplicate", "conflict"):
        raise Problem(422, outcome.code or outcome.status, outcome.message)
    return {"run": run, "version": version, "token": outcome.token, "asked_before": outcome.status != "stored"}


@router.get("/v1/sessions/{session:name}/state")
async def state(
    session: str,
    backend: BackendDep,
    org: OrgDep,
    user: Annotated[str, Query(description="By this user's runs alone: users may call their sessions alike")] = "",
    after: After = None,
    wait_s: Wait = 5.0,
) -> dict[str, Any]:
    """The session's latest state: what its next context starts from.

    While a run that has ended is being settled the answer waits for it. When that takes longer than `wait_s`, the state
    is the older one (null: there is none), marked `stale`; `settling` names the runs, and `evidence_since` holds what
    the events of each prove.
    """

    def is_settled(found: Found) -> bool:
        return found.value is None or not found.value["settling"]

    async def ask() -> Found:
        work = partial(settlements.session_document, org=org, session=session, user=user)
        return await read(backend, SETTLEMENTS, work, org=org, key=session_key(session), after=after)

    found = await _waiting(ask, is_settled, wait_s)
    if found.value is None:
        raise missing(found, "no_session_state", f"no run of session {session!r} is settled")
    since = [*found.value["evidence_since"], *[await _so_far(backend, org, one) for one in found.value["settling"]]]
    return {**found.value, "evidence_since": since, "read": found.note}


async def _waiting(ask: Callable[[], Awaitable[Found]], is_enough: Callable[[Found], bool], wait_s: float) -> Found:
    """Ask until the answer is enough, or time is up."""
    deadline = time.monotonic() + wait_s
    while True:
        found = await ask()
        if is_enough(found) or time.monotonic() >= deadline:
            return found
        await asyncio.sleep(_POLL_S)


async def _settlement(backend: Backend, org: str, run: str, after: str | None) -> Found:
    return await read(
        backend, SETTLEMENTS, partial(settlements.settlement_of_run, org=org, run=run), org=org, after=after
    )


async def _so_far(backend: Backend, org: str, settling: dict[str, Any]) -> dict[str, Any]:
    """What the events of a run that is not settled yet prove."""
    archive, events, after = Archive(backend.db), list[Recorded](), None
    while page := await archive.run_events(org, settling["run"], after=after, limit=PAGE):
        events += [recorded for archived in page if (recorded := read_recorded(archived)) is not None]
        after = (page[-1].partition, page[-1].position)
    run = trajectory(one for one in events if one.event.task == settling["task"])
    interrupted = run.outcome() == "interrupted"
    return {**settling, "settling": True, "interrupted": interrupted, "evidence": evidence(run)}
