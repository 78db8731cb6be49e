"""The promoter: from what people say and runs go through again and again to rules, as beliefs (DESIGN 7).

    message.added (of a user)   a wish about conduct is evidence for its rule, and against rules that ask otherwise
    feedback.given              the same; words that no rule reads stand for themselves, and for what they are close to
    memory.admitted             of preferences and corrections the same, or a rule of its own; a learning is a rule
    memory.rejected             a duplicate in people's own words is evidence for what it repeats
    memory.superseded, .invalidated, .deleted, .restored   the rule of a memory goes and comes with it
    experience.recorded         a run that was told a rule succeeded, or failed at what the rule is about; a path that
                                runs fail on again and again is one to leave
    belief.verified             its own, for a rule about conduct: speaks against what asks otherwise (``opposition``)

It publishes ``belief.proposed``, ``belief.verified`` and ``belief.retracted`` into the scope concerned, and decides no
status: that follows from the evidence when it is read. Each occasion (a session, a run) counts once for a belief.
Wishes are read by rules (``services.promotion``); what they cannot read is compared by the embedding model, where there
is one. A decision is made on what the archive says of the scope, and its events are published in one go, the last of
them with a known id: where that is in the log, the decision is made, whoever asks again. At the agent's level no words
of people travel.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from events.event import Event, Recorded
from events.keys import members_of, scope_key, task_key
from events.types.base import Level
from events.types.belief import LAST_WORD, BeliefVerified, ExperienceRecorded
from events.types.memory import (
    MemoryAdmitted,
    MemoryDeleted,
    MemoryInvalidated,
    MemoryRejected,
    MemoryRestored,
    MemorySuperseded,
)
from events.types.system import ScopeErased
from events.types.thought import MessageAdded
from events.types.world import FeedbackGiven
from projections.belief.naming import feedback_belief
from services.curation.extract import text_of
from services.promotion import pieces
from services.promotion.opposition import oppositions
from services.promotion.rulebook import EXPERIENCE, HANDLES, Rulebook
from services.promotion.rulebook import PROMOTER as PUBLISHED_BY
from services.promotion.rules import Piece, Rule
from services.promotion.said import is_safe, shown, wishes_in
from services.reactors.derived import derived_id
from services.reactors.near import nearest
from services.reactors.paths import path_events, spoken_at
from services.reactors.person import person_of
from services.reactors.reactor import PAGE, Later, Reaction, Reactor, read_recorded
from services.reactors.scopes import Scopes

LONG = 1_000
"""Characters of a text that is read beside the loop: a page takes milliseconds."""
LAST = "last"
"""The part in the id of a decision's last event."""


class Scope(NamedTuple):
    """Whose rules: a level, and its name (empty for the org)."""

    level: Level
    name: str

    @property
    def key(self) -> str:
        """Its partition key."""
        return scope_key(self.level, user=self.name, agent=self.name)


@dataclass
class _Remembered:
    rules: Rulebook = field(default_factory=Rulebook)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass
class _Decision:
    """What a source leads to in one scope: evidence, and rules that no longer hold, each with why."""

    pieces: list[Piece] = field(default_factory=list)
    retracted: list[tuple[str, str]] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    """Rules that hold again."""


