"""The values that stand in running text: ids, numbers, dates, times, paths, addresses and names, in any language."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

from projections.cards.reading.forms import MONTHS, forms

MAX_TEXT = 32_768
"""Of one text, at most so many code points are read."""

_MONTH = "|".join(sorted(MONTHS, key=len, reverse=True))

_GOES_ON = r"[0-9_]|-[A-Za-z-]{0,20}[0-9]"
"""After letters: they are the head of an id."""

_TOKEN = re.compile(
    rf"""
    (?:(?<![a-z])|(?=[“「『《]))(?:(?:[a-z]++[ ,;!?](?=[^0-9]))++|(?=[A-Za-z0-9_.+~/\\“「『《-])(?:
      (?P<link>https?://[^\s"'<>]+)
    | (?P<mail>(?<![A-Za-z0-9_.+-])[A-Za-z0-9_.+-]{{1,64}}+@[A-Za-z0-9-]{{1,64}}+(?:\.[A-Za-z0-9-]+)+)
    | (?P<date>(?<!\d)(?:\d{{4}}[-/]\d{{2}}[-/]\d{{2}}(?:[Tt\ ]\d{{2}}:\d{{2}}(?::\d{{2}})?)?(?!\d)
        |\d\d?\.\d\d?\.\d{{4}}(?!\.?\d)))
    | (?P<clock>(?<!\d)\d{{1,2}}:\d{{2}}(?::\d{{2}})?(?:\ ?[AaPp]\.?[Mm]\b)?)
    | (?P<month>(?<![A-Za-z])(?i:{_MONTH})\.?\ \d{{1,2}}(?:st|nd|rd|th)?\b(?:,?\ \d{{4}}\b)?)
    | (?P<day>(?<![A-Za-z0-9.,:-])\d{{1,2}}(?:st|nd|rd|th|\.)?\ (?:of\ )?(?i:{_MONTH})\b(?:,?\ \d{{4}}\b)?)
    | (?P<month_cjk>(?:\d{{4}}[年년]\ ?)?(?<!\d)\d{{1,2}}[月월]\ ?\d{{1,2}}[日号號일])
    | (?P<path>(?<![A-Za-z0-9_.~/\\-])(?:[A-Za-z]:)?(?:[A-Za-z0-9_.~-]{{0,64}}+[/\\]){{1,40}}+[A-Za-z0-9_.-]+)
    | (?P<dotted>(?<![A-Za-z0-9_.])\d++(?:\.\d++){{2,10}}+(?![A-Za-z0-9_]))
    | (?P<number>(?<![A-Za-z0-9_.])[-+]?(?:\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?|\d++\.\d+)(?![A-Za-z0-9_]))
    | (?P<id>(?<![A-Za-z0-9_])(?=[A-Za-z0-9][A-Za-z-]{{0,80}}+[0-9_]|[0-9])[A-Za-z0-9_-]*+
        (?:(?<=[A-Za-z0-9])\.[0-9]++(?![A-Za-z_%])){{0,10}}+)
    | (?P<quoted>[“「『《][^”」』》]{{2,60}}[”」』》])
    | (?P<name>(?<![A-Za-z0-9_])[A-Z][A-Za-zÀ-ɏ'’]++(?!{_GOES_ON})(?:\ [A-Z][A-Za-zÀ-ɏ'’]++(?!{_GOES_ON})){{0,3}})
    ))""",
    re.VERBOSE,
)
"""Letters are Latin on purpose where a token may stand without spaces in Chinese or Japanese text. Every alternative
starts at the beginning of a word and never gives back what it took, so the scan stays linear in hostile text. Most of
a text is plain words in lower case: the first line takes runs of them at once, as a match that is no token."""

_MEMBER = re.compile(r"(?:::[A-Za-z0-9_]{1,80})+")
_TRAILING = frozenset(("id", "number", "path", "link"))

_SENTENCE_STARTS = frozenset((
    "i", "i'm", "i'd", "i'll", "the", "this", "that", "it", "it's", "if", "in", "on", "my", "we", "you", "your", "one",
    "please", "sure", "hi", "hello", "yes", "no", "thank", "thanks", "and", "but", "also", "can", "could", "what",
    "how", "when", "do", "for", "there", "they", "he", "she", "is", "are", "to", "as", "at", "of", "a", "an", "let",
    "would", "now", "then", "after",
))  # fmt: skip

_DAY_MONTH_YEAR = re.compile(r"(\d\d?)\.(\d\d?)\.(\d{4})")


def tokens(text: str) -> Iterator[str]:
    """The values of a text in normal form, in order, repeats included."""
    text = text[:MAX_TEXT]
    for match in _TOKEN.finditer(text if text.isascii() else unicodedata.normalize("NFKC", text)):
        kind = match.lastgroup
        if kind is None:
            continue
        token = match[kind]
        match kind:
            case "month":
                name, day, *year = token.replace(".", "").replace(",", "").casefold().split()
                yield from _date(year[0] if year else "", MONTHS[name], day)
            case "day":
                yield from _day_first(token)
            case "month_cjk":
                *years, month, day = re.findall(r"\d+", token)
                yield from _date(years[0] if years else "", int(month), day)
            case "date" if whole := _DAY_MONTH_YEAR.fullmatch(token):
                yield from _date(whole[3], int(whole[2]), whole[1])
            case "date":
                yield from forms(token.replace("/", "-"))
            case "name":
                yield from _name(token)
            case "quoted":
                yield from forms(token[1:-1])
            case _:
                yield from forms(token.rstrip(".,;:-"))


def spans(text: str) -> Iterator[tuple[int, int, bool]]:
    """Where the values of a text stand as they are written: start, end, and whether it is a name or a bare number.

    A ``#`` before one belongs to it, and what ``::`` joins is one.
    """
    last = 0
    for match in _TOKEN.finditer(text[:MAX_TEXT]):
        kind = match.lastgroup
        if kind is None:
            continue
        start, end = match.span(kind)
        if start < last or (kind == "name" and not _name(match[kind])):
            continue
        if kind in _TRAILING:
            end = start + len(match[kind].rstrip(".,;:-"))
        if member := _MEMBER.match(text, end):
            end = member.end()
        if end > start:
            last = end
            yield start - (text[start - 1 : start] == "#"), end, kind in ("name", "number") or text[start:end].isdigit()


@lru_cache(maxsize=8_192)
def _name(token: str) -> tuple[str, ...]:
    words = token.split(" ")
    while words and words[0].casefold().replace("’", "'") in _SENTENCE_STARTS:
        words = words[1:]
    return forms(" ".join(words)) if words else ()


def _day_first(token: str) -> Iterator[str]:
    """``20 May``, ``3rd of June 2024``, ``20. Mai``."""
    words = [word for word in re.split(r"[ .,]+", token.casefold()) if word not in ("", "of")]
    yield from _date(words[2] if len(words) > 2 else "", MONTHS[words[1]], words[0])


def _date(year: str, month: int, day: str) -> Iterator[str]:
    number = int(re.sub(r"\D", "", day))
    if 1 <= month <= 12 and 1 <= number <= 31:
        if year:
            yield f"{year}-{month:02}-{number:02}"
        yield f"--{month:02}-{number:02}"
