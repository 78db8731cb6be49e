"""Beliefs: what was learned, as integer counts of evidence, and how each piece can be traced back.

    experience.recorded   evidence for the tools it counts; notices of fatal failures. Of each run only the highest
                          deriver version counts: its counts replace the former ones, a lower version changes nothing
    feedback.given        (on a scope) support for "do as these words say", once for each run or session that said them
    belief.proposed       a belief's words, trigger and prior confidence
    belief.verified       one piece of evidence for or against it
    belief.retracted      it no longer holds, until it is proposed again

Counts lie in buckets of one UTC day of the event's time, so a sum over them is free of order. Confidence and status are
computed at read time (``projections.queries.confidence``). No row holds a log position: evidence names its event id,
and the same events give the same rows whatever the number of partitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import Double, MetaData

from events.event import Event, Recorded
from events.times import instant
from events.types.belief import BeliefProposed, BeliefRetracted, BeliefVerified, ExperienceRecorded
from events.types.world import FeedbackGiven
from projections.bounds import canonical, clip, digest, short, whole
from projections.draft import Blanks, Draft, count, flag, json, maybe, text
from projections.projection import Change, Projection, RowRef, Rows, read_model_table

STATEMENT_LIMIT = 1_000
MAX_RECENT = 8
"""Latest verdicts kept on a belief, in log order: enough to see two failures in a row."""

SUPPORTS = frozenset(("success", "deviated_success"))
SPEAKS_AGAINST = frozenset(("recoverable_failure", "fatal_failure"))

METADATA = MetaData()

BELIEFS = read_model_table(
    METADATA,
    "beliefs",
    text("belief", pk=True),
    text("full"),
    text("kind"),
    text("subject"),  # the tool, for tool reliability
    text("statement"),
    json("trigger"),
    text("tendency"),
    maybe("prior", Double),  # confidence it was proposed with; NULL: 0.5
    flag("proposed"),
    flag("retracted"),
    text("retracted_because"),
    count("evidence"),
    json("recent"),  # [[source, failed], ...]: the latest verdicts in log order
    text("last_verified"),  # latest of the evidence's times, UTC
)

COUNTS = read_model_table(
    METADATA,
    "belief_counts",
    text("belief", pk=True),
    count("day", pk=True),  # days since 1970-01-01 UTC
    count("success"),
    count("deviated_success"),
    count("recoverable_failure"),
    count("fatal_failure"),
)

EVIDENCE = read_model_table(
    METADATA,
    "evidence",
    text("belief", pk=True),
    text("source", pk=True),  # run, verification or feedback that it comes from
    text("kind"),  # experience, verification, feedback
    text("event_id"),
    text("run"),
    json("counts"),  # by label
    text("detail"),
    text("by"),
    text("time"),
)

EXPERIENCES = read_model_table(
    METADATA,
    "experiences",
    text("run", pk=True),
    text("run_id"),
    count("deriver_version"),
    text("agent"),
    text("user"),
    text("session"),
    json("nodes"),
    json("counts"),
    json("sheet"),
    json("notices"),  # keys of this run's rows in ``notices``
    text("event_id"),
    text("time"),
)

NOTICES = read_model_table(
    METADATA,
    "notices",
    text("pattern", pk=True),  # digest of tool and cause: the causal pattern
    text("run", pk=True),
    text("tool"),
    text("node"),
    text("cause"),
    count("count"),
    text("event_id"),
    text("time"),
)

TABLES = (BELIEFS, COUNTS, EVIDENCE, EXPERIENCES, NOTICES)
BLANKS = Blanks(TABLES)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def day_of(time: str) -> int:
    """The bucket of an event's time: whole days since 1970-01-01 UTC."""
    return (instant(time) - _EPOCH).days


