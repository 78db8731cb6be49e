"""Settlements: the notes that every run leaves, and the session state that the next context starts from.

    settlement.attempted   one call to the run's model: tokens (of its day, too), and what was wrong with the answer
    settlement.recorded    the run is settled; its SessionState may become the session's
    settlement.degraded    the run is settled with mechanical evidence only, never with a SessionState
    run.terminated         the run has ended: until it is settled, its session is *settling*
    card.summarized,       tokens of their day: what an org has spent on models in all
    conversation.read,
    belief.reviewed

The first settlement of a (run, version) wins; another one changes nothing but a count. A higher version, made on
purpose, supersedes the lower ones, which stay as history. Runs rank by their first settlement in the log: re-settling
an older run never takes the session back. Evidence of degraded runs since the state stands beside it, and the state
counts as stale until a run is settled in full.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC
from typing import Any

import msgspec
from sqlalchemy import Index, MetaData

from events.event import Event, Recorded
from events.times import instant
from events.types.belief import BeliefReviewed
from events.types.run import RunTerminated
from events.types.settlement import SettlementAttempted, SettlementDegraded, SettlementRecorded
from events.types.thought import CardSummarized, ConversationRead
from projections.bounds import clip, short
from projections.draft import Blanks, Draft, count, flag, json, text
from projections.projection import Change, Projection, RowRef, Rows, read_model_table

MAX_EVIDENCE_RUNS = 10
"""Degraded runs whose evidence is kept beside the session's state; older ones are in ``settlements``."""

ERROR_LIMIT = 500

METADATA = MetaData()

SETTLEMENTS = read_model_table(
    METADATA,
    "settlements",
    text("run", pk=True),
    count("version", pk=True),
    text("run_id"),
    text("status"),  # active, superseded
    count("superseded_by"),  # version
    flag("degraded"),
    text("degraded_reason"),
    text("by"),
    text("reason"),  # why the run ended
    flag("interrupted"),
    json("session_state"),
    json("memories"),
    json("reflections"),
    json("learnings"),
    json("evidence"),
    text("detail"),
    text("model"),
    count("attempts"),
    count("tokens_in"),
    count("tokens_out"),
    text("agent"),
    text("user"),
    text("session"),
    text("task"),
    text("event_id"),
    text("time"),
    count("epoch"),
    count("n"),
)
Index("settlements_by_outcome", SETTLEMENTS.c.status, SETTLEMENTS.c.degraded_reason)
Index("settlements_by_run", SETTLEMENTS.c.org, SETTLEMENTS.c.run)

SETTLED_RUNS = read_model_table(
    METADATA,
    "settled_runs",
    text("run", pk=True),
    text("run_id"),
    count("rank"),  # of the run within its key, by first settlement; 0: only attempted so far
    count("version"),  # the active one
    count("repeats"),  # settlements of a version that was there already
    count("attempts"),
    count("tokens_in"),
    count("tokens_out"),
    json("errors"),  # of the latest attempts
)

SESSIONS = read_model_table(
    METADATA,
    "sessions",
    text("session"),
    text("agent"),
    text("user"),
    json("state"),
    text("run"),
    count("version"),
    count("rank"),
    text("time"),
    flag("stale"),
    json("evidence_since"),  # [{run, rank, version, degraded, reason, evidence, time}]
    count("settled"),  # runs
    count("epoch"),
    count("n"),
)

ENDED_RUNS = read_model_table(
    METADATA,
    "ended_runs",
    text("run", pk=True),
    text("run_id"),
    text("reason"),
    text("session"),
    text("task"),
    text("agent"),
    text("user"),
    text("time"),
    count("epoch"),
    count("n"),
)
"""Runs that have ended, under the key of their task; what settles them stands under that of their session."""

Index("ended_runs_by_session", ENDED_RUNS.c.org, ENDED_RUNS.c.session)

MODEL_DAYS = read_model_table(
    METADATA,
    "model_days",
    text("day", pk=True),  # of UTC, as 2026-03-01
    count("calls"),
    count("tokens"),
)
"""What the models that the backend asks took on each day: for settlements, summaries of cards, reviews of beliefs."""

Index("model_days_by_day", MODEL_DAYS.c.org, MODEL_DAYS.c.day)

TABLES = (SETTLEMENTS, SETTLED_RUNS, SESSIONS, ENDED_RUNS, MODEL_DAYS)
BLANKS = Blanks(TABLES)
MAX_ERRORS = 5

Settlement = SettlementRecorded | SettlementDegraded


def apply(recorded: Recorded, rows: Rows) -> Iterable[Change]:
    """Fold one settlement event, or the end of a run."""
    draft = Draft(rows, BLANKS)
    match recorded.payload:
        case SettlementAttempted() as payload:
            _attempted(_run_row(draft, recorded.event), payload)
            if payload.by == "backend":
                _spent(draft, recorded.event, 1, payload.tokens_in + payload.tokens_out)
        case (CardSummarized() | ConversationRead()) as payload if payload.calls:
            _spent(draft, recorded.event, payload.calls, payload.tokens_in + payload.tokens_out)
        case BeliefReviewed() as payload if payload.tokens_in + payload.tokens_out:
            _spent(draft, recorded.event, 1, payload.tokens_in + payload.tokens_out)
        case SettlementRecorded() | SettlementDegraded() as payload:
            _settled(draft, _run_row(draft, recorded.event), recorded, payload)
        case RunTerminated() as payload:
            _ended(draft, recorded, payload)
    return draft.changes()


