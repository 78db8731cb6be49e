"""From what a source says to pieces of evidence: for the rule that it asks for, against what asks otherwise. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import regex

from events.event import Event
from events.triggers import MAX_CHARS
from events.types.belief import ExperienceRecorded
from projections.bounds import digest
from services.promotion.rulebook import FAILED, SUCCEEDED, Kept, Rulebook, Tried
from services.promotion.rules import Piece, Rule, memory_id, path_rule, rule_of
from services.promotion.said import is_safe, shown, wishes_in
from services.wishes.reading import Wish, folded, wish_of_ours

OWN_WORDS = frozenset(("person", "conversation"))
"""Who brings up a memory in people's own words: what others repeat may be what a rule told them."""
OUTCOME_KINDS = frozenset(("learning",))
"""Kinds of rules that a run's success or failure speaks of: no run proves what a person likes."""
_JOINTS = regex.compile(r"[,;.!，；。！]|\b(?:and|but)\b|而且|并且|但是?")
LEAST_RUNS = 3
"""Runs that must have failed on one path before it is proposed to leave it."""


def occasion(event: Event, words: str = "") -> str:
    """What counts once: the session, without one the run, without either the words themselves (C47)."""
    if event.session:
        return f"session/{event.session}"
    return f"run/{event.run}" if event.run else f"words/{digest(folded(words))}"


def of_wishes(wishes: Sequence[Wish], known: Rulebook, injected: Collection[str]) -> list[Piece]:
    """Evidence of wishes, each for its rule; one for this once only against those told that ask otherwise."""
    pieces: list[Piece] = []
    for wish in wishes:
        if wish.once:
            held = known.against(wish.what, wish.when, anyhow=True)
            pieces += [Piece(name, False, shown(wish.words)) for name in sorted(held) if name in injected]
        else:
            rule = rule_of(wish)
            pieces.append(Piece(rule.belief, True, shown(wish.words), rule))
    return pieces


def of_memory(name: str, kept: Kept, known: Rulebook) -> list[Piece]:
    """Evidence of a memory that was admitted, or said again: for the wishes in it, else for the rule that it makes."""
    if kept.trust == "data" or kept.source == "pack" or not is_safe(kept.content):
        return []  # what a pack brings was counted elsewhere
    if kept.kind in ("preference", "correction"):
        wishes = wishes_of_memory(kept.content)
        if wishes:
            return of_wishes(wishes, known, ())
        if kept.kind == "correction" and kept.attribute not in ("likes", "dislikes"):
            return []  # a fact that was put right
    rule = rule_of_memory(name, kept)
    words = shown(kept.content) if rule and rule.kind == "user_preference" else ""
    return [] if rule is None else [Piece(rule.belief, True, words, rule)]


def rule_of_memory(name: str, kept: Kept) -> Rule | None:
    """The rule that a memory makes; None for one that is no rule."""
    if kept.kind in ("preference", "correction"):
        return Rule(memory_id(name), "user_preference", kept.content)
    if kept.kind == "learning":
        return Rule(memory_id(name), "learning", kept.content, _trigger(kept))
    return None


def wishes_of_memory(content: str) -> list[Wish]:
    """The wishes in what is remembered, also in words of ours: there they are what somebody said."""
    ours = wish_of_ours(content)
    return [Wish(*ours, content)] if ours is not None else [wish for wish in wishes_in(content) if not wish.once]


def rules_of_memory(name: str, kept: Kept) -> list[str]:
    """Names of the rules that stand or fall with a memory."""
    return [rule_of(wish).belief for wish in wishes_of_memory(kept.content)] or [memory_id(name)]


def rules_that_say(name: str, kept: Kept) -> list[str]:
    """Names of the rules that together say all that a memory says; none where it says more than wishes about conduct.

    The rule that a memory makes has its words. Of a memory that wishes each piece must hold a wish.
    """
    if kept.kind not in ("preference", "correction", "learning") or not is_safe(kept.content):
        return []
    if wish_of_ours(kept.content) is None and kept.kind != "learning" and wishes_in(kept.content):
        said = [piece for piece in _JOINTS.split(kept.content) if piece.strip()]
        if not all(wishes_in(piece) for piece in said):
            return []
    return rules_of_memory(name, kept)


def of_outcome(experience: ExperienceRecorded, known: Rulebook, injected: Collection[str]) -> list[Piece]:
    """What a run says of the rules that it was told: by the tools that they are about, else by its result."""
    pieces = []
    for name in sorted(injected):
        proposed = known.proposed.get(name)
        if proposed is None or proposed.kind not in OUTCOME_KINDS:
            continue
        tools = tools_of(proposed.trigger)
        labels = {count.label for count in experience.counts if count.tool in tools and count.count}
        labels = labels if tools else {experience.path_label}
        if labels & FAILED:
            pieces.append(Piece(name, False))
        elif labels & SUCCEEDED:
            pieces.append(Piece(name, True))
    return pieces


def of_path(path: str, known: Rulebook) -> list[Tried]:
    """The experiences that are evidence of whether to leave a path: once enough runs have failed on it, all of them.

    Runs that succeed on it speak against leaving it, and are no reason not to propose it: whether that comes to be
    would depend on which of them arrived first. A run without a verdict counts where it had one before.
    """
    rule = path_rule(path).belief
    tries = [tried for tried in known.paths.get(path, {}).values() if tried.run not in known.gone]
    failed = {tried.run for tried in tries if tried.label in FAILED}
    if not path or rule in known.retracted:  # what somebody took back stays so
        return []
    if rule not in known.proposed and len(failed) < LEAST_RUNS:
        return []
    judged = {tried.run for tried in tries if tried.label in FAILED | SUCCEEDED}
    return [tried for tried in tries if tried.run in judged]


def tools_of(trigger: Any) -> set[str]:
    """The tools that a trigger names."""
    if isinstance(trigger, list):
        return set().union(*map(tools_of, trigger))
    if not isinstance(trigger, dict):
        return set()
    if trigger.get("field") in ("tool", "tools"):
        values = trigger["in"] if isinstance(trigger.get("in"), list) else [trigger.get("is")]
        return {value for value in values if isinstance(value, str)}
    return set().union(*(tools_of(trigger.get(name)) for name in ("all", "any")))


def _trigger(kept: Kept) -> dict[str, Any]:
    """A lesson about a tool holds where that tool is at hand; any other always."""
    if kept.source != "experience" or not 0 < len(kept.entity.strip()) <= MAX_CHARS:
        return {}
    return {"any": [{"field": "tool", "is": kept.entity}, {"field": "tools", "is": kept.entity}]}
