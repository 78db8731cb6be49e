"""What a context is assembled from, once everything is read: plain values, no store behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from projections.context.remembered import Remembered
from projections.context.sources import Needs, Source
from projections.policy.selection import NOTHING, Selection

Document = Mapping[str, Any]


class Turn(NamedTuple):
    """A message of the current run. ``place`` is its log position."""

    place: str
    role: str
    text: str


class Original(NamedTuple):
    """The whole of what a card was made from."""

    card: str
    place: str
    text: str


@dataclass(frozen=True)
class Material:
    """Everything that may go into a context.

    ``state`` and ``session`` are documents of ``projections.queries``, ``policy`` what the task's user and agent and
    the org have learned that holds in it; ``evidence`` what runs of the session left that have no notes.
    ``memories`` are always told, ``brought`` are those that the query brought, the best first.
    ``sources`` are the task's own cards and ``recalled`` those of others that the query brought, both with the latest
    last.
    """

    task: str
    prompt: str = ""
    state: Document | None = None
    session: Document | None = None
    policy: Selection = NOTHING
    memories: Sequence[Remembered] = ()
    evidence: Sequence[Any] = ()
    sources: Sequence[Source] = ()
    needs: Needs = field(default_factory=Needs)
    recalled: Sequence[Source] = ()
    brought: Sequence[Remembered] = ()
    turns: Sequence[Turn] = ()
    originals: Sequence[Original] = ()
    query: str = ""
