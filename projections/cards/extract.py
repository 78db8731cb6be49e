"""The telling parts of a text: its first sentence, those that hold values or rule something out, as room allows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Literal

import regex

from projections.bounds import clip
from projections.cards.reading.values import in_field, of_text
from projections.cards.rules import excludes

GAP = "…"
"""Stands where something was left out."""

MAX_SCORED = 128
"""Sentences that are looked at for values; further ones only count when they hold a value in use."""

NEAR = 40
"""What a value keeps on both sides where sentences must be cut, in code points, and to the end of the word."""

_ENDED = regex.compile(r"[\p{SB=STerm}\p{SB=ATerm}]\p{SB=Close}*$", regex.V1 | regex.REVERSE)
_WORD = regex.compile(r"[A-Za-z0-9_.,:/@+%-]")
_LAST_WORD = regex.compile(rf"{_WORD.pattern}{{1,80}}$")
_SPACELESS = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}。！？]")


def holds(text: str, used: Collection[str]) -> bool:
    """Whether a text holds one of these values, which are in normal form."""
    return bool(used) and any(value in used for value in in_field(text))


def choose(sizes: Sequence[int], needed: Sequence[bool], order: Iterable[int], limit: int, most: int) -> list[int]:
    """Which parts to keep, in their own order: needed ones up to ``most``, then others in ``order`` up to ``limit``."""
    kept: set[int] = set()
    total = 0
    for place, size in enumerate(sizes):
        if needed[place] and total + size <= most:
            kept.add(place)
            total += size
    for place in order:
        if place not in kept and total + sizes[place] <= limit:
            kept.add(place)
            total += sizes[place]
    return sorted(kept)


def telling(
    sentences: Sequence[str],
    limit: int,
    *,
    used: Collection[str] = (),
    most: int | None = None,
    first: Literal["telling", "head", "tail"] = "telling",
) -> str:
    """Sentences as one text of at most ``limit`` code points (``most`` with values in use), whole when that fits.

    ``first``: which of them matter most, beside those with values in use.
    """
    if sum(map(len, sentences)) + len(sentences) - 1 <= limit:
        return joined(sentences, range(len(sentences)))
    needed = [holds(sentence, used) for sentence in sentences]
    if sum(len(sentence) + 4 for sentence, wanted in zip(sentences, needed, strict=True) if wanted) > (most or limit):
        sentences = [_around(s, used) if wanted else s for s, wanted in zip(sentences, needed, strict=True)]
    sizes = [len(sentence) + 4 for sentence in sentences]
    return joined(sentences, choose(sizes, needed, _order(sentences, first), limit - 4, (most or limit) - 4))


def _around(sentence: str, used: Collection[str]) -> str:
    """The values in use of a long sentence with some words on both sides, where all the sentences have no room."""
    plain = sentence.casefold()
    places = [(at, at + len(value)) for value in used if (at := plain.find(value)) >= 0]
    if len(plain) != len(sentence) or not places:
        return sentence
    start, end = max(0, min(places)[0] - NEAR), max(last for _, last in places) + NEAR
    while start and not sentence[start - 1].isspace():
        start -= 1
    while end < len(sentence) and not sentence[end].isspace():
        end += 1
    return f"{GAP * (start > 0)}{sentence[start:end]}{GAP * (end < len(sentence))}"


def _order(sentences: Sequence[str], first: str) -> Sequence[int]:
    places = range(len(sentences))
    if first == "head":
        return places
    if first == "tail":
        return places[::-1]
    # the same words again tell nothing new
    once = {sentence: place for place, sentence in reversed(list(enumerate(sentences)))}
    return sorted(once.values(), key=lambda place: (-_score(sentences[place], place), place))


def _score(sentence: str, place: int) -> int:
    if place >= MAX_SCORED:
        return 0
    return min(4, len(of_text(sentence))) + 3 * (place == 0) + 2 * (excludes(sentence) is not None)


def joined(sentences: Sequence[str], places: Sequence[int]) -> str:
    """The sentences at these places as one text, with a sign where others were left out between them or at an end."""
    parts: list[str] = []
    before = -1
    for place in places:
        if place != before + 1:
            parts.append(f" {GAP} " if parts else f"{GAP} ")
        elif parts:
            parts.append(_between(sentences[before], sentences[place]))
        parts.append(sentences[place])
        before = place
    if before != len(sentences) - 1:
        parts.append(f" {GAP}")
    return "".join(parts)


def _between(left: str, right: str) -> str:
    """What stood between two sentences: a line break, a space, or nothing where the script has none."""
    if not _ENDED.search(left):
        return "\n"
    return "" if _SPACELESS.match(left[-1]) and _SPACELESS.match(right[0]) else " "


def shortened(text: str, limit: int) -> str:
    """At most ``limit`` code points of a text in one line, cut between graphemes and not within a value."""
    text = " ".join(text.split())
    if len(text) <= limit:
        return text
    head = clip(text, limit)[:-1]
    if _WORD.match(text, len(head)):
        head = _LAST_WORD.sub("", head) or head
    return head.rstrip() + GAP
