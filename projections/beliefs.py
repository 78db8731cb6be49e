"""Beliefs: what was learned, as integer counts of evidence, and how each piece can be traced back.

    experience.recorded   of each run the last by (deriver version, revision) counts, whatever arrived first:
                          evidence for the tools it counts and for the path it went; notices of fatal failures
    feedback.given        (on a scope) support for "do as these words say", once for each occasion that said them
    belief.proposed       a belief's words, trigger, limits and prior confidence: those of the last by (time, id), and
                          those of the ones before it, for moments before its time
    belief.verified       one piece of evidence for or against it: of each source the last by (time, id)
    belief.reviewed       a review that found it to hold touches it; no count changes
    belief.retracted      it no longer holds, until a later proposal

Every table is a function of the *set* of a scope's events: reactors append theirs in any order, and the same runs in a
log of other partitions give the same rows. So "the last" is told by what the events say, never by their positions.
Nodes that are no evidence count for nothing. The tools and the path of a run are evidence at its agent's level; at its
user's only where it has no agent. A run whose experience says nothing in ``LAST_WORD`` is taken back for good.

Counts lie in buckets of one UTC day of the event's time, so a sum over them is free of order. Confidence, status and
what constrains are computed at read time (``projections.queries.confidence``, ``projections.queries.beliefs``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from events.event import Event, Recorded
from events.times import instant
from events.types.belief import (
    BeliefProposed,
    BeliefRetracted,
    BeliefReviewed,
    BeliefVerified,
    ExperienceRecorded,
)
from events.types.world import FeedbackGiven
from projections.belief.evidence import TEXT_LIMIT, Source, belief_row, day_of, mention, weigh, withdraw
from projections.belief.naming import belief_name, feedback_belief, plan_belief, tool_belief
from projections.belief.tables import BLANKS, TABLES
from projections.belief.trauma import note
from projections.bounds import canonical, clip, digest, short
from projections.draft import Draft
from projections.projection import Change, Projection, Row, RowRef, Rows

PATH_LIMIT = 500

HANDLES = frozenset(
    {
        "experience.recorded",
        "feedback.given",
        "belief.proposed",
        "belief.verified",
        "belief.reviewed",
        "belief.retracted",
    }
)


def apply(recorded: Recorded, rows: Rows) -> Iterable[Change]:
    """Fold one event of a scope."""
    event = recorded.event
    if event.key.startswith("task/"):
        return ()  # feedback on a run reaches its scopes as an experience
    draft, time = Draft(rows, BLANKS), instant(event.time).isoformat()
    match recorded.payload:
        case ExperienceRecorded() as payload:
            _experienced(draft, event, payload, time)
        case FeedbackGiven() as payload if payload.text.strip():
            _told(draft, event, payload, time)
        case BeliefProposed() as payload:
            _proposed(draft, event, payload, time)
        case BeliefVerified() as payload:
            _verified(draft, event, payload, time)
        case BeliefReviewed(belief=belief, verdict="holds"):
            row = belief_row(draft, belief_name(belief))
            row["reviewed_at"] = max(row["reviewed_at"], time)
        case BeliefRetracted() as payload:
            _retracted(draft, event, payload, time)
    return draft.changes()


def _proposed(draft: Draft, event: Event, payload: BeliefProposed, time: str) -> None:
    words = {
        "kind": payload.kind, "statement": clip(payload.statement, TEXT_LIMIT), "trigger": payload.trigger,
        "tendency": payload.tendency, "limits": payload.limits, "prior": float(payload.confidence),
        "proposed_at": time, "proposed_id": event.id,
    }  # fmt: skip
    said = _said(draft, event, payload.belief, "proposed", words, time)
    said.update(because=payload.because, elsewhere=payload.elsewhere)


def _retracted(draft: Draft, event: Event, payload: BeliefRetracted, time: str) -> None:
    because = clip(payload.reason, TEXT_LIMIT)
    words = {"retracted_at": time, "retracted_id": event.id, "retracted_because": because}
    _said(draft, event, payload.belief, "retracted", words, time)


def _said(draft: Draft, event: Event, belief: str, act: str, words: dict[str, Any], time: str) -> dict[str, Any]:
    """Keep what a proposal or a retraction says; the last one's words stand on the belief."""
    row = belief_row(draft, belief_name(belief))
    if (time, event.id) > (row[f"{act}_at"], row[f"{act}_id"]):
        row.update(words)
    said = draft.add("belief_grounds", row["belief"], short(event.id))
    said.update(act=act, words=words, event_id=event.id, time=time)
    return said


def _verified(draft: Draft, event: Event, payload: BeliefVerified, time: str) -> None:
    row, key = belief_row(draft, belief_name(payload.belief)), _occasion(event, payload)
    known = draft.peek("evidence", row["belief"], key)
    if known is not None and (known["time"], known["event_id"]) >= (time, event.id):
        mention(draft, row, key, time)
        return
    source = Source(
        key, "verification", event.id, time, event.run, because=payload.because, detail=payload.detail, by=payload.by
    )
    label = "success" if payload.supports else "recoverable_failure"
    weigh(draft, row, source, {} if payload.withdrawn else {label: 1})


def _occasion(event: Event, payload: BeliefVerified) -> str:
    return short(payload.source or event.id)


