"""What of a card is embedded, and searched by words: its summary, then whatever the summary leaves out.

A passage is a window short enough for one vector to tell what stands in it. So cards that differ only in their tails
are told apart, however long they are (up to ``MAX_PASSAGES`` windows).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import regex

from projections.bounds import digest

WINDOW = 480
"""Code points of a passage, at most: what a small model still tells in one vector."""
OVERLAP = 80
"""Code points that two windows of one long text share, so that no phrase is cut in both."""
MAX_PASSAGES = 24
"""Passages of a card, at most."""

_GRAPHEME = regex.compile(r"\X")


def passages(card: Mapping[str, Any]) -> list[str]:
    """The passages of a row of ``cards``, each once: summary first, then facts that it does not name, in their order.

    Reads ``tool``, ``summary``, ``model_summary``, ``facts``; what is missing or None counts as empty.
    """
    told = [text for text in (card.get("model_summary"), card.get("summary")) if text]
    title = str(card.get("tool") or "")
    head = f"{title}: {told[0]}" if title and told else "".join(told[:1])
    said = "\n".join(told)
    parts = [head, *told[1:], *_lines(card.get("facts") or (), said)]
    return windows_of(parts)


def windows_of(parts: Iterable[str]) -> list[str]:
    """The passages of texts: their lines put together as they fit, what is longer cut, each once."""
    windows = (window for text in _joined(parts) for window in _windows(text))
    return list(dict.fromkeys(windows))[:MAX_PASSAGES]


def content_hash(text: str) -> str:
    """What a vector is found by, beside its model: 32 hexadecimal digits."""
    return digest(text)


def _lines(facts: Iterable[Sequence[str]], said: str) -> Iterator[str]:
    """One line a record (an object, a sentence): the facts in it that are not said yet, with their names."""
    for _, record in groupby(facts, key=lambda fact: fact[1]):
        new = [f"{_name(field)}: {text}" if field else text for field, _, text in record if text and text not in said]
        if new:
            yield "; ".join(new)


def _name(field: str) -> str:
    """The last name on the way to a value, as words."""
    names = [name for name in field.split(".") if name != "*"]
    return " ".join(names[-1].replace("_", " ").split()) if names else field


def _joined(parts: Iterable[str]) -> Iterator[str]:
    """The lines of all parts put together, as long as they fit into one window: a table is cut between its rows."""
    lines: list[str] = []
    size = 0
    for text in (line.strip() for part in parts for line in part.splitlines()):
        if not text:
            continue
        if lines and size + len(text) > WINDOW:
            yield "\n".join(lines)
            lines, size = [], 0
        lines.append(text)
        size += len(text) + 1
    if lines:
        yield "\n".join(lines)


def _windows(text: str) -> Iterator[str]:
    """The text, or where it is longer than a window, windows that overlap; never cut within a grapheme."""
    if len(text) <= WINDOW:
        yield text
        return
    edges = [0, *(match.end() for match in _GRAPHEME.finditer(text))]
    start, last = 0, len(edges) - 1
    while True:
        end = start
        while end < last and edges[end + 1] - edges[start] <= WINDOW:
            end += 1
        end = max(end, start + 1)  # a grapheme longer than a window is one
        yield text[edges[start] : edges[end]].strip()
        if end == last:
            return
        back = end
        while back > start + 1 and edges[end] - edges[back] < OVERLAP:
            back -= 1
        start = back
