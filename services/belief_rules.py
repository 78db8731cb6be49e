"""The rules of beliefs as a deployment sets them: ``REFOLD_BELIEF_RULES``, a JSON or TOML file, or JSON itself.

    {"injected_above": 0.8, "half_life_days": {"tool_reliability": 14, "user_preference": null}}

What is not named keeps its default; ``projections.queries.confidence.BeliefRules`` tells what each means. Rules are
applied when beliefs are read, so a change of them needs no rebuild.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from events.errors import SetupError
from projections.queries.confidence import DEFAULT_RULES, BeliefRules

_Kind = Literal["tool_reliability", "plan_pattern", "learning", "user_preference"]


class _Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    prior: float | msgspec.UnsetType = msgspec.UNSET
    prior_weight: float | msgspec.UnsetType = msgspec.UNSET
    injected_above: float | msgspec.UnsetType = msgspec.UNSET
    untouched_days: int | msgspec.UnsetType = msgspec.UNSET
    demoting_failures: int | msgspec.UnsetType = msgspec.UNSET
    constraint_contexts: int | msgspec.UnsetType = msgspec.UNSET
    softening_successes: int | msgspec.UnsetType = msgspec.UNSET
    half_life_days: dict[_Kind, float | None] | msgspec.UnsetType = msgspec.UNSET


def read_rules(text: str) -> BeliefRules:
    """The rules that the setting names; empty: the defaults. Raises SetupError in one line, naming what is wrong."""
    if not text.strip():
        return DEFAULT_RULES
    inline = text.lstrip().startswith("{")
    where = "REFOLD_BELIEF_RULES" if inline else f"REFOLD_BELIEF_RULES, the file {text}"
    try:
        raw = text.encode() if inline else Path(text).read_bytes()
        decode = msgspec.toml.decode if text.endswith(".toml") else msgspec.json.decode
        return _rules(msgspec.to_builtins(decode(raw, type=_Rules)))
    except OSError as error:
        raise SetupError(f"{where}: it cannot be read: {error.strerror}") from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise SetupError(f"{where}: {' '.join(str(error).split())}") from error


def _rules(given: dict[str, Any]) -> BeliefRules:
    half_lives = {**DEFAULT_RULES.half_life_days, **given.pop("half_life_days", {})}
    return replace(DEFAULT_RULES, **given, half_life_days=MappingProxyType(half_lives))