def apply(recorded: Recorded, rows: Rows) -> Iterable[Change]:
    """Fold one event of a scope."""
    event = recorded.event
    if event.key.startswith("task/"):
        return ()  # feedback on a run reaches its scopes as an experience
    draft = Draft(rows, BLANKS)
    match recorded.payload:
        case ExperienceRecorded() as payload:
            _experienced(draft, event, payload)
        case FeedbackGiven() as payload if payload.text.strip():
            _told(draft, event, payload)
        case BeliefProposed() as payload:
            _proposed(draft, payload)
        case BeliefVerified() as payload:
            label = "success" if payload.supports else "recoverable_failure"
            source = Source(short(event.id), "verification", payload.detail, payload.by)
            _weigh(draft, event, _belief(draft, payload.belief, ""), source, {label: 1})
        case BeliefRetracted() as payload:
            _belief(draft, payload.belief, "").update(
                retracted=True, retracted_because=clip(payload.reason, STATEMENT_LIMIT)
            )
    return draft.changes()


class Source(msgspec.Struct, frozen=True):
    """Where a piece of evidence comes from."""

    key: str
    kind: str
    detail: str = ""
    by: str = ""
    run: str = ""


def _belief(draft: Draft, belief: str, kind: str) -> dict[str, Any]:
    row = draft.edit("beliefs", short(belief))
    row["full"] = whole(belief)
    row["kind"] = row["kind"] or kind
    return row


def _proposed(draft: Draft, payload: BeliefProposed) -> None:
    row = _belief(draft, payload.belief, "")
    row.update(
        kind=payload.kind,
        statement=clip(payload.statement, STATEMENT_LIMIT),
        trigger=payload.trigger,
        tendency=payload.tendency,
        prior=float(payload.confidence),
        proposed=True,
        retracted=False,
        retracted_because="",
    )


def _weigh(draft: Draft, event: Event, belief: dict[str, Any], source: Source, counts: dict[str, int]) -> None:
    """One source's evidence takes the place of what the same source said before."""
    name = belief["belief"]
    row = draft.edit("evidence", name, source.key)
    known = row["counts"] is not None
    if not known:
        belief["evidence"] += 1
    else:
        _count(draft, name, row["time"], row["counts"], -1)
    row.update(
        kind=source.kind,
        event_id=event.id,
        run=source.run,
        counts=counts,
        detail=clip(source.detail, STATEMENT_LIMIT),
        by=source.by,
        time=event.time,
    )
    _count(draft, name, event.time, counts, 1)
    belief["recent"] = _recent(belief["recent"] or [], source.key, counts, known=known)
    belief["last_verified"] = max(belief["last_verified"], instant(event.time).isoformat())


def _count(draft: Draft, belief: str, time: str, counts: dict[str, int], sign: int) -> None:
    bucket = draft.edit("belief_counts", belief, day_of(time))
    for label, number in counts.items():
        bucket[label] += sign * number


def _recent(recent: list[Any], source: str, counts: dict[str, int], *, known: bool) -> list[Any]:
    """The source's verdict (did more fail than succeed?) in its place of first mention, while that is remembered."""
    failed = sum(counts.get(label, 0) for label in SPEAKS_AGAINST)
    succeeded = sum(counts.get(label, 0) for label in SUPPORTS)
    verdict = [source, failed > succeeded]
    if known:
        return [verdict if entry[0] == source else entry for entry in recent]
    return [*recent, verdict][-MAX_RECENT:]


def _withdraw(draft: Draft, belief: dict[str, Any], source: str) -> None:
    row = draft.peek("evidence", belief["belief"], source)
    if row is None:
        return
    _count(draft, belief["belief"], row["time"], row["counts"], -1)
    belief["evidence"] -= 1
    belief["recent"] = [entry for entry in belief["recent"] or [] if entry[0] != source]
    draft.drop("evidence", belief["belief"], source)


def _told(draft: Draft, event: Event, payload: FeedbackGiven) -> None:
    row = _belief(draft, _feedback_belief(payload), "user_preference")
    key = _feedback_source(event, payload)
    if draft.peek("evidence", row["belief"], key) is not None:
        return  # the same words on the same occasion
    row["statement"] = row["statement"] or clip(payload.text.strip(), STATEMENT_LIMIT)
    source = Source(key, "feedback", payload.text, payload.by, event.run)
    _weigh(draft, event, row, source, {"success": 1})


def _feedback_belief(payload: FeedbackGiven) -> str:
    return f"feedback/{digest(' '.join(payload.text.casefold().split()))}"


def _feedback_source(event: Event, payload: FeedbackGiven) -> str:
    return digest(canonical([event.run, event.session, payload.target_kind, payload.target, payload.by, payload.score]))


