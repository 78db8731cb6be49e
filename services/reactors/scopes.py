"""The scopes that a reactor remembers, each folded from its own events in the archive, and followed on."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from events.archive.reader import Archive
from projections.memories import MEMORIES_PROJECTION
from services.curation.view import ScopeView
from services.reactors.reactor import PAGE, Reaction, read_recorded

MOST = 256
"""Scopes that are remembered; another one is folded from its events again."""


@dataclass
class Scope:
    """What a reactor of memories remembers of a scope.

    ``sender`` is the event whose reaction has decisions on their way to the log.
    """

    view: ScopeView = field(default_factory=ScopeView)
    sender: str = ""
    sent_at: float = 0.0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


T = TypeVar("T")


class Scopes(Generic[T]):
    """Scopes by archive, org and key, each a ``new`` one at first; the least recently used are forgotten."""

    def __init__(self, new: Callable[[], T]) -> None:
        self._new = new
        self._of: WeakKeyDictionary[Archive, OrderedDict[tuple[str, str], T]] = WeakKeyDictionary()

    def of(self, reaction: Reaction, key: str = "") -> T:
        """The scope of a key; empty: of the source event."""
        name = (reaction.event.org, key or reaction.event.key)
        scopes = self._of.setdefault(reaction.archive, OrderedDict())
        scope = scopes.setdefault(name, self._new())
        scopes.move_to_end(name)
        if len(scopes) > MOST:
            scopes.popitem(last=False)
        return scope

    def forget(self, reaction: Reaction) -> None:
        """Keep no word of the org of an erasure: of what is left, scopes are folded again when somebody asks.

        All of them, since what is erased may have led to memories of any.
        """
        scopes = self._of.get(reaction.archive, OrderedDict())
        for name in [name for name in scopes if name[0] == reaction.event.org]:
            del scopes[name]


async def follow(reaction: Reaction, view: ScopeView) -> None:
    """Fold what the archive has of the source's scope beyond what the view knows.

    Nothing is asked where the view has passed the source and nothing waits: what came after has a reaction of its own.
    """
    event = reaction.event
    if view.position >= reaction.source.position and not view.pending:
        return
    while page := await reaction.archive.key_events(event.org, event.key, view.position, PAGE):
        mine = (archived for archived in page if archived.type in MEMORIES_PROJECTION.handles)
        view.advance(recorded for archived in mine if (recorded := read_recorded(archived)) is not None)
        view.reach(page[-1].position)
        if len(page) < PAGE:
            return
