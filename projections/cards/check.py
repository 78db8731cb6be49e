"""Whether a summary is true to its original, both ways: what counts is in it, and it says nothing that is not there."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import regex

from projections.cards.reading.facts import Fact
from projections.cards.reading.forms import forms
from projections.cards.reading.prose import sentences
from projections.cards.reading.values import in_field, in_text

_NAME = regex.compile(r"[\p{L}'’ ]+")
_FIRST_WORD = regex.compile(r"[\p{L}'’]+")
_THOUSANDS = regex.compile(r"(?<=\d),(?=\d{3})")


class Verdict(NamedTuple):
    """``missing``: values that count and are not in the summary. ``foreign``: values of it that the original lacks."""

    missing: tuple[str, ...]
    foreign: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Whether the summary holds."""
        return not self.missing and not self.foreign


def check(summary: str, facts: Sequence[Fact], counting: Collection[str] = ()) -> Verdict:
    """Compare a summary with the facts it was made of. ``counting``: the values that count, in normal form."""
    told = dict.fromkeys(in_text(summary))
    known = _known(facts)
    plain = _plain(summary)
    missing = [value for value in counting if value in known and value not in told and not _stands(value, plain)]
    strange = [value for value in told if value not in known]
    return Verdict(tuple(missing), tuple(_foreign(strange, summary, facts)) if strange else ())


def _foreign(values: Iterable[str], summary: str, facts: Iterable[Fact]) -> dict[str, None]:
    """Those of the values that stand nowhere in the original; of a name its words, but for the first of a sentence."""
    original = _plain("\n".join(f"{fact.field} {fact.text}" for fact in facts))
    starts = {match[0].casefold() for sentence in sentences(summary) if (match := _FIRST_WORD.search(sentence))}
    foreign: dict[str, None] = {}
    for value in values:
        if _stands(value, original):
            continue
        words = value.split() if _NAME.fullmatch(value) else [value]
        foreign.update((word, None) for word in words if word not in starts and not _stands(word, original))
    return foreign


def _known(facts: Iterable[Fact]) -> set[str]:
    """The values of facts, and the names of their fields, which a summary may say as well."""
    known: set[str] = set()
    names: set[str] = set()
    for fact in facts:
        known.update(in_field(fact.text))
        names.add(fact.field)
    for name in names:
        known.update(form for part in (name, *name.split(".")) for form in forms(part))
    return known


def _stands(value: str, text: str) -> bool:
    """Whether a value stands in a plain text by itself, not as a part of a longer word or number."""
    value = _plain(value)
    at = text.find(value)
    while at >= 0:
        before, after = text[at - 1 : at] if at else "", text[at + len(value) : at + len(value) + 1]
        if not _joins(before, value[0]) and not _joins(after, value[-1]):
            return True
        at = text.find(value, at + 1)
    return False


def _joins(outside: str, inside: str) -> bool:
    """Whether two neighbours belong to one word: both are letters or digits of a script that writes spaces."""
    return outside.isascii() and outside.isalnum() and inside.isascii() and inside.isalnum()


def _plain(text: str) -> str:
    """A text in the form in which values are compared."""
    return str(_THOUSANDS.sub("", " ".join(unicodedata.normalize("NFKC", text).casefold().split())))
