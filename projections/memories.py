"""Memories: what is known beyond a run, how each came and changed, and what became of everything that was proposed.

    memory.proposed       a proposal waits for the curator's decision
    memory.admitted       a memory, unless an active one of its kind says the same: then that one is verified instead
    memory.rejected       the proposal did not enter, with the reason; a copy verifies the memory it repeats
    memory.superseded     another memory took its place
    memory.edited         its words change, when it still has the version that the editor saw
    memory.invalidated    it holds no more, until it is restored
    memory.restored       it holds again, unless another active one says the same
    memory.consolidated   several become one, if none of them has changed since that was decided
    memory.deleted        its words are gone, from its history too; nothing brings it back
    memory.recalled       it was read into a context

The fold has the last word on decisions: one whose ``based_on`` is before the scope's last change is stale, counts for
nothing, and leaves its proposal pending; the changes of one view of the scope, which share their ``based_on``, do not
outdate each other. So two curators, or two ways in, never make one memory twice, live or in a replay.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from events.event import Event, Position, Recorded
from events.times import instant
from events.types.memory import (
    MemoryAdmitted,
    MemoryConsolidated,
    MemoryDeleted,
    MemoryEdited,
    MemoryInvalidated,
    MemoryProposed,
    MemoryRecalled,
    MemoryRejected,
    MemoryRestored,
    MemorySuperseded,
)
from projections.bounds import clip, short, whole
from projections.cards.secrecy.secrets import masked_text
from projections.draft import Draft
from projections.memory.normal import saying
from projections.memory.tables import BLANKS, TABLES
from projections.projection import Change, Projection, RowRef, Rows

CONTENT_LIMIT = 8_000
REASON_LIMIT = 500

Decision = MemoryAdmitted | MemoryRejected | MemorySuperseded | MemoryConsolidated


def apply(recorded: Recorded, rows: Rows) -> Iterable[Change]:
    """Fold one event of a scope."""
    scope = _Scope(Draft(rows, BLANKS), recorded)
    match recorded.payload:
        case MemoryProposed() as payload:
            _proposed(scope, payload)
        case MemoryAdmitted() | MemoryRejected() | MemorySuperseded() | MemoryConsolidated() as payload:
            _decided(scope, payload)
        case MemoryEdited() as payload:
            _edited(scope, payload)
        case MemoryInvalidated() as payload:
            if (row := scope.memory(payload.memory, "active", "superseded")) is not None:
                scope.silence(row)
                scope.change(row, "invalidated", because=payload.reason, by=payload.by, status="invalidated")
        case MemoryRestored() as payload:
            _restored(scope, payload)
        case MemoryDeleted() as payload:
            _deleted(scope, payload)
        case MemoryRecalled() as payload:
            for name in dict.fromkeys(payload.memories):
                if (row := scope.memory(name, "active", "superseded", "invalidated")) is not None:
                    row["hits"] += 1
                    row["last_access"] = max(row["last_access"], scope.moment)
    return scope.draft.changes()


class _Scope:
    """The rows of a scope while one event is folded into them."""

    def __init__(self, draft: Draft, recorded: Recorded) -> None:
        self.draft = draft
        self.event: Event = recorded.event
        self.position = recorded.position
        self.moment = instant(recorded.event.time).isoformat()

    def memory(self, name: str, *statuses: str) -> dict[str, Any] | None:
        """A memory to change, when there is one in any of the statuses."""
        found = self.draft.peek("memories", short(name))
        return self.draft.edit("memories", short(name)) if found is not None and found["status"] in statuses else None

    def holder(self, kind: str, content: str) -> str:
        """The active memory of the kind that says this; empty: none."""
        row = self.draft.peek("memory_sayings", saying(kind, content))
        return "" if row is None else str(row["memory"])

    def say(self, row: dict[str, Any]) -> None:
        """The memory stands for what it says."""
        self.draft.edit("memory_sayings", saying(row["kind"], row["content"]))["memory"] = row["memory"]

    def silence(self, row: dict[str, Any]) -> None:
        """Nothing active says this any more, if it was this memory that did."""
        key = saying(row["kind"], row["content"])
        said = self.draft.peek("memory_sayings", key)
        if said is not None and said["memory"] == row["memory"]:
            if said["deleted"]:
                self.draft.edit("memory_sayings", key)["memory"] = ""
            else:
                self.draft.drop("memory_sayings", key)

    def is_fresh(self, based_on: str) -> bool:
        """Whether a decision knew all that has changed in the scope; one that does not say what it knew, does."""
        last = self.draft.peek("memory_scopes")
        if not based_on or last is None or last["based_on"] == based_on:
            return True
        try:
            return Position(last["epoch"], last["n"]) <= Position.parse(based_on)
        except ValueError:
            return False

    def change(
        self,
        row: dict[str, Any],
        change: str,
        *,
        because: str = "",
        other: str = "",
        by: str = "",
        based_on: str = "",
        status: str = "",
    ) -> None:
        """Write a change of a memory down: in its row, its history, and as the scope's last one."""
        if status:
            row.update(status=status, because=clip(because, REASON_LIMIT) if status != "active" else "")
            row["superseded_by"] = other if status == "superseded" else ""
        epoch, n = self.position
        row.update(version=row["version"] + 1, updated=self.event.time, epoch=epoch, n=n)
        said = row["content"] if change in ("admitted", "edited", "consolidated") else ""
        self.draft.edit("memory_changes", row["memory"], row["version"]).update(
            change=change, content=said, because=clip(because, REASON_LIMIT), other=other, by=by,
            event_id=self.event.id, time=self.event.time,
        )  # fmt: skip
        self.draft.edit("memory_scopes").update(epoch=epoch, n=n, based_on=based_on)

    def verify(self, row: dict[str, Any]) -> None:
        """It was said again: no change of what is known, but its time to live begins anew."""
        row["said"] += 1
        row["last_verified"] = max(row["last_verified"], self.moment)


