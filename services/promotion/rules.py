"""Rules that words and memories lead to, and one piece of evidence for or against a rule. Pure.

rule/<digest>      of a wish about conduct: of its aspect and value, so that all words for it meet in one belief,
                   in any scope and any log; of a memory: of its name; of a way that fails: of the tools on it
feedback/<digest>  of words that no rule reads: the fold counts them by itself, word for word
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from projections.bounds import clip, digest
from services.wishes.lexicon import STATEMENTS
from services.wishes.reading import Wish, statement_of

PATH_CHARS = 300
What = tuple[str, str, bool]
"""Aspect, value, whether it is denied: what a wish asks for."""


class Rule(NamedTuple):
    """A rule as it is proposed."""

    belief: str
    kind: str
    statement: str
    trigger: dict[str, Any] = {}  # noqa: RUF012  never changed
    limits: dict[str, Any] = {}  # noqa: RUF012


class Piece(NamedTuple):
    """One piece of evidence. ``rule`` is there where the rule may have to be proposed first."""

    belief: str
    supports: bool
    words: str = ""
    rule: Rule | None = None


def conduct_id(what: What, when: str = "") -> str:
    """The name of the rule that a wish is for, always or under a condition.

    >>> conduct_id(("process", "conclusion", False))
    'rule/03e43195d4ebaea8ccaee17b3c81f919'
    """
    return f"rule/{digest('/'.join(map(str, (*what, when) if when else what)))}"


def memory_id(memory: str) -> str:
    """The name of the rule that a memory makes."""
    return f"rule/{digest(f'memory/{memory}')}"


def path_rule(path: str) -> Rule:
    """The rule not to go a way that has failed again and again: the tools in their order, which hold no value."""
    statement = f"Take another way than {clip(path, PATH_CHARS)}: that has failed again and again"
    return Rule(f"rule/{digest(f'path/{path}')}", "plan_pattern", statement)


CONDUCT: dict[str, What] = {conduct_id(what): what for what in STATEMENTS}
"""Name of a rule about conduct -> what it asks for."""


def rule_of(wish: Wish) -> Rule:
    """The rule that a wish is for, in words of ours; under a condition, where goal or query hold its words."""
    name, statement = conduct_id(wish.what, wish.when), statement_of(wish.what, wish.words, wish.when)
    if not wish.when:
        return Rule(name, "user_preference", statement)
    trigger = {"any": [{"field": field, "has": wish.when} for field in ("goal", "query")]}
    return Rule(name, "user_preference", statement, trigger, {"conduct": list(wish.what), "when": wish.when})


def asked_by(name: str, limits: Mapping[str, Any]) -> tuple[What, str] | None:
    """What a rule about conduct asks for, and under which condition; None for any other rule."""
    if name in CONDUCT:
        return CONDUCT[name], ""
    match limits:
        case {"conduct": [str(aspect), str(value), bool(denied)], "when": str(when)}:
            return (aspect, value, denied), when
        case _:
            return None
