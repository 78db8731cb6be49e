"""Prose in any language as sentences: by lines, then by Unicode's sentence rules.

A line ends a sentence. Within it a sentence ends after a terminator that Unicode calls one (``。！？``, ``।``, ``؟``,
``።`` and so on), or after ``.``, ``!`` or ``?`` before a space, unless what stands around a full stop shows that the
sentence goes on: a letter in lower case after it; an abbreviation, an initial or a list number before it. What is
longer than ``MAX_SENTENCE`` (Thai writes no terminators) is cut at a space, or between graphemes where there is none.
"""

from __future__ import annotations

from collections.abc import Iterator

import regex

MAX_SENTENCE = 400
"""Longest piece that counts as one sentence, in code points."""

_ABBREVIATION = (
    r"mr|mrs|ms|dr|prof|st|no|nr|vs|etc|approx|dept|inc|ltd|co|corp|fig|vol|eds?|al|cf|e\.g|i\.e|u\.s|[ap]\.m"
    r"|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|mon|tue|wed|thu|fri|sat|sun|tel|ext|bzw|z\.b|p\.ej"
)
_END = regex.compile(
    rf"""
      \p{{SB=STerm}} (?<![!?]) [\p{{SB=STerm}}\p{{SB=Close}}]*+ \s*+
    | [!?]++ \p{{SB=Close}}*+ (?:\s++|$)
    | (?<!\.) (?<! (?:^|[^\p{{L}}.]) (?: \p{{L}} | \d{{1,2}} | (?i:{_ABBREVIATION}) ) )
      \.++ \p{{SB=Close}}*+ \s++ (?! \p{{SB=Lower}} | [,;:)\]] )
    """,
    regex.VERBOSE | regex.V1,
)
_PAIRS = tuple((pair[0], pair[1]) for pair in ("《》", "「」", "『』", "“”", "（）", "【】", "«»"))
_GRAPHEME = regex.compile(r"\X")


def sentences(text: str) -> Iterator[str]:
    """The sentences and lines of a text, in order, each as it was written but for white space around it."""
    for line in text.splitlines():
        start = 0
        for end in _END.finditer(line):
            if not line.isascii() and _open(line[start : end.end()]):
                continue
            yield from _pieces(line[start : end.end()].strip())
            start = end.end()
        yield from _pieces(line[start:].strip())


def _open(sentence: str) -> bool:
    """Whether a title or a quotation has begun and not ended: what ends within it ends no sentence."""
    return len(sentence) < MAX_SENTENCE and any(sentence.count(left) > sentence.count(right) for left, right in _PAIRS)


def _pieces(sentence: str) -> Iterator[str]:
    while len(sentence) > MAX_SENTENCE:
        cut = _cut(sentence)
        yield sentence[:cut].rstrip()
        sentence = sentence[cut:].lstrip()
    if sentence:
        yield sentence


def _cut(text: str) -> int:
    """Where a long text is cut: at the last space of its second half, else between graphemes."""
    space = text.rfind(" ", MAX_SENTENCE // 2, MAX_SENTENCE + 1)
    if space > 0:
        return space
    cut = 0
    for match in _GRAPHEME.finditer(text, MAX_SENTENCE // 2, MAX_SENTENCE + 64):
        if match.end() > MAX_SENTENCE and cut:
            break
        cut = match.end()
    return cut