def words_kept(content: str) -> str:
    """What of a memory's words is kept: bounded, and without secrets, whichever way they came (C21)."""
    return clip(masked_text(content), CONTENT_LIMIT)


def _proposed(scope: _Scope, payload: MemoryProposed) -> None:
    event = scope.event
    row = scope.draft.edit("memory_proposals", short(event.id))
    epoch, n = scope.position
    row.update(
        full=whole(event.id), status=row["status"] or "pending", kind=payload.kind, source=payload.source,
        session=event.session, run=event.run, time=event.time, epoch=epoch, n=n,
    )  # fmt: skip


def _decided(scope: _Scope, payload: Decision) -> None:
    """A decision counts if it is fresh, and the first one on its proposal."""
    proposal = None
    if isinstance(payload, MemoryAdmitted | MemoryRejected) and payload.proposal:
        proposal = scope.draft.edit("memory_proposals", short(payload.proposal))
        proposal["full"] = whole(payload.proposal)
        if proposal["status"] in ("admitted", "rejected"):
            return
    if not scope.is_fresh(payload.based_on):
        scope.draft.edit("memory_scopes")["stale"] += 1
        if proposal is not None:
            proposal["stale"] += 1
        return
    match payload:
        case MemoryAdmitted():
            _admitted(scope, payload, proposal)
        case MemoryRejected():
            _rejected(scope, payload, proposal)
        case MemorySuperseded():
            if (row := scope.memory(payload.memory, "active")) is not None:
                _supersede(scope, row, short(payload.superseded_by), payload.reason, payload.based_on)
        case MemoryConsolidated():
            _consolidated(scope, payload)


def _admitted(scope: _Scope, payload: MemoryAdmitted, proposal: dict[str, Any] | None) -> None:
    name, content = short(payload.memory), words_kept(payload.content)
    said_by = scope.holder(payload.kind, content)
    if said_by or scope.draft.peek("memories", name) is not None:
        same = said_by or name
        if (row := scope.memory(same, "active")) is not None:
            scope.verify(row)
        _close(scope, proposal, "rejected", same, "duplicate")
        return
    row = scope.draft.add("memories", name)
    event = scope.event
    row.update(
        full=whole(payload.memory), kind=payload.kind, memory_type=payload.memory_type, content=content,
        entity=payload.entity, attribute=payload.attribute, confidence=_number(payload.confidence),
        score=_number(payload.score), tags=payload.tags, source=payload.source, trust=payload.trust,
        agent=event.agent, session=event.session, task=event.task, run=event.run, proposal=short(payload.proposal),
        ttl_s=_number(payload.ttl_s), created=event.time, event_id=event.id,
    )  # fmt: skip
    scope.verify(row)
    scope.change(row, "admitted", other=row["proposal"], based_on=payload.based_on, status="active")
    scope.say(row)
    _close(scope, proposal, "admitted", name, "")


def _rejected(scope: _Scope, payload: MemoryRejected, proposal: dict[str, Any] | None) -> None:
    if payload.duplicate_of and (row := scope.memory(payload.duplicate_of, "active")) is not None:
        scope.verify(row)
    detail = clip(payload.detail, REASON_LIMIT)
    _close(scope, proposal, "rejected", short(payload.duplicate_of), clip(payload.reason, REASON_LIMIT), detail)


def _close(
    scope: _Scope, proposal: dict[str, Any] | None, status: str, memory: str, reason: str, detail: str = ""
) -> None:
    if proposal is not None:
        proposal.update(status=status, memory=memory, reason=reason, detail=detail, decided=scope.event.time)


def _supersede(scope: _Scope, row: dict[str, Any], by: str, because: str, based_on: str) -> None:
    scope.silence(row)
    scope.change(row, "superseded", because=because, other=by, based_on=based_on, status="superseded")


