"""Reads of beliefs: what a scope believes at a moment, and the evidence that each belief stands on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, bindparam, select

from events.types.belief import LAST_WORD
from projections.belief.baseline import above_baseline
from projections.belief.evidence import MAX_LATEST, tally
from projections.belief.naming import belief_name
from projections.belief.tables import BELIEFS, COUNTS, EVIDENCE, EXPERIENCES, GROUNDS
from projections.belief.words import plan_words, tool_words
from projections.bounds import short
from projections.cards.secrecy.secrets import masked
from projections.queries.confidence import (
    DEFAULT_RULES,
    BeliefRules,
    Bucket,
    Standing,
    confidence_at,
    status_at,
    utc_day,
    weight_of,
)
from projections.queries.notices import constraints_among, notices_of
from projections.queries.rows import Document, Query, many, one, pick

__all__ = [
    "belief_document",
    "belief_documents",
    "beliefs_of",
    "evidence_of",
    "experience_of",
    "experiences_named",
    "experiences_of",
    "notices_of",
    "rank",
    "without_secrets",
]

SHOWN_EVIDENCE = 100
"""Latest pieces of evidence in the document of a belief; ``evidence_of`` has them all."""

_EPOCH = date(1970, 1, 1).toordinal()
_SAYS_SOMETHING = EXPERIENCES.c.deriver_version < LAST_WORD
"""Not the last word on a run of somebody erased: it is kept so that no derivation comes after it, and tells nothing."""
_BELIEFS = Query(BELIEFS)
_ONE_BELIEF = Query(BELIEFS, BELIEFS.c.belief == bindparam("belief"))
_SUPPORTS = COUNTS.c.success + COUNTS.c.deviated_success
_AGAINST = COUNTS.c.recoverable_failure + COUNTS.c.fatal_failure
_COUNTS = select(COUNTS.c.belief, COUNTS.c.day, _SUPPORTS, _AGAINST).where(
    COUNTS.c.org == bindparam("of_org"), COUNTS.c.key == bindparam("of_key")
)
_ITS_COUNTS = _COUNTS.where(COUNTS.c.belief == bindparam("belief"))
_GROUNDS = Query(GROUNDS, GROUNDS.c.belief == bindparam("belief"), GROUNDS.c.event_id == bindparam("proposal"))
_SAID_BEFORE = Query(
    GROUNDS, GROUNDS.c.belief == bindparam("belief"), GROUNDS.c.act == bindparam("act"),
    GROUNDS.c.time <= bindparam("moment"), order=(GROUNDS.c.time.desc(), GROUNDS.c.event_id.desc()), limit=1,
)  # fmt: skip
_EARLIER = Query(
    EVIDENCE, EVIDENCE.c.belief == bindparam("belief"), EVIDENCE.c.time <= bindparam("moment"),
    order=(EVIDENCE.c.time.desc(), EVIDENCE.c.source.desc()), limit=MAX_LATEST,
)  # fmt: skip
_EVIDENCE = ("source", "kind", "run", "counts", "because", "detail", "by", "time", "event_id")
_EXPERIENCE = (
    "deriver_version", "revision", "agent", "user", "session", "nodes", "counts", "path", "path_label", "deviation",
    "sheet", "event_id", "time",
)  # fmt: skip

_SAID = frozenset(
    ("statement", "subject", "tendency", "limits", "retired_because", "elsewhere", "detail", "cause", "notice")
)
"""What people, models and tools said."""


def beliefs_of(
    conn: Connection,
    org: str,
    scope: str,
    *,
    now: datetime,
    status: str = "",
    rules: BeliefRules = DEFAULT_RULES,
    notices: Sequence[Document] | None = None,
) -> list[Document]:
    """Beliefs of a scope (``agent/coder``, ``user/u1``, ``org``) at a moment, the most confident first.

    ``now`` may lie in the past: then they are judged by the evidence of that day and before. ``notices``: the scope's
    of that moment (``notices_of``), where they are read already.
    """
    buckets = _buckets(conn, _COUNTS, of_org=org, of_key=scope)
    rows = _BELIEFS.all(conn, org, scope)
    constrained = constraints_among(notices_of(conn, org, scope, now=now, rules=rules) if notices is None else notices)
    moment = _text(now)
    for row in rows:
        _as_of(conn, org, scope, row, moment)
    found = [_belief(row, buckets[short(row["belief"])], constrained, now, rules) for row in rows]
    found.sort(key=rank)
    return [belief for belief in found if status in ("", belief["status"])]


def rank(belief: Document) -> tuple[float, str]:
    """What beliefs are in order by: the most confident first, then by name."""
    return -belief["confidence"], belief["belief"]


def belief_document(
    conn: Connection, org: str, scope: str, belief: str, *, now: datetime, rules: BeliefRules = DEFAULT_RULES
) -> Document | None:
    """One belief and why it is believed; None when the scope has no such belief.

    ``evidence`` holds its latest sources with ids of raw events, ``days`` what each day counts for and weighs now,
    ``because`` and ``elsewhere`` what its proposal named.
    """
    return next(iter(belief_documents(conn, org, scope, [belief], now=now, rules=rules)), None)


def belief_documents(
    conn: Connection, org: str, scope: str, names: Iterable[str], *, now: datetime, rules: BeliefRules = DEFAULT_RULES
) -> list[Document]:
    """The beliefs of these names, as ``belief_document`` has them; without those that the scope has not."""
    constrained = constraints_among(notices_of(conn, org, scope, now=now, rules=rules))
    found = (_document(conn, org, scope, name, constrained, now, rules) for name in names)
    return [document for document in found if document is not None]


def _document(
    conn: Connection, org: str, scope: str, belief: str, constrained: Mapping[str, str], now: datetime,
    rules: BeliefRules,
) -> Document | None:  # fmt: skip
    key = short(belief_name(belief))
    row = _ONE_BELIEF.first(conn, org, scope, belief=key)
    if row is None:
        return None
    buckets = _buckets(conn, _ITS_COUNTS, of_org=org, of_key=scope, belief=key)[key]
    _as_of(conn, org, scope, row, _text(now))
    grounds = _GROUNDS.first(conn, org, scope, belief=key, proposal=row["proposed_id"]) or {}
    return {
        **_belief(row, buckets, constrained, now, rules),
        "because": grounds.get("because") or [],
        "elsewhere": grounds.get("elsewhere") or [],
        **({"proposed_by": grounds["event_id"], "proposed": row["proposed_at"]} if grounds else {}),
        "days": [_day(bucket, row["kind"], now, rules) for bucket in sorted(buckets)],
        "evidence": evidence_of(conn, org, scope, belief, now=now, limit=SHOWN_EVIDENCE),
    }


def evidence_of(
    conn: Connection,
    org: str,
    scope: str,
    belief: str,
    *,
    now: datetime | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> list[Document]:
    """What a belief stands on, the latest first, by (time, source); without what is dated after ``now``."""
    wanted = [EVIDENCE.c.belief == short(belief_name(belief))]
    if now is not None:
        wanted.append(EVIDENCE.c.time <= _text(now))
    order = (EVIDENCE.c.time.desc(), EVIDENCE.c.source.desc())
    found = many(conn, EVIDENCE, org, scope, *wanted, order=order, limit=limit, offset=offset)
    return [pick(item, *_EVIDENCE) for item in found]


def experience_of(conn: Connection, org: str, scope: str, run: str) -> Document | None:
    """What a scope keeps of a run; None when it was not derived, or not for this scope."""
    row = one(conn, EXPERIENCES, org, scope, EXPERIENCES.c.run == short(run), _SAYS_SOMETHING)
    return None if row is None else _experience(row)


def experiences_of(
    conn: Connection, org: str, scope: str, *, limit: int | None = None, offset: int = 0
) -> list[Document]:
    """What a scope keeps of its runs, the latest first."""
    latest = (EXPERIENCES.c.time.desc(),)
    found = many(conn, EXPERIENCES, org, scope, _SAYS_SOMETHING, order=latest, limit=limit, offset=offset)
    return [_experience(row) for row in found]


def experiences_named(conn: Connection, org: str, scope: str, runs: Iterable[str]) -> dict[str, Document]:
    """What a scope keeps of these runs, by run."""
    named = EXPERIENCES.c.run.in_([short(run) for run in runs])
    found = many(conn, EXPERIENCES, org, scope, named, _SAYS_SOMETHING)
    return {row["run_id"]: _experience(row) for row in found}


def _experience(row: Document) -> Document:
    return {"run": row["run_id"], **pick(row, *_EXPERIENCE)}


def without_secrets(document: Document) -> Document:
    """A belief, a notice or a piece of evidence as it may be shown: what was said, masked (C21).

    The fold keeps words as they came; packs and policies mask them as well.
    """
    shown = {name: masked(value) if name in _SAID else value for name, value in document.items()}
    if isinstance(document.get("evidence"), list):
        shown["evidence"] = [without_secrets(one) for one in document["evidence"]]
    return shown


def _buckets(conn: Connection, counts: Select[Any], **of: str) -> dict[str, list[Bucket]]:
    buckets: dict[str, list[Bucket]] = defaultdict(list)
    for belief, *bucket in conn.execute(counts, of):
        buckets[belief].append(Bucket(*bucket))
    return buckets


def _as_of(conn: Connection, org: str, scope: str, row: Document, moment: str) -> None:
    """Make of a belief's row what it says at a moment: what is dated later has taken the place of nothing yet.

    A belief whose every proposal is dated later is told by the words of the last one.
    """
    row["latest"] = _latest(conn, org, scope, row, moment)
    for act in ("proposed", "retracted"):
        if (row[f"{act}_at"] or "") > moment:
            of = {"belief": short(row["belief"]), "act": act, "moment": moment}
            if before := _SAID_BEFORE.first(conn, org, scope, **of):
                row.update(before["words"])


def _latest(conn: Connection, org: str, scope: str, row: Document, moment: str) -> list[Any]:
    """The latest sources up to the moment that say something: ``[time, source, failed, calls]``.

    The row holds the last few there are. Where later ones have taken their place, the evidence is asked.
    """
    kept = row["latest"] or []
    known = [entry for entry in kept if entry[0] <= moment]
    if len(known) < len(kept) == MAX_LATEST:
        found = _EARLIER.all(conn, org, scope, belief=short(row["belief"]), moment=moment)
        known = [[one["time"], one["source"], *tally(one["counts"])] for one in reversed(found)]
    return [entry for entry in known if entry[3]]


class _Past(NamedTuple):
    """Evidence of a belief up to a moment."""

    supports: int
    against: int
    latest: list[Any]
    last_verified: str


def _past(row: Document, buckets: Iterable[Bucket], at: datetime) -> _Past:
    today, latest = utc_day(at), row["latest"]
    known = [bucket for bucket in buckets if bucket.day <= today]
    if latest:
        last = latest[-1][0]
    else:
        last = max((f"{date.fromordinal(_EPOCH + bucket.day)}T00:00:00+00:00" for bucket in known), default="")
    return _Past(sum(b.supports for b in known), sum(b.against for b in known), latest, last)


def _belief(
    row: Document, buckets: list[Bucket], constrained: Mapping[str, str], now: datetime, rules: BeliefRules
) -> Document:
    past, kind = _past(row, buckets, now), row["kind"]
    moment = _text(now)
    proposed, retracted = _unless_later(row["proposed_at"], moment), _unless_later(row["retracted_at"], moment)
    prior = row["prior"]
    if row["proposed_at"] and not proposed:  # a proposal from the future raises nothing
        prior = min(prior, rules.prior)
    confidence = confidence_at(buckets, now, prior=prior, kind=kind, rules=rules)
    failures, news = _failures_in_a_row(past, kind)
    constraint = constrained.get(row["subject"], "") if kind == "tool_reliability" else ""
    verified = max(past.last_verified, _unless_later(row["reviewed_at"], moment))
    standing = Standing(
        kind=kind,
        retracted=bool(retracted) and (proposed, row["proposed_id"]) <= (retracted, row["retracted_id"]),
        founded=row["prior"] is not None or row["evidence"] > 0,
        touched=max(verified, proposed),
        failures_in_a_row=failures if news else 0,
        constrained=bool(constraint),
    )
    status = status_at(standing, confidence, now, rules)
    return {
        "belief": row["belief"],
        "kind": kind,
        "statement": (constraint if status == "constraint" else "") or row["statement"] or _statement(row, past),
        **pick(row, "trigger", "tendency", "limits", "subject"),
        **({"last_verified": verified} if verified else {}),
        **({"retired_because": _why_retired(row, standing)} if status == "retired" else {}),
        "confidence": confidence,
        "status": status,
        "supports": past.supports,
        "against": past.against,
        "sources": row["evidence"],
        "failures_in_a_row": failures,
    }


@lru_cache(maxsize=8)
def _text(moment: datetime) -> str:
    """As rows have times; asked for the same moment for each belief of a scope."""
    return moment.astimezone(UTC).isoformat()


def _unless_later(time: str | None, moment: str) -> str:
    """A time up to the moment; NULL: a column that the tables of former code lack."""
    return time if time and time <= moment else ""


def _failures_in_a_row(past: _Past, kind: str) -> tuple[int, bool]:
    """How many of the latest sources failed, and whether that is news.

    A source failed when more of it speaks against the belief than for it. A tool's failures are held against its own
    baseline, taken together: a tool that fails as often as ever has not changed.
    """
    number = failed = calls = 0
    for _, _, against, of in reversed(past.latest):
        if 2 * against <= of:
            break
        number, failed, calls = number + 1, failed + against, calls + of
    if kind != "tool_reliability" or not number:
        return number, True
    total = past.supports + past.against
    return number, above_baseline(failed, calls, past.against - failed, total - calls)


def _statement(row: Document, past: _Past) -> str:
    """Words for a belief that nobody wrote any for."""
    if row["kind"] == "tool_reliability" and row["subject"]:
        return tool_words(row["subject"], past.supports, past.against)
    if row["kind"] == "plan_pattern" and row["subject"]:
        return plan_words(row["subject"], past.supports, past.against)
    return str(row["subject"])


def _why_retired(row: Document, standing: Standing) -> str:
    if not standing.retracted:
        return "no evidence is left"
    return row["retracted_because"] or "retracted"


def _day(bucket: Bucket, kind: str, now: datetime, rules: BeliefRules) -> Document:
    """A day's evidence, and what one piece of it weighs at the moment."""
    return {
        "day": date.fromordinal(_EPOCH + bucket.day).isoformat(),
        "supports": bucket.supports,
        "against": bucket.against,
        "weight": weight_of(utc_day(now) - bucket.day, rules.half_life_days.get(kind)),
    }
