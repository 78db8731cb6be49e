"""Which values stand where: those of facts, each with the name of the field that it stands in first."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from projections.cards.reading.facts import Fact, facts_of
from projections.cards.reading.forms import MAX_VALUE, MAX_VALUES, MAX_WORDS, forms, normal
from projections.cards.reading.tokens import tokens

__all__ = ["MAX_VALUES", "in_field", "in_text", "normal", "of_facts", "of_json", "of_text"]

_SENTENCE = 512
_CLAUSES = re.compile("[，。！？；、]")


def of_facts(facts: Iterable[Fact], *, prose: bool = False) -> dict[str, str]:
    """Value -> the field it stands in first, in order of appearance. ``prose``: the facts are sentences."""
    found: dict[str, str] = {}
    for field, _, text in facts:
        # the same few texts come again and again, so what they hold is kept
        for value in _in_field(text) if len(text) <= MAX_VALUE and not prose else in_text(text):
            if value not in found:
                found[value] = field
        if len(found) >= MAX_VALUES:
            return dict(list(found.items())[:MAX_VALUES])
    return found


def in_field(text: str) -> tuple[str, ...]:
    """The values of a field's text: the whole of it, where that is short enough to be a name, and those within it."""
    return _in_field(text) if len(text) <= MAX_VALUE else in_text(text)


@lru_cache(maxsize=32_768)
def _in_field(text: str) -> tuple[str, ...]:
    text = text.strip()
    whole = forms(text) if text.count(" ") < MAX_WORDS and not _CLAUSES.search(text) else ()
    if " " not in text and text.isascii() and "\n" not in text:
        return whole
    return tuple(dict.fromkeys((*whole, *tokens(text))))


def in_text(text: str) -> tuple[str, ...]:
    """The values of running text, without repeats."""
    return _in_sentence(text) if len(text) <= _SENTENCE else tuple(dict.fromkeys(tokens(text)))


@lru_cache(maxsize=8_192)
def _in_sentence(text: str) -> tuple[str, ...]:
    """Kept for a while, since links and summaries ask for the same sentences."""
    return tuple(dict.fromkeys(tokens(text)))


def of_text(text: str) -> list[str]:
    """Values of prose, in order of first appearance, at most ``MAX_VALUES``."""
    return list(in_text(text)[:MAX_VALUES])


def of_json(value: object) -> list[str]:
    """Values of a JSON value, texts in it that hold JSON included, in order of first appearance."""
    return list(of_facts(facts_of(value)))
