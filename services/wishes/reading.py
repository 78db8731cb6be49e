"""What a person's words ask for of an agent's conduct, by rules, English and Chinese. Pure.

>>> [(wish.aspect, wish.value) for wish in wishes_of("Skip the reasoning, only the result.")]
[('process', 'conclusion')]
>>> [(wish.aspect, wish.value) for wish in wishes_of("请一步一步来")]
[('process', 'steps')]
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

import regex

from services.wishes import lexicon

MAX_READ = 300
"""Characters of a clause that is read; a longer one is no wish about conduct."""
MOST_WHEN, MOST_WHEN_ZH = 3, 6
"""Words, or characters, of a condition; a longer one is no trigger."""


class Wish(NamedTuple):
    """One wish. ``denied``: it is for doing without ``value``. ``once``: it is not meant to last.

    ``when`` holds the words of what it is limited to, empty for always; ``words`` are those that it was said in.
    """

    aspect: str
    value: str
    denied: bool
    words: str
    once: bool = False
    when: str = ""

    @property
    def what(self) -> tuple[str, str, bool]:
        """What is asked for, whatever the words."""
        return self.aspect, self.value, self.denied


def opposed(one: tuple[str, str, bool], other: tuple[str, str, bool]) -> bool:
    """Whether doing as one asks goes against the other: both of one aspect, and not to be had together.

    >>> opposed(("process", "steps", False), ("process", "conclusion", False))
    True
    >>> opposed(("format", "bullets", True), ("format", "tables", False))
    False
    """
    if one[0] != other[0] or one == other:
        return False
    return one[2] != other[2] if one[1] == other[1] else not (one[2] or other[2])


def wishes_of(clause: str) -> list[Wish]:
    """What one clause or sentence asks for: of each aspect one wish, none where its words disagree."""
    plain = folded(clause)
    if not plain or len(plain) > MAX_READ or (lexicon.QUESTION.search(plain) and not lexicon.REQUEST.search(plain)):
        return []
    found: dict[str, set[tuple[str, str, bool]]] = {}
    for aspect, value, match in _mentions(plain):
        before = plain[: match.start()]
        denied = lexicon.DENIED.search(before) is not None
        if denied or value not in lexicon.NAMED or _is_asked(match[0], before):
            found.setdefault(aspect, set()).add(_meant(aspect, value, denied=denied))
    when = _condition(plain) if found else None
    if when is None:
        return []
    once = lexicon.ONCE.search(plain) is not None
    return [Wish(*whats.pop(), clause.strip(), once, when) for whats in found.values() if len(whats) == 1]


def _mentions(plain: str) -> Iterator[tuple[str, str, regex.Match[str]]]:
    """Every value that is mentioned, by the patterns of the scripts that the text is in."""
    scripts = [False, True] if lexicon.HAN.search(plain) else [False]
    silent = {aspect for aspect, cue in lexicon.CUES.items() if cue.search(plain) is None}
    for chinese in scripts:
        for (aspect, value), pattern in lexicon.MENTIONS[chinese].items():
            if aspect not in silent:
                yield from ((aspect, value, match) for match in pattern.finditer(plain))


def _condition(plain: str) -> str | None:
    """The words of what a wish is limited to; empty for always, None for more than can be a trigger."""
    found = lexicon.CONDITION.search(plain)
    if found is None and _HAN.search(plain):
        found = lexicon.CONDITION_ZH.search(plain)
    said = next((part for part in found.groups() if part), "") if found is not None else ""
    if _HAN.search(said):
        said = lexicon.ANY_TIME_ZH.sub("", said)
        return said if len(said) <= MOST_WHEN_ZH else None
    words = [word for word in _WORD.findall(said) if word not in lexicon.ANY_TIME]
    return " ".join(words) if len(words) <= MOST_WHEN else None


def folded(text: str) -> str:
    """The text as patterns see it."""
    plain = unicodedata.normalize("NFKC", text[: MAX_READ + 100]).casefold().replace("’", "'")
    return str(_SPACES.sub(" ", plain)).strip(" .!。！~～\"'“”")


def statement_of(what: tuple[str, str, bool], words: str, when: str = "") -> str:
    """The rule in words of ours, in the language that it was wished in.

    >>> statement_of(("process", "steps", False), "when it is about code, show the steps", "code")
    'Show the steps that lead to the conclusion (about: code)'
    """
    english, chinese = lexicon.STATEMENTS[what]
    if _HAN.search(words):
        return f"{chinese}（关于：{when}）" if when else chinese
    return f"{english} (about: {when})" if when else english


def _is_asked(mention: str, before: str) -> bool:
    """Whether a thing is wanted rather than talked about."""
    first = mention[0] if _HAN.match(mention) else mention.partition(" ")[0]
    return lexicon.ASKED.search(before + first) is not None or lexicon.ASKED.search(before) is not None


def slot_of(what: tuple[str, str, bool]) -> str:
    """The attribute of a person that a wish is a value of: what opposes each other has one.

    >>> slot_of(("process", "steps", False)), slot_of(("emoji", "emoji", True))
    ('conduct: process', 'conduct: emoji')
    >>> slot_of(("format", "tables", True)), slot_of(("format", "bullets", False))
    ('conduct: format tables', 'conduct: format bullets')
    """
    aspect, value, denied = what
    alone = aspect in lexicon.POLES or value == aspect or (aspect == "language" and not denied)
    return f"conduct: {aspect}" if alone else f"conduct: {aspect} {value}"


def wish_of_ours(text: str) -> tuple[str, str, bool] | None:
    """What a statement of ours asks for; None for any other text."""
    return _OURS.get(folded(text))


def _meant(aspect: str, value: str, *, denied: bool) -> tuple[str, str, bool]:
    if denied and aspect in lexicon.POLES:
        one, other = lexicon.POLES[aspect]
        return aspect, other if value == one else one, False
    return aspect, value, denied


_SPACES = regex.compile(r"\s+")
_HAN = lexicon.HAN
_WORD = regex.compile(r"[\p{L}\p{N}][\p{L}\p{M}\p{N}'’-]*")
_OURS = {folded(statement): what for what, both in lexicon.STATEMENTS.items() for statement in both}
