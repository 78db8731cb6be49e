"""Memories in a context: those that are always told, those that the query brings, and how both read.

Facts about the user, what the user prefers, corrections and the org's conventions are told exactly: no likeness decides
about them, only the room there is, the most important first. Everything else is told when the query brings it. What
reads like an instruction (trust ``data``) stands in a fence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from projections.bounds import clip
from projections.cards.secrecy.secrets import masked_text
from projections.context.cuts import first_lines
from projections.context.fences import defused, fence
from projections.context.rendering import one_line
from projections.context.tokens import count
from projections.memory.normal import normal_form

Document = Mapping[str, Any]
"""A memory as ``projections.queries.memories`` shows it."""

PART = "memories"

MOST = 1_000
"""Tokens of what is always told, at most."""

_ALWAYS = frozenset(("correction", "convention"))
_OF_THE_USER = frozenset(("fact", "preference"))
_PASSED = 8
"""Memories that do not fit, after which no smaller one is looked for."""
_LONGEST = 2_000
"""Characters of one memory that are told."""


class Remembered(NamedTuple):
    """A memory as a context tells it. ``scope``: whose it is, as ``user/u1``; ``trust``: ``stated`` or ``data``;
    ``ruled``: names of the beliefs of its scope that say the same, if all of them are told."""

    memory: str
    scope: str
    kind: str
    content: str
    trust: str
    created: str
    ruled: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """How it reads, on one line; secrets masked."""
        return defused(f"- {self.kind}: {one_line(clip(masked_text(self.content), _LONGEST))}")


def remembered(document: Document) -> Remembered:
    """A memory's document, as a context takes it."""
    kind, content, trust, created = (str(document.get(name, "")) for name in ("kind", "content", "trust", "created"))
    return Remembered(document["memory"], document["scope"], kind, content, trust, created)


def always_told(documents: Iterable[Document], tokens: int = MOST) -> list[Remembered]:
    """Of active memories those that need no query, the most important that fit; in the order they were made.

    Two scopes may say the same: the first document does then. That importance fades moves no line past another, so what
    a model's cache holds of the part stays right.
    """
    chosen: list[Remembered] = []
    said: set[str] = set()
    passed = 0
    for one in sorted(documents, key=lambda document: -document["importance"]):
        same = normal_form(one["content"])
        if not _is_exact(one) or same in said:
            continue
        memory = remembered(one)
        size = count(memory.line) + 1
        if size > tokens:
            passed += 1
            if passed > _PASSED:
                break
        else:
            tokens -= size
            said.add(same)
            chosen.append(memory)
    return sorted(chosen, key=lambda memory: (memory.created, memory.scope, memory.memory))


def _is_exact(document: Document) -> bool:
    of_the_user = document["scope"].startswith("user/") and document["kind"] in _OF_THE_USER
    return of_the_user or document["kind"] in _ALWAYS


def not_told_by(rules: Collection[tuple[str, str]], memories: Sequence[Remembered]) -> list[Remembered]:
    """The memories that no rules, (scope, belief), that a context tells say already."""
    return [one for one in memories if not one.ruled or not all((one.scope, belief) in rules for belief in one.ruled)]


def memories_text(memories: Sequence[Remembered], tokens: int) -> str:
    """The lines of memories that fit, then in a fence those that are not to be obeyed."""
    text = first_lines([one.line for one in memories if one.trust != "data"], tokens)
    doubtful = [one.line for one in memories if one.trust == "data"]
    room = tokens - count(text) - count(fence(PART, "")) - 2
    quoted = first_lines(doubtful, room) if doubtful and room > 0 else ""
    return "\n".join(filter(None, (text, fence(PART, quoted) if quoted else "")))


def told_in(texts: Iterable[str], memories: Iterable[Remembered]) -> list[Remembered]:
    """Those whose lines the texts hold whole."""
    lines = {line for text in texts for line in text.split("\n")}
    return [one for one in memories if one.line in lines]