def _told(draft: Draft, event: Event, payload: FeedbackGiven, time: str) -> None:
    """Of an occasion that says the same twice, the first stays."""
    row, key = belief_row(draft, feedback_belief(payload.text)), _feedback_source(event, payload)
    at = f"{time} {event.id}"
    if not row["subject_at"] or at < row["subject_at"]:
        row.update(subject=clip(payload.text.strip(), TEXT_LIMIT), subject_at=at)
    known = draft.peek("evidence", row["belief"], key)
    if known is not None and (known["time"], known["event_id"]) <= (time, event.id):
        mention(draft, row, key, time)
        return
    source = Source(key, "feedback", event.id, time, event.run, detail=payload.text, by=payload.by)
    weigh(draft, row, source, {"success": 1})


def _feedback_source(event: Event, payload: FeedbackGiven) -> str:
    return digest(canonical([event.run, event.session, payload.target_kind, payload.target, payload.by, payload.score]))


class _Claim(NamedTuple):
    """What one experience says of one belief."""

    subject: str
    counts: dict[str, int]
    because: list[str]


def _experienced(draft: Draft, event: Event, payload: ExperienceRecorded, time: str) -> None:
    run, claims = short(payload.run), _claims(event, payload)
    before = draft.peek("experiences", run)
    if before is not None and not _counts_more(event, payload, before):
        for name, claim in claims.items():
            mention(draft, _subject(draft, name, claim), run, time)
        return
    for name in before["beliefs"] if before is not None else ():
        if name not in claims:
            withdraw(draft, belief_row(draft, name), run)
    for name, claim in claims.items():
        source = Source(run, "experience", event.id, time, payload.run, because=claim.because)
        weigh(draft, _subject(draft, name, claim), source, claim.counts)
    noted = note(draft, payload, before["notices"] if before is not None else [], event.id, time)
    draft.put(("experiences", run), {
        "run": run, "run_id": payload.run, "deriver_version": payload.deriver_version, "revision": payload.revision,
        "agent": event.agent, "user": event.user, "session": event.session, "owner": payload.owner,
        "nodes": msgspec.to_builtins(payload.nodes), "counts": msgspec.to_builtins(payload.counts),
        "path": clip(payload.path, PATH_LIMIT), "path_label": payload.path_label, "deviation": payload.deviation,
        "sheet": payload.sheet, "beliefs": list(claims), "notices": noted, "event_id": event.id, "time": time,
    })  # fmt: skip


def _counts_more(event: Event, payload: ExperienceRecorded, row: Row) -> bool:
    """Whether a derivation of the row's run takes the place of the one there: of equal ones the least id stays."""
    before, now = (row["deriver_version"], row["revision"]), (payload.deriver_version, payload.revision)
    return now > before or (now == before and event.id < row["event_id"])


def _subject(draft: Draft, name: str, claim: _Claim) -> dict[str, Any]:
    row = belief_row(draft, name)
    row["subject"] = row["subject"] or claim.subject
    return row


def _claims(event: Event, payload: ExperienceRecorded) -> dict[str, _Claim]:
    """What a run says of its tools and of its path, by the names of the beliefs; unfinished nodes say nothing."""
    if payload.scope == "user" and event.agent:
        return {}
    claims: dict[str, _Claim] = {}
    for item in payload.counts:
        if item.label != "unfinished" and item.count:
            name = tool_belief(item.tool)
            claim = claims.get(name)
            if claim is None:
                claim = claims[name] = _Claim(name.removeprefix("tool/"), {}, _events_about(payload, name))
            claim.counts[item.label] = claim.counts.get(item.label, 0) + item.count
    if payload.path and payload.path_label != "unfinished":
        path = clip(belief_name(payload.path), PATH_LIMIT)
        claims[plan_belief(payload.path)] = _Claim(path, {payload.path_label: 1}, [])
    return claims


def _events_about(payload: ExperienceRecorded, name: str) -> list[str]:
    told = (node for node in payload.nodes if node.event and node.evidence and node.tool)
    return [node.event for node in told if tool_belief(node.tool) == name]


def names(recorded: Recorded) -> Iterable[RowRef]:
    """The rows that ``apply`` will ask for, but for those that a later derivation takes back."""
    event = recorded.event
    if event.key.startswith("task/"):
        return ()
    match recorded.payload:
        case ExperienceRecorded() as payload:
            run, day = short(payload.run), _day(event)
            refs = [ref for name in _claims(event, payload) for ref in _evidence_names(name, run, day)]
            return [RowRef("experiences", (run,)), *refs]
        case FeedbackGiven() as payload if payload.text.strip():
            return _evidence_names(feedback_belief(payload.text), _feedback_source(event, payload), _day(event))
        case BeliefVerified() as payload:
            return _evidence_names(belief_name(payload.belief), _occasion(event, payload), _day(event))
        case BeliefProposed(belief=belief) | BeliefReviewed(belief=belief) | BeliefRetracted(belief=belief):
            return (RowRef("beliefs", (short(belief_name(belief)),)),)
        case _:
            return ()


def _day(event: Event) -> int:
    return day_of(instant(event.time).isoformat())


def _evidence_names(name: str, source: str, day: int) -> list[RowRef]:
    key = short(name)
    return [RowRef("beliefs", (key,)), RowRef("evidence", (key, source)), RowRef("belief_counts", (key, day))]


BELIEFS_PROJECTION = Projection(
    name="beliefs",
    version=3,
    tables=TABLES,
    handles=HANDLES,
    apply=apply,
    names=names,
)
