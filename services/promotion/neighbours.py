"""Whether two wishes that no rule reads may be one in other words. Pure.

Likeness of meaning alone does not tell: to an embedding model "no meetings on Fridays" and "no meetings on Mondays" are
nearly the same. So what differs in a number, a denial or one word among many is another wish, and the model is asked
about the rest. Measured on pairs of 53 labelled utterances (a fifth of them made to be near misses) with the default
model: at ``LEAST`` a precision of 1.00 and a recall of 0.17; at 0.5 it would be 0.72 and 0.58. A wrong neighbour makes
a rule that nobody wished for, a missed one leaves a wish to be said once more: hence the caution.
"""

from __future__ import annotations

import regex

from services.curation.sameness import speaks_against
from services.curation.statements import words_of

LEAST = 0.75
"""Cosine of two texts from which on they are one wish, if ``may_be_one``."""
SHARED = 0.5
"""Share of the shorter one's words, from which on words that differ on both sides stand for each other."""

_PIECES = regex.compile(r"\p{Han}|[\p{L}\p{N}]+")


def may_be_one(one: str, other: str) -> bool:
    """Whether nothing in their words speaks against two texts being one wish.

    >>> may_be_one("do not schedule meetings on Fridays", "do not schedule meetings on Mondays")
    False
    >>> may_be_one("send me a draft before the final version", "I want to see a draft first")
    True
    """
    if speaks_against(one, other) or speaks_against(other, one):
        return False
    words, others = words_of(one.casefold()), words_of(other.casefold())
    if words == others:
        return bool(_PIECES.findall(one.casefold()) == _PIECES.findall(other.casefold()))
    swapped = words - others and others - words
    return not (swapped and len(words & others) >= SHARED * min(len(words), len(others)))
