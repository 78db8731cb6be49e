"""What became of a pack, counted by sort of item, and why something did not enter. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from events.publisher import Outcome
from projections.bounds import clip
from services.curation.proposal import Rejected
from services.packs.form import Pack
from services.packs.proposals import Target

MOST_REFUSALS = 100
"""Of items that did not enter, those that a report names; all are counted."""
SHOWN = 300
"""Characters of an item's name, and of why it was refused: a report must fit into an event whatever a pack holds."""
TAKEN = ("stored", "duplicate")

Raws = Mapping[str, Mapping[str, Any]]
"""Raw events by the item that each is about."""


@dataclass
class _Tally:
    """What became of items: numbers by sort and fate, and those that were refused."""

    done: dict[str, Counter[str]] = field(
        default_factory=lambda: {sort: Counter() for sort in ("memories", "beliefs", "notes", "settlements")}
    )
    refused: list[dict[str, str]] = field(default_factory=list)

    def add(self, sort: str, item: str, fate: tuple[str, str, str], number: int = 1) -> None:
        """``fate``: a word, and of what was refused the reason and its detail."""
        what, reason, detail = fate
        self.done[sort][what] += number
        if what == "refused" and len(self.refused) < MOST_REFUSALS:
            self.refused.append(
                {"sort": sort, "item": clip(item, SHOWN), "reason": reason, "detail": clip(detail, SHOWN)}
            )


def report_of(
    pack: Pack,
    target: Target,
    memories: Raws,
    beliefs: Raws,
    kept: list[dict[str, Any]],
    outcomes: Mapping[str, Outcome],
    fates: Mapping[str, Mapping[str, Any]],
    against: Mapping[str, Rejected],
) -> dict[str, Any]:
    """The data of the last ``pack.imported``; ``fates`` are the curator's, by proposal; ``against``
    are the objections to beliefs.

    ``added``, ``duplicates`` (said here already), ``known`` (a belief that the scope has a view of), ``expired``,
    ``kept``, ``refused``.
    """
    tally = _Tally()
    for name, raw in memories.items():
        tally.add("memories", name, _fate(outcomes[raw["id"]], fates.get(raw["id"], {})))
    for name, raw in beliefs.items():
        tally.add("beliefs", name, _outcome(outcomes[raw["id"]]))
    for name, why in against.items():
        tally.add("beliefs", name, ("refused", why.reason, why.detail))
    for raw in kept:
        sort = "notes" if "notes" in raw["data"] else "settlements"
        documents = raw["data"][sort]
        names = ", ".join(str(one.get("note") or one["run"]) for one in documents[:3])
        tally.add(sort, names, _outcome(outcomes[raw["id"]], "kept"), len(documents))
    tally.done["memories"]["expired"] += len(pack.memories) - len(memories)
    tally.done["beliefs"]["known"] += len(pack.beliefs) - len(beliefs) - len(against)
    return {
        "counts": pack.counts,
        "done": {sort: {what: number for what, number in sorted(found.items()) if number}
                 for sort, found in tally.done.items()},
        "refused": tally.refused,
        "confidence": target.factor,
        "origin": {"scope": pack.scope.key, "as_of": pack.as_of, "created_by": pack.created_by,
                   "source": dict(pack.source)},
    }  # fmt: skip


def _outcome(outcome: Outcome, taken: str = "added") -> tuple[str, str, str]:
    """What became of an event."""
    if outcome.status in TAKEN:
        return taken, "", ""
    return "refused", outcome.code or outcome.status, outcome.message


def _fate(outcome: Outcome, fate: Mapping[str, Any]) -> tuple[str, str, str]:
    """What became of a memory, by the door's word and then the curator's."""
    if outcome.status not in TAKEN or fate.get("status") == "admitted":
        return _outcome(outcome)
    if fate.get("reason") == "duplicate":
        return "duplicates", "", ""
    return "refused", str(fate.get("reason", "")), str(fate.get("detail", ""))