def _experienced(draft: Draft, event: Event, payload: ExperienceRecorded) -> None:
    row = draft.edit("experiences", short(payload.run))
    if row["deriver_version"] >= payload.deriver_version:
        return
    run = short(payload.run)
    before, now = _by_tool(row["counts"] or []), _by_tool(msgspec.to_builtins(payload.counts))
    source = Source(run, "experience", run=payload.run)
    for tool in sorted(before.keys() | now.keys()):
        belief = _belief(draft, f"tool/{tool}", "tool_reliability")
        belief["subject"] = tool
        if tool in now:
            _weigh(draft, event, belief, source, now[tool])
        else:
            _withdraw(draft, belief, run)
    for pattern in row["notices"] or []:
        draft.drop("notices", pattern, run)
    row.update(
        run_id=payload.run,
        deriver_version=payload.deriver_version,
        agent=event.agent,
        user=event.user,
        session=event.session,
        nodes=msgspec.to_builtins(payload.nodes),
        counts=msgspec.to_builtins(payload.counts),
        sheet=payload.sheet,
        notices=_notices(draft, event, payload),
        event_id=event.id,
        time=event.time,
    )


def _by_tool(counts: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Evidence of each tool by label; unfinished nodes are none."""
    tools: dict[str, dict[str, int]] = {}
    for item in counts:
        if item["label"] != "unfinished" and item["count"]:
            labels = tools.setdefault(item["tool"], {})
            labels[item["label"]] = labels.get(item["label"], 0) + item["count"]
    return tools


def _notices(draft: Draft, event: Event, payload: ExperienceRecorded) -> list[str]:
    """A notice for every causal pattern that ended fatally; returns their keys."""
    fatal = [(n.tool, n.cause, n.node, 1) for n in payload.nodes if n.label == "fatal_failure"]
    fatal += [(c.tool, "", "", c.count) for c in payload.counts if c.label == "fatal_failure" and c.count]
    keys: dict[str, None] = {}
    for tool, cause, node, number in fatal:
        key = digest(f"{tool}\x1f{cause}")
        row = draft.edit("notices", key, short(payload.run))
        if key not in keys:
            row["count"] = 0
        keys[key] = None
        row.update(tool=tool, cause=clip(cause, STATEMENT_LIMIT), node=node, event_id=event.id, time=event.time)
        row["count"] += number
    return list(keys)


def names(recorded: Recorded) -> Iterable[RowRef]:
    """The rows that ``apply`` will ask for, but for those that a re-derived experience takes back."""
    event = recorded.event
    if event.key.startswith("task/"):
        return ()
    match recorded.payload:
        case ExperienceRecorded() as payload:
            run = short(payload.run)
            patterns = {digest(f"{n.tool}\x1f{n.cause}") for n in payload.nodes if n.label == "fatal_failure"}
            patterns |= {digest(f"{c.tool}\x1f") for c in payload.counts if c.label == "fatal_failure"}
            tools = {f"tool/{c.tool}" for c in payload.counts}
            refs = [ref for tool in sorted(tools) for ref in _evidence_names(event, tool, run)]
            notices = [RowRef("notices", (pattern, run)) for pattern in sorted(patterns)]
            return [RowRef("experiences", (run,)), *refs, *notices]
        case FeedbackGiven() as payload if payload.text.strip():
            return _evidence_names(event, _feedback_belief(payload), _feedback_source(event, payload))
        case BeliefVerified(belief=belief):
            return _evidence_names(event, belief, short(event.id))
        case BeliefProposed(belief=belief) | BeliefRetracted(belief=belief):
            return (RowRef("beliefs", (short(belief),)),)
        case _:
            return ()


def _evidence_names(event: Event, belief: str, source: str) -> list[RowRef]:
    key = short(belief)
    return [
        RowRef("beliefs", (key,)),
        RowRef("evidence", (key, source)),
        RowRef("belief_counts", (key, day_of(event.time))),
    ]


BELIEFS_PROJECTION = Projection(
    name="beliefs",
    version=1,
    tables=TABLES,
    handles=frozenset(
        ("experience.recorded", "feedback.given", "belief.proposed", "belief.verified", "belief.retracted")
    ),
    apply=apply,
    names=names,
)
