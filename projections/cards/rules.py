"""Why a card is worth keeping: rules with weights. A card is made when they come to ``THRESHOLD``.

causal necessity     2 for each later call or decision that uses a value of the card, at most MAX_CAUSAL uses
needed ahead         2 when a declared tool has a parameter, or an open step of the plan words, of a field's name
option constraint    3 when it excludes something: sold out, denied, not found, an error
state change         2 when it is a conclusion, or the result of a call with a side effect
novelty              1 when it says something that the task had not heard, or otherwise than before; as the run's mode
                     weighs the class of value (``kinds``): 0 or 2
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

CAUSAL, AHEAD, CONSTRAINT = "causal_necessity", "needed_ahead", "option_constraint"
CHANGE, NOVELTY = "state_change", "novelty"

WEIGHTS: Mapping[str, int] = {CAUSAL: 2, AHEAD: 2, CONSTRAINT: 3, CHANGE: 2, NOVELTY: 1}

MAX_CAUSAL = 5
"""Uses beyond this raise a card no further."""

THRESHOLD = 1
"""What speaks for a card must come to this much, or it waits until something uses it."""

_TIMES: Mapping[str, int] = {CAUSAL: MAX_CAUSAL, NOVELTY: 2}

_HEAD = 400
"""Prose says early that something is impossible; later such words are as likely a quotation."""

_EXCLUDES = re.compile(
    r"\b(?:sold[ _-]?out|out of stock|not (?:found|available|allowed|permitted|possible|eligible|supported|valid)"
    r"|unavailable|denied|forbidden|rejected|refused|invalid|fail(?:ed|ure)|error|exception|traceback|timed? ?out"
    r"|no such|does not exist|doesn't exist|can(?:no|')t|unable|unauthorized|exceeds?|insufficient|expired)\b"
    r"|售罄|售完|失败|不存在|无法|不能|拒绝|错误|不可用|无效|过期|没有找到|未找到|超时|不允许",
    re.IGNORECASE,
)

_ERRORS = frozenset(("error", "errors"))
_ALLOWS = frozenset(("available", "success", "ok", "allowed", "eligible", "valid"))
_TELLING = frozenset(("error", "errors", "status", "state", "message", "reason", "detail", "result", "code"))


class Excluded(NamedTuple):
    """What a result rules out, in its own words."""

    words: str


def excludes(value: Any) -> Excluded | None:
    """Whether an opened result (``facts.opened``) rules something out: by what it says first, or a telling field."""
    if isinstance(value, str):
        return _in_text(value)
    return _in_fields(value, 3)


def _in_text(text: str) -> Excluded | None:
    match = _EXCLUDES.search(text, 0, _HEAD)
    return Excluded(match[0].casefold()) if match else None


def _in_fields(value: Any, depth: int) -> Excluded | None:
    if not isinstance(value, dict) or depth == 0:
        return None
    for key, item in value.items():
        name = key.casefold()
        if name in _ERRORS and item:
            return Excluded("error")
        if item is False and name in _ALLOWS:
            return Excluded(f"{name}: false")
        if isinstance(item, dict):
            found = _in_fields(item, depth - 1)
        else:
            found = _in_text(item) if name in _TELLING and isinstance(item, str) else None
        if found:
            return found
    return None


def worth(reasons: Mapping[str, int]) -> int:
    """Value of a card from how often each rule spoke for it."""
    value = 0
    for rule, times in reasons.items():
        value += WEIGHTS[rule] * min(times, _TIMES.get(rule, 1))
    return value