def _edited(scope: _Scope, payload: MemoryEdited) -> None:
    row = scope.memory(payload.memory, "active", "superseded", "invalidated")
    if row is None:
        return
    if payload.expected_version is not None and payload.expected_version != row["version"]:
        row["conflicts"] += 1
        return
    active = row["status"] == "active"
    content = words_kept(payload.content)
    said_by = scope.holder(row["kind"], content) if active else ""
    if active:
        scope.silence(row)
    row["content"] = content
    scope.change(row, "edited", by=payload.by)
    if said_by and said_by != row["memory"]:
        scope.change(row, "superseded", because="it says what that one says", other=said_by, status="superseded")
    elif active:
        scope.say(row)


def _restored(scope: _Scope, payload: MemoryRestored) -> None:
    row = scope.memory(payload.memory, "active", "superseded", "invalidated")
    if row is None:
        return
    said_by = scope.holder(row["kind"], row["content"])
    if said_by and said_by != row["memory"]:
        scope.change(row, "superseded", because="it says what that one says", other=said_by, status="superseded")
        return
    scope.verify(row)
    scope.change(row, "restored", by=payload.by, status="active")
    scope.say(row)


def _deleted(scope: _Scope, payload: MemoryDeleted) -> None:
    row = scope.memory(payload.memory, "active", "superseded", "invalidated")
    if row is None:
        return
    scope.silence(row)
    said = {row["content"]}
    for version in range(1, row["version"] + 1):
        change = scope.draft.edit("memory_changes", row["memory"], version)
        said.add(change["content"])
        change["content"] = ""
    for content in sorted(said - {""}):
        scope.draft.edit("memory_sayings", saying(row["kind"], content))["deleted"] = row["memory"]
    row.update(content="", entity="", attribute="", tags=None)
    scope.change(row, "deleted", by=payload.by, status="deleted")


def _consolidated(scope: _Scope, payload: MemoryConsolidated) -> None:
    """One memory in the place of several, if every one of them is as the decision saw it."""
    sources = [scope.memory(name, "active") for name in dict.fromkeys(payload.sources)]
    name, content = short(payload.memory), words_kept(payload.content)
    found = [row for row in sources if row is not None]
    if len(found) < len(sources) or not found or scope.draft.peek("memories", name) is not None:
        return
    others = {row["memory"] for row in found}
    if scope.holder(payload.kind, content) not in {"", *others}:
        return
    for source in found:
        _supersede(scope, source, name, "consolidated", payload.based_on)
    row = scope.draft.add("memories", name)
    newest, event = found[-1], scope.event
    row.update(
        {field: newest[field] for field in ("memory_type", "entity", "attribute", "agent", "session", "ttl_s")},
        full=whole(payload.memory), kind=payload.kind, content=content, created=event.time, event_id=event.id,
        confidence=_most(found, "confidence"), score=_most(found, "score"), source=newest["source"],
        trust="data" if any(one["trust"] == "data" for one in found) else "stated",
        tags=sorted({tag for one in found for tag in one["tags"] or ()}), said=sum(one["said"] for one in found),
        hits=sum(one["hits"] for one in found), last_verified=max(one["last_verified"] for one in found),
        last_access=max(one["last_access"] for one in found),
    )  # fmt: skip
    scope.change(row, "consolidated", because=", ".join(sorted(others)), based_on=payload.based_on, status="active")
    scope.say(row)


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)


def _most(found: list[dict[str, Any]], name: str) -> float | None:
    return max((row[name] for row in found if row[name] is not None), default=None)


def names(recorded: Recorded) -> Iterable[RowRef]:
    """The rows that ``apply`` will ask for, but for the words and history of a memory that it finds on its way."""
    payload = recorded.payload
    yield RowRef("memory_scopes")
    match payload:
        case MemoryProposed():
            yield RowRef("memory_proposals", (short(recorded.event.id),))
        case MemoryAdmitted() | MemoryRejected() if payload.proposal:
            yield RowRef("memory_proposals", (short(payload.proposal),))
    match payload:
        case MemoryAdmitted():
            yield RowRef("memories", (short(payload.memory),))
            yield RowRef("memory_sayings", (saying(payload.kind, words_kept(payload.content)),))
        case MemoryRejected() if payload.duplicate_of:
            yield RowRef("memories", (short(payload.duplicate_of),))
        case MemoryConsolidated():
            for name in (payload.memory, *payload.sources):
                yield RowRef("memories", (short(name),))
        case MemoryRecalled():
            for name in payload.memories:
                yield RowRef("memories", (short(name),))
        case MemorySuperseded() | MemoryEdited() | MemoryInvalidated() | MemoryRestored() | MemoryDeleted():
            yield RowRef("memories", (short(payload.memory),))


MEMORIES_PROJECTION = Projection(
    name="memories",
    version=1,
    tables=TABLES,
    handles=frozenset(
        f"memory.{what}"
        for what in (
            "proposed", "admitted", "rejected", "superseded", "edited", "invalidated", "restored", "deleted",
            "consolidated", "recalled",
        )
    ),
    apply=apply,
    names=names,
)  # fmt: skip