class Promoter:
    """Promotes; remembers scopes, so that a decision costs their news and not their history."""

    def __init__(self) -> None:
        self._scopes = Scopes(_Remembered)

    async def react(self, reaction: Reaction) -> Sequence[dict[str, Any]] | Later:
        """What the source event is evidence of."""
        event = reaction.event
        match reaction.recorded.payload:
            case MessageAdded(role="user") as payload:
                return await self._said(reaction, text_of(payload.content))
            case FeedbackGiven() as payload if payload.text.strip():
                return await self._judged(reaction, payload)
            case ExperienceRecorded() as payload if payload.scope == "agent" or not event.agent:
                return await self._tried(reaction, payload)
            case BeliefVerified(supports=True) if event.source == PUBLISHED_BY:
                return await self._opposed(reaction)
            case ScopeErased():
                self._scopes.forget(reaction)
                return []
            case MemoryAdmitted() | MemoryRejected(reason="duplicate"):
                return await self._remembered(reaction)
            case MemorySuperseded() | MemoryInvalidated() | MemoryDeleted() | MemoryRestored():
                return await self._remembered(reaction)
            case _:
                return []

    async def _said(self, reaction: Reaction, text: str) -> list[dict[str, Any]]:
        """Wishes about conduct in the words of a run's user."""
        wishes = wishes_in(text) if len(text) < LONG else await asyncio.to_thread(wishes_in, text)
        user = await person_of(reaction) if wishes else ""
        if not user:
            return []
        once = any(wish.once for wish in wishes)
        told = await injected(reaction, reaction.event.task) if once else {}
        scope = Scope("user", user)
        async with self._followed(reaction, scope) as known:
            found = pieces.of_wishes(wishes, known, told.get(scope.key, ()))
            return _published(reaction, scope, known, _Decision(found), pieces.occasion(reaction.event, text))

    async def _judged(self, reaction: Reaction, payload: FeedbackGiven) -> list[dict[str, Any]]:
        """Feedback: on a run it is its user's; else its scope's, where the fold counts its words."""
        event, text = reaction.event, payload.text
        if event.key.startswith("task/"):
            return await self._said(reaction, text)
        scope = _scope_of(event.key)
        async with self._followed(reaction, scope) as known:
            decision, name = _Decision(), feedback_belief(text)
            wishes = wishes_in(text) if scope.level == "user" else []
            if not is_safe(text) or (text.strip() and not shown(text)):
                decision.retracted = [(name, "its words read like an instruction, or hold a secret")]
            elif wishes:
                decision.pieces = pieces.of_wishes(wishes, known, ())
                kept = ", ".join(piece.belief for piece in decision.pieces if piece.supports)
                decision.retracted = [(name, f"kept as {kept}")] if kept else []
            else:
                near = await nearest(text, known, event.session, reaction.outside.embed)
                decision.pieces = [Piece(near, True, shown(text))] if near else []
            return _published(reaction, scope, known, decision, pieces.occasion(event, text))

    async def _remembered(self, reaction: Reaction) -> list[dict[str, Any]]:
        """What became of a memory."""
        event = reaction.event
        scope = _scope_of(event.key)
        if scope.level == "org":
            return []
        told = await injected(reaction, event.task) if scope.level == "agent" else {}
        async with self._followed(reaction, scope) as known:
            decision = _of_memory(reaction.recorded, known, told.get(scope.key, ()))
            source = f"run/{event.run}" if scope.level == "agent" and event.run else pieces.occasion(event, event.id)
            return _published(reaction, scope, known, decision, source)

    async def _tried(self, reaction: Reaction, payload: ExperienceRecorded) -> list[dict[str, Any]]:
        """Whether a run bore out the rules that it was told, in each of their scopes; and how its path went."""
        if payload.deriver_version == LAST_WORD:
            return []  # the forgetter's: it says nothing, and withdraws by itself what the run was evidence of
        raws: list[dict[str, Any]] = []
        own, told = reaction.event.key, await injected_of_run(reaction, payload.run)
        at = spoken_at(reaction.event.time, payload.deriver_version, payload.revision)
        for key in sorted(told.keys() | ({own} if own.startswith("agent/") else set())):
            scope = _scope_of(key)
            async with self._followed(reaction, scope) as known:
                if key == own:
                    raws += path_events(reaction, payload.path, known)
                decision = _Decision(pieces.of_outcome(payload, known, told.get(key, ())))
                raws += _published(reaction, scope, known, decision, f"run/{payload.run}", time=at)
        return raws

    async def _opposed(self, reaction: Reaction) -> list[dict[str, Any]]:
        """What a wish for a rule speaks against, and what speaks against it."""
        async with self._followed(reaction, _scope_of(reaction.event.key)) as known:
            return oppositions(reaction.event, known)

    @asynccontextmanager
    async def _followed(self, reaction: Reaction, scope: Scope) -> AsyncIterator[Rulebook]:
        """A scope's rulebook, up to what the archive has now, for one at a time."""
        remembered = self._scopes.of(reaction, scope.key)
        async with remembered.turn:
            await _follow(reaction, scope.key, remembered.rules)
            yield remembered.rules


async def _follow(reaction: Reaction, key: str, known: Rulebook) -> None:
    handled = HANDLES | {EXPERIENCE} if key.startswith("agent/") else HANDLES
    while page := await reaction.archive.key_events(reaction.event.org, key, known.position, PAGE):
        mine = (archived for archived in page if archived.type in handled)
        known.advance(recorded for archived in mine if (recorded := read_recorded(archived)) is not None)
        known.position = page[-1].position
        if len(page) < PAGE:
            return


def _of_memory(recorded: Recorded, known: Rulebook, told: Collection[str]) -> _Decision:
    payload = recorded.payload
    match payload:
        case MemoryAdmitted(source="pack"):
            return _Decision()  # the pack brings its rules along; nobody said this here
        case MemoryAdmitted(memory=name) if name in known.memories:
            return _Decision(pieces.of_memory(name, known.memories[name], known))
        case MemoryRejected(duplicate_of=name) if name in known.memories:
            kept = known.memories[name]
            by = known.sources.get(payload.proposal, "")
            own = by in pieces.OWN_WORDS if kept.kind != "learning" else by == "settlement"
            found = pieces.of_memory(name, kept, known) if own else []
            return _Decision([piece for piece in found if piece.belief not in told])
        case MemorySuperseded() | MemoryInvalidated() | MemoryDeleted():
            former = known.memories.get(payload.memory)
            names = pieces.rules_of_memory(payload.memory, former) if former else []
            if isinstance(payload, MemorySuperseded):
                # a wish about conduct that gave way has what was said since against it, and falls by that alone
                names = [name for name in names if not pieces.wishes_of_memory(former.content)] if former else []
            why = f"its memory was {recorded.event.type.partition('.')[2]}"
            return _Decision(retracted=[(name, why) for name in names if name in known.proposed])
        case MemoryRestored(memory=name) if name in known.memories:
            names = pieces.rules_of_memory(name, known.memories[name])
            return _Decision(again=[one for one in names if known.retracted.get(one) is not None])
        case _:
            return _Decision()


