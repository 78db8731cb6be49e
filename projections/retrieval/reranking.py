"""The second look at the first cards of an order: how the runs that made them ended, and what a cross-encoder says.

Both cost too much for every card of a scope, so they are asked about the first ``WINDOW`` alone, whatever page is
wanted: pages stay pieces of one order. Cards beyond it keep their places behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Connection

from events.bulk import bulk_select
from projections.bounds import short
from projections.retrieval.ranking import DIGITS, NEUTRAL, Hit
from projections.task.tables import RUNS

WINDOW = 50
JUDGED = 0.5
"""How much of a score a cross-encoder decides, where there is one."""

_OUTCOMES = {"completed": 1.0, "failed": 0.0}


class Run(NamedTuple):
    """A run as its task's key holds it."""

    key: str
    run: str


def runs_of(hits: Sequence[Hit]) -> list[Run]:
    """The runs that made the cards of the window, each once."""
    return list(dict.fromkeys(Run(hit.entry.key, short(hit.entry.run)) for hit in hits[:WINDOW] if hit.entry.run))


def read_outcomes(conn: Connection, org: str, runs: Sequence[Run]) -> dict[Run, float]:
    """How runs ended, 1 for completed and 0 for failed, of the task-state read model; others are not told."""
    found = bulk_select(conn, RUNS, ("key", "run", "outcome"), ("org", "key", "run"), [(org, *run) for run in runs])
    return {Run(key, run): _OUTCOMES[outcome] for key, run, outcome in found if outcome in _OUTCOMES}


def rerank(hits: Sequence[Hit], outcomes: Mapping[Run, float], judged: Mapping[str, float]) -> list[Hit]:
    """The hits in their order after the second look. ``judged``: by card, 0..1; cards without a judgement get 0."""
    window = [_seen(hit, outcomes, judged) for hit in hits[:WINDOW]]
    return [*sorted(window, key=lambda hit: (-hit.score, hit.entry.card)), *hits[WINDOW:]]


def _seen(hit: Hit, outcomes: Mapping[Run, float], judged: Mapping[str, float]) -> Hit:
    outcome = outcomes.get(Run(hit.entry.key, short(hit.entry.run)), NEUTRAL)
    shares = {**hit.shares, "outcome": hit.shares["outcome"] * outcome / NEUTRAL}
    if judged:
        shares = {name: share * (1 - JUDGED) for name, share in shares.items()}
        shares["cross_encoder"] = JUDGED * judged.get(hit.entry.card, 0.0)
    shares = {name: round(share, DIGITS) for name, share in shares.items()}
    return hit._replace(shares=shares, score=round(sum(shares.values()), DIGITS))
