"""What the promoter knows of one scope: its rules, who has spoken for and against each, and its memories. Pure.

It is folded from the scope's own events in the archive, so two promoters that have seen the same events know the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from events.event import START, Event, Position, Recorded
from events.types.belief import LAST_WORD, BeliefProposed, BeliefRetracted, BeliefVerified, ExperienceRecorded
from events.types.memory import MemoryAdmitted, MemoryEdited, MemoryProposed
from events.types.world import FeedbackGiven
from projections.belief.naming import feedback_belief
from services.promotion.rules import asked_by
from services.promotion.wishes import Wish, opposed

HANDLES = frozenset(
    ("belief.proposed", "belief.verified", "belief.retracted", "memory.proposed", "memory.admitted", "memory.edited",
     "feedback.given")
)  # fmt: skip
EXPERIENCE = "experience.recorded"
"""What an agent's rulebook folds besides."""
MOST_PATHS, MOST_RUNS = 10_000, 32
"""Paths of an agent that are remembered, and runs of each: those that were last."""
FAILED = frozenset(("recoverable_failure", "fatal_failure"))
SUCCEEDED = frozenset(("success", "deviated_success"))


class Kept(msgspec.Struct, frozen=True):
    """A memory that was admitted: what it says, its kind, who brought it up."""

    content: str
    kind: str
    source: str
    entity: str = ""
    attribute: str = ""
    trust: str = "stated"


class Rulebook:
    """One scope up to ``position``, the last of its events that was folded."""

    def __init__(self) -> None:
        self.position: Position = START
        self.ids: set[str] = set()
        """Ids of the promoter's own events."""
        self.proposed: dict[str, BeliefProposed] = {}
        """Rules that hold now, by name."""
        self.retracted: dict[str, BeliefProposed | None] = {}
        """Those that do not, as they were proposed last; None for one that never was."""
        self.verdicts: dict[tuple[str, str], bool] = {}
        """(belief, source) -> whether it spoke for it, last."""
        self.memories: dict[str, Kept] = {}
        self.sources: dict[str, str] = {}
        """Id of a proposal -> who brought it up."""
        self.told: dict[str, tuple[str, str]] = {}
        """Feedback of this scope by belief: its words, and the session that said them first."""
        self.vectors: dict[str, NDArray[np.float32]] = {}
        """What embedding those words has given."""

        self.paths: dict[str, dict[str, bool]] = {}
        """Path -> run that took it -> whether it failed."""
        self.gone: set[str] = set()
        """Runs that were taken back for good."""

    def advance(self, events: Iterable[Recorded]) -> None:
        """Fold events of the scope, in order; those that were folded before are passed over."""
        for recorded in events:
            if recorded.position > self.position:
                self.position = recorded.position
                if recorded.event.source == PROMOTER:
                    self.ids.add(recorded.event.id)
                self.fold(recorded.event, recorded.payload)

    def expect(self, raws: Iterable[Mapping[str, Any]]) -> None:
        """Count on what is on its way to the log."""
        for raw in raws:
            payload = _BELIEFS.get(raw["type"])
            if payload is not None:
                self._fold_belief(msgspec.convert(raw["data"], payload))

    def fold(self, event: Event, payload: Any) -> None:
        """Take in one event."""
        match payload:
            case BeliefProposed() | BeliefVerified() | BeliefRetracted():
                self._fold_belief(payload)
            case MemoryProposed(source=source):
                self.sources[event.id] = source
            case MemoryAdmitted() as kept:
                self.memories[kept.memory] = Kept(
                    kept.content, kept.kind, kept.source, kept.entity, kept.attribute, kept.trust
                )
            case MemoryEdited(memory=memory, content=content) if memory in self.memories:
                self.memories[memory] = msgspec.structs.replace(self.memories[memory], content=content)
            case ExperienceRecorded(scope="agent", deriver_version=version, run=run) if version == LAST_WORD:
                self.gone.add(run)
                for runs in self.paths.values():
                    runs.pop(run, None)
            case ExperienceRecorded(scope="agent") as experience if experience.path and experience.run not in self.gone:
                self._fold_path(experience)
            case FeedbackGiven(text=text) if text.strip():
                self.told.setdefault(feedback_belief(text), (text.strip(), event.session))
            case _:
                pass

    def against(self, wish: Wish, *, anyhow: bool = False) -> list[str]:
        """The rules that hold and ask for the opposite under the same condition (``anyhow``: under any)."""
        asked = ((name, asked_by(name, proposed.limits)) for name, proposed in self.proposed.items())
        return [
            name
            for name, ask in asked
            if ask is not None and opposed(ask[0], wish.what) and (anyhow or ask[1] == wish.when)
        ]

    def _fold_path(self, experience: ExperienceRecorded) -> None:
        runs = self.paths.pop(experience.path, {})
        self.paths[experience.path] = runs
        runs.pop(experience.run, None)
        if experience.path_label in FAILED | SUCCEEDED:
            runs[experience.run] = experience.path_label in FAILED
        if len(runs) > MOST_RUNS:
            del runs[next(iter(runs))]
        if len(self.paths) > MOST_PATHS:
            del self.paths[next(iter(self.paths))]

    def _fold_belief(self, payload: Any) -> None:
        match payload:
            case BeliefProposed(belief=name):
                self.proposed[name] = payload
                self.retracted.pop(name, None)
            case BeliefVerified(belief=name, source=source, supports=supports):
                if source:
                    self.verdicts[name, source] = supports
            case BeliefRetracted(belief=name):
                self.retracted[name] = self.proposed.pop(name, None) or self.retracted.get(name)


PROMOTER = "refold/promoter"
"""The source that the promoter's events name."""
_BELIEFS: dict[str, Any] = {
    "belief.proposed": BeliefProposed,
    "belief.verified": BeliefVerified,
    "belief.retracted": BeliefRetracted,
}