def _spent(draft: Draft, event: Event, calls: int, tokens: int) -> None:
    day = draft.edit("model_days", _day(event))
    day["calls"] += calls
    day["tokens"] += tokens


def _ended(draft: Draft, recorded: Recorded, payload: RunTerminated) -> None:
    """The first end of a run counts; one as ``lost`` only until another comes."""
    event, position = recorded.event, recorded.position
    row = draft.edit("ended_runs", short(_run_name(event)))
    if row["reason"] in ("", "lost"):
        row.update(run_id=_run_name(event), reason=payload.reason, session=event.session, task=event.task)
        row.update(agent=event.agent, user=event.user, time=event.time, epoch=position.epoch, n=position.n)


def _day(event: Event) -> str:
    return instant(event.time).astimezone(UTC).date().isoformat()


def _run_name(event: Event) -> str:
    return event.run or event.task


def _run_row(draft: Draft, event: Event) -> dict[str, Any]:
    row = draft.edit("settled_runs", short(_run_name(event)))
    row["run_id"] = _run_name(event)
    return row


def _attempted(run: dict[str, Any], payload: SettlementAttempted) -> None:
    run["attempts"] += 1
    run["tokens_in"] += payload.tokens_in
    run["tokens_out"] += payload.tokens_out
    if payload.error:
        run["errors"] = [*(run["errors"] or ()), clip(payload.error, ERROR_LIMIT)][-MAX_ERRORS:]


def _settled(draft: Draft, run: dict[str, Any], recorded: Recorded, payload: Settlement) -> None:
    event = recorded.event
    key = short(_run_name(event))
    if draft.peek("settlements", key, payload.version) is not None:
        run["repeats"] += 1
        return
    session = draft.edit("sessions")
    session.update(session=event.session, agent=event.agent, user=event.user)
    if not run["rank"]:
        session["settled"] += 1
        run["rank"] = session["settled"]
    row = draft.edit("settlements", key, payload.version)
    row.update(_common(recorded, payload))
    row.update(_products(payload))
    if payload.version < run["version"]:
        row.update(status="superseded", superseded_by=run["version"])
        return
    if run["version"]:
        draft.edit("settlements", key, run["version"]).update(status="superseded", superseded_by=payload.version)
    run["version"] = payload.version
    _carry(session, run, row)


def _common(recorded: Recorded, payload: Settlement) -> dict[str, Any]:
    event, position = recorded.event, recorded.position
    return {
        "run_id": _run_name(event),
        "status": "active",
        "reason": payload.reason or "",
        "interrupted": payload.interrupted,
        "attempts": payload.attempts,
        "agent": event.agent,
        "user": event.user,
        "session": event.session,
        "task": event.task,
        "event_id": event.id,
        "time": event.time,
        "epoch": position.epoch,
        "n": position.n,
    }


def _products(payload: Settlement) -> dict[str, Any]:
    if isinstance(payload, SettlementDegraded):
        return {
            "degraded": True,
            "degraded_reason": payload.degraded,
            "by": "backend",
            "evidence": payload.evidence,
            "detail": payload.detail,
        }
    return {
        "by": payload.by,
        "session_state": msgspec.to_builtins(payload.session_state),
        "memories": payload.memories,
        "reflections": payload.reflections,
        "learnings": payload.learnings,
        "model": payload.model,
        "tokens_in": payload.tokens_in,
        "tokens_out": payload.tokens_out,
    }


def _carry(session: dict[str, Any], run: dict[str, Any], row: dict[str, Any]) -> None:
    """The settlement's part in what the next context of the session starts from."""
    rank = run["rank"]
    since = [item for item in session["evidence_since"] or () if item["rank"] != rank]
    if row["degraded"]:
        if rank >= session["rank"]:
            since.append(
                {
                    "run": row["run_id"],
                    "rank": rank,
                    "version": row["version"],
                    "degraded": row["degraded_reason"],
                    "reason": row["reason"],
                    "interrupted": row["interrupted"],
                    "evidence": row["evidence"],
                    "time": row["time"],
                }
            )
    elif rank >= session["rank"]:
        session.update(state=row["session_state"], run=row["run_id"], version=row["version"], rank=rank)
        session.update(time=row["time"], epoch=row["epoch"], n=row["n"])
        since = [item for item in since if item["rank"] > rank]
    session["evidence_since"] = since[-MAX_EVIDENCE_RUNS:]
    session["stale"] = bool(since)


def names(recorded: Recorded) -> Iterable[RowRef]:
    """The rows that ``apply`` will ask for."""
    run = short(_run_name(recorded.event))
    payload = recorded.payload
    if isinstance(payload, RunTerminated):
        return [RowRef("ended_runs", (run,))]
    if isinstance(payload, (CardSummarized, ConversationRead, BeliefReviewed)):
        return [RowRef("model_days", (_day(recorded.event),))]
    refs = [RowRef("settled_runs", (run,))]
    if isinstance(payload, SettlementAttempted):
        refs.append(RowRef("model_days", (_day(recorded.event),)))
    if isinstance(payload, (SettlementRecorded, SettlementDegraded)):
        refs += [RowRef("sessions"), RowRef("settlements", (run, payload.version))]
        if payload.version > 1:
            refs.append(RowRef("settlements", (run, payload.version - 1)))
    return refs


SETTLEMENTS_PROJECTION = Projection(
    name="settlements",
    version=3,
    tables=TABLES,
    handles=frozenset(
        (
            "settlement.attempted",
            "settlement.recorded",
            "settlement.degraded",
            "run.terminated",
            "card.summarized",
            "conversation.read",
            "belief.reviewed",
        )
    ),
    apply=apply,
    names=names,
)
