"""What the promoter knows of one scope: its rules, who has spoken for and against each, and its memories. Pure.

It is folded from the scope's own events in the archive, so two promoters that have seen the same events know the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from events.event import START, Event, Position, Recorded
from events.times import instant
from events.types.belief import LAST_WORD, BeliefProposed, BeliefRetracted, BeliefVerified, ExperienceRecorded
from events.types.memory import MemoryAdmitted, MemoryEdited, MemoryProposed
from events.types.world import FeedbackGiven
from projections.belief.naming import feedback_belief
from services.promotion.rules import What, asked_by
from services.wishes.reading import opposed

HANDLES = frozenset(
    ("belief.proposed", "belief.verified", "belief.retracted", "memory.proposed", "memory.admitted", "memory.edited",
     "feedback.given")
)  # fmt: skip
EXPERIENCE = "experience.recorded"
"""What an agent's rulebook folds besides."""
MOST_PATHS, MOST_TRIES = 10_000, 128
"""Paths of an agent that are remembered, and experiences of each: those that arrived last."""
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


class Tried(NamedTuple):
    """An experience of a run that went a path: its event's id and time, and how the run was judged, by which code."""

    event: str
    time: str
    run: str
    version: int
    revision: int
    label: str


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

        self.since: dict[str, datetime] = {}
        """Rule about conduct -> when it was asked for first."""
        self.voices: dict[str, list[Event]] = {}
        """Rule about conduct -> the wishes for it, as the promoter has published them."""
        self.paths: dict[str, dict[str, Tried]] = {}
        """Path -> experiences of it, by the ids of their events, also of runs that are ``gone`` since."""
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
                self._hear(recorded.event, recorded.payload)

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
            case ExperienceRecorded(scope="agent") as experience if experience.path and experience.run not in self.gone:
                self._fold_path(event, experience)
            case FeedbackGiven(text=text) if text.strip():
                self.told.setdefault(feedback_belief(text), (text.strip(), event.session))
            case _:
                pass

    def against(self, what: What, when: str = "", *, anyhow: bool = False) -> list[str]:
        """The rules that hold and ask for the opposite under the same condition (``anyhow``: under any)."""
        asked = ((name, asked_by(name, proposed.limits)) for name, proposed in self.proposed.items())
        return [name for name, ask in asked if ask is not None and opposed(ask[0], what) and (anyhow or ask[1] == when)]

    def ask_of(self, name: str) -> tuple[What, str] | None:
        """What a rule about conduct asks for, and under which condition; None for any other rule."""
        proposed = self.proposed.get(name) or self.retracted.get(name)
        return asked_by(name, proposed.limits) if proposed is not None else None

    def _hear(self, event: Event, payload: Any) -> None:
        """Remember when a rule about conduct was asked for, and by what."""
        if not isinstance(payload, BeliefProposed | BeliefVerified) or self.ask_of(payload.belief) is None:
            return
        name, at = payload.belief, instant(event.time)
        if isinstance(payload, BeliefProposed):
            self.since[name] = min(at, self.since.get(name, at))
        elif payload.supports and event.source == PROMOTER:
            self.voices.setdefault(name, []).append(event)

    def _fold_path(self, event: Event, experience: ExperienceRecorded) -> None:
        tries = self.paths.pop(experience.path, {})
        self.paths[experience.path] = tries
        version, revision, label = experience.deriver_version, experience.revision, experience.path_label
        tries[event.id] = Tried(event.id, event.time, experience.run, version, revision, label)
        if len(tries) > MOST_TRIES:
            del tries[next(iter(tries))]
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