def _published(
    reaction: Reaction, scope: Scope, known: Rulebook, decision: _Decision, source: str, *, time: str = ""
) -> list[dict[str, Any]]:
    """The events of a decision; none where it is made already, or says nothing new."""
    last = derived_id(reaction.reactor, reaction.event, f"{scope.key}/{LAST}")
    if last in known.ids:
        return []
    event = reaction.event
    names = members_of(scope.key)
    if scope.level == "user":
        names |= {name: getattr(event, name) for name in ("agent", "session", "task", "run")}
    said = _contents(decision, scope, known, event, source)
    # what a part is called follows from what it says: a try that finds some of them there makes the others as before
    parts = ["/".join((scope.key, kind, data["belief"], data.get("source", ""))) for kind, data in said[:-1]]
    parts.append(f"{scope.key}/{LAST}")
    raws = [reaction.derive(kind, data, part=part, **names) for part, (kind, data) in zip(parts, said, strict=False)]
    raws = [{**raw, "time": time or raw["time"]} for raw in raws]
    known.expect(raws)
    return raws


def _contents(
    decision: _Decision, scope: Scope, known: Rulebook, event: Event, source: str
) -> list[tuple[str, dict[str, Any]]]:
    """Type and data of a decision's events: proposals first, evidence for rules last."""
    common = {"scope": scope.level, "because": [event.id]}
    each = {(piece.belief, source): piece for piece in decision.pieces}
    # what somebody says is published whether it is known or not: the log then holds the same, whoever was read first
    news = {key: piece for key, piece in each.items() if piece.rule or known.verdicts.get(key) is not piece.supports}
    new_rules = {piece.rule.belief: piece.rule for piece in news.values() if piece.rule}
    former = (proposed for name in decision.again if (proposed := known.retracted[name]) is not None)
    again = [Rule(one.belief, one.kind, one.statement, one.trigger, one.limits) for one in former]
    proposals = [{**common, **rule._asdict()} for rule in (*new_rules.values(), *again)]
    said: list[tuple[str, dict[str, Any]]] = [("belief.proposed", data) for data in proposals]
    for name, why in decision.retracted:
        said.append(("belief.retracted", {"belief": name, "reason": why, "scope": scope.level}))
    for (name, occasion), piece in sorted(news.items(), key=lambda item: item[1].supports):
        detail = piece.words if scope.level == "user" else ""
        evidence = {"belief": name, "supports": piece.supports, "source": occasion, "by": "promoter"}
        said.append(("belief.verified", {**common, **evidence, "detail": detail}))
    return said


def _scope_of(key: str) -> Scope:
    level, _, name = key.partition("/")
    found: Level = "user" if level == "user" else "agent" if level == "agent" else "org"
    return Scope(found, name)


async def injected_of_run(reaction: Reaction, run: str) -> dict[str, set[str]]:
    """Scope -> the rules that contexts told between a run's first event and its last."""
    org, first, after = reaction.event.org, None, None
    while page := await reaction.archive.run_events(org, run, after=after, limit=PAGE):
        here = [archived for archived in page if archived.event().key.startswith("task/")]
        first = first or next(iter(here), None)
        after = (page[-1].partition, page[-1].position)
        if len(page) < PAGE:
            break
    if first is None or after is None:
        return {}
    mine = await reaction.archive.key_events_of_type(org, first.event().key, "context.assembled")
    return _told_by([one for one in mine if first.position < one.position < after[1]])


async def injected(reaction: Reaction, task: str) -> dict[str, set[str]]:
    """Scope -> the rules that contexts of a task have told."""
    if not task:
        return {}
    return _told_by(await reaction.archive.key_events_of_type(reaction.event.org, task_key(task), "context.assembled"))


def _told_by(contexts: Sequence[Any]) -> dict[str, set[str]]:
    told: dict[str, set[str]] = {}
    for archived in contexts:
        recorded = read_recorded(archived)
        for scope, belief in recorded.payload.policy if recorded is not None else ():
            told.setdefault(scope, set()).add(belief)
    return told


PROMOTER = Reactor(
    name="promoter",
    handles=frozenset(
        ("message.added", "feedback.given", "experience.recorded", "memory.admitted", "memory.rejected",
         "memory.superseded", "memory.invalidated", "memory.deleted", "memory.restored",
         "belief.verified", "scope.erased")
    ),
    react=Promoter().react,
)  # fmt: skip
