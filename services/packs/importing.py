"""Importing a pack: publish what it proposes, wait for what becomes of it, write down that it is done.

Every id follows from the pack, the scope and the factor, so an import that was broken off is finished by the next one,
and one that is done is only told of. The report comes last: while it is missing, nobody takes the import for done.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

from events.archive.queries import read_ids
from events.errors import Refused, Transient
from events.publisher import Outcome
from projections.queries.beliefs import beliefs_of
from projections.queries.memories import proposals_of
from services.composition import Backend
from services.curation.proposal import Rejected
from services.packs import proposals
from services.packs.form import Pack
from services.packs.imports import imports_of
from services.packs.proposals import Target
from services.packs.reporting import TAKEN, report_of

BATCH = 500
"""Events that are published together."""
PATIENCE_S = 60.0
"""How long nothing may be taken, or decided on, before an import is given up, to be begun again later."""
TELL_S = 5.0
"""How often it is told how far an import is, though it got no further: whoever listens knows that it goes on."""
_POLL_S, _LONGEST_POLL_S = 0.1, 1.0


class Progress(NamedTuple):
    """How far an import is: ``done`` of ``total`` items of a phase, ``publishing`` or ``curating``."""

    phase: str
    done: int
    total: int


class Importing:
    """One import; ``run`` it once. Raises Refused where the pack is of another kind of scope."""

    def __init__(self, backend: Backend, org: str, pack: Pack, target: Target) -> None:
        if pack.scope.level != target.scope.level:
            raise Refused(
                f"this is a pack of {pack.scope.key}: what belongs to one {pack.scope.level} is imported for a "
                f"{pack.scope.level}, not for {target.scope.key}",
                code="wrong_scope",
            )
        self._backend = backend
        self._org = org
        self._pack = pack
        self._target = target
        self._scope = target.scope.key
        self._digest = pack.digest
        self._outcomes: dict[str, Outcome] = {}
        self._token = ""

    async def run(self, now: datetime) -> AsyncIterator[Progress | dict[str, Any]]:
        """How far it is, again and again, and last the report: what was in the pack, and what became of it.

        Raises Transient where a store, or the curator, does not get on: then import again, nothing is doubled.
        """
        former = await self._report()
        if former is not None:
            yield {**former, "imported_before": True}
            return
        memories = proposals.memory_events(self._pack, self._target, self._digest, now)
        # tens of seconds for as many beliefs as a pack may hold
        against = await asyncio.to_thread(proposals.objections, self._pack)
        beliefs = await self._new_beliefs(against, now)
        kept = proposals.kept_events(self._pack, self._target, self._digest)
        raws = [*memories.values(), *beliefs.values(), *kept]
        async for done in self._publish(raws):
            yield Progress("publishing", done, len(raws))
        taken = self._taken(memories.values())
        async for left in self._curated(taken):
            yield Progress("curating", len(taken) - left, len(taken))
        fates = await self._fates(taken)
        data = report_of(self._pack, self._target, memories, beliefs, kept, self._outcomes, fates, against)
        yield await self._done(data, now)

    async def _done(self, data: Mapping[str, Any], now: datetime) -> dict[str, Any]:
        """Write the report down; it counts as the log has it, of two that end at one moment the first."""
        event = proposals.report_event(self._target, self._digest, data, now.isoformat())
        (outcome,) = await self._backend.publisher.publish([event], org=self._org, source="packs")
        report = await self._report()
        if report is None:
            raise Transient(f"that the import is done could not be written down: {outcome.message}; import again")
        return {**report, "imported_before": False, "token": outcome.token}

    async def _report(self) -> dict[str, Any] | None:
        identity = (self._org, self._scope, self._target.id(self._digest, "report"))
        if not await self._backend.db.read(partial(read_ids, wanted=[identity])):
            return None
        found = await self._backend.db.read(partial(imports_of, org=self._org, scope=self._scope))
        return next((one for one in found if one["event_id"] == identity[2]), None)

    async def _new_beliefs(self, against: Mapping[str, Rejected], now: datetime) -> dict[str, dict[str, Any]]:
        """Proposals of those beliefs that the scope has no view of: what it learned by itself stays as it is."""
        events = proposals.belief_events(self._pack, self._target, self._digest, against)
        wanted = [(self._org, self._scope, raw["id"]) for raw in events.values()]
        ours = {id_ for _, _, id_ in await self._backend.db.read(partial(read_ids, wanted=wanted))}
        work = partial(beliefs_of, org=self._org, scope=self._scope, now=now)
        known = {one["belief"] for one in (await self._backend.read_models.read("beliefs", work)).value}
        return {name: raw for name, raw in events.items() if raw["id"] in ours or name not in known}

    async def _publish(self, raws: Sequence[dict[str, Any]]) -> AsyncIterator[int]:
        """How many are published, batch by batch. One that is not durable in time is sent again, with the same ids."""
        start, since = 0, monotonic()
        while start < len(raws):
            batch = raws[start : start + BATCH]
            try:
                outcomes = await self._backend.publisher.publish(batch, org=self._org, source="packs")
            except Transient:
                if monotonic() - since > PATIENCE_S:
                    raise
                await asyncio.sleep(_POLL_S)
            else:
                self._outcomes.update((raw["id"], outcome) for raw, outcome in zip(batch, outcomes, strict=True))
                self._token = next((one.token for one in reversed(outcomes) if one.status == "stored"), self._token)
                start, since = start + len(batch), monotonic()
            yield start

    def _taken(self, raws: Iterable[Mapping[str, Any]]) -> set[str]:
        return {raw["id"] for raw in raws if self._outcomes[raw["id"]].status in TAKEN}

    async def _curated(self, ids: set[str]) -> AsyncIterator[int]:
        """How many of the proposals the curator has not decided on, now and then, until there are none."""
        left, since, told = len(ids), monotonic(), monotonic()
        while left:
            began = monotonic()
            pending = await self._proposals("pending")
            now_left = left if pending is None else len(ids & pending.keys())
            if now_left < left or monotonic() - told > TELL_S:
                since = monotonic() if now_left < left else since
                left, told = now_left, monotonic()
                yield left
            elif monotonic() - since > PATIENCE_S:
                raise Transient(
                    f"the curator has not decided on {left:,} of {len(ids):,} memories for {PATIENCE_S:g} s: see "
                    "`refold status`, then import the pack again; what is in already is not doubled"
                )
            if left:
                # whoever waits takes little of what those need that it waits for
                await asyncio.sleep(min(max(_POLL_S, 9 * (monotonic() - began)), _LONGEST_POLL_S))

    async def _fates(self, ids: set[str]) -> dict[str, dict[str, Any]]:
        fates = await self._proposals("") if ids else {}
        if fates is None:
            raise Transient("the memories are not folded as far as they are decided: import the pack again")
        return fates

    async def _proposals(self, status: str) -> dict[str, dict[str, Any]] | None:
        """Proposals of the scope by name; None while the read model has not folded what was published."""
        work = partial(proposals_of, org=self._org, scope=self._scope, status=status)
        wait_s = self._backend.settings.read_timeout_s
        found = await self._backend.read_models.read("memories", work, self._token or None, wait_s)
        return {one["proposal"]: one for one in found.value} if found.reached else None
