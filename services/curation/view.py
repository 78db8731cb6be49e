"""What one scope knows, folded from its own events: what decisions are based on.

It folds with the same pure ``apply`` as the read model ``memories``, so it never asks a store of read models, and two
curators that have seen the same events know the same. Decisions made together build on each other: each is folded at
once, provisionally, until ``forget_provisional``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import regex
from numpy.typing import NDArray

from events.event import START, Position, Recorded
from events.types.memory import MemoryProposed
from projections.bounds import short
from projections.memories import MEMORIES_PROJECTION, apply
from projections.memory.normal import saying
from projections.projection import Drop, Row
from services.curation.lexicon import KINDS
from services.curation.proposal import Candidate, Memory, slot_of
from services.curation.statements import Statement, read

Ref = tuple[str, tuple[Any, ...]]
Vector = NDArray[np.float32]
"""``float32[dimension]`` of length 1."""

_PK = {
    str(table.name): tuple(str(c.name) for c in table.primary_key if c.name not in ("org", "key"))
    for table in MEMORIES_PROJECTION.tables
}
_HAN = regex.compile(r"\p{Han}")
MOST_LIKE = 24
"""Memories that share a word with a candidate and are looked at, those that share most."""


class ScopeView:
    """The memories of a scope up to ``position``, the last of its events that was folded; and what waits there."""

    def __init__(self) -> None:
        self.position: Position = START
        self.pending: dict[str, Recorded] = {}
        self.vectors: dict[str, Vector] = {}
        self._rows: dict[Ref, Row] = {}
        self._before: dict[Ref, Row | None] = {}
        self._memories: dict[str, Memory] = {}
        self._by_word: dict[str, set[str]] = defaultdict(set)
        self._by_slot: dict[tuple[str, str], set[str]] = defaultdict(set)

    def advance(self, events: Iterable[Recorded]) -> None:
        """Fold events of the scope, in order; those that were folded before are passed over."""
        for recorded in events:
            if recorded.position <= self.position:
                continue
            self.position = recorded.position
            if recorded.event.type in MEMORIES_PROJECTION.handles:
                self._fold(recorded, keep=True)

    def reach(self, position: Position) -> None:
        """Nothing that matters here stands up to this position beyond what was folded."""
        self.position = max(self.position, position)

    def waiting(self, most: int) -> list[Recorded]:
        """The proposals that wait longest."""
        return sorted(self.pending.values(), key=lambda recorded: recorded.position)[:most]

    def assume(self, recorded: Recorded) -> None:
        """Fold a decision that is on its way to the log."""
        self._fold(recorded, keep=False)

    def forget_provisional(self) -> None:
        """Back to what the log says."""
        for ref, row in self._before.items():
            if row is None:
                self._rows.pop(ref, None)
            else:
                self._rows[ref] = row
            self._reindex(ref)
        self._before.clear()

    def get(self, table: str, *pk: Any) -> Row | None:
        """As ``projections.projection.Rows``."""
        return self._rows.get((table, pk))

    def stale_of(self, proposal: str) -> int:
        """How many decisions on a proposal came too late."""
        row = self.get("memory_proposals", short(proposal))
        return 0 if row is None else int(row["stale"])

    def memories(self) -> Mapping[str, Memory]:
        """The active ones by name."""
        return self._memories

    def row(self, memory: str) -> Row:
        """The row of a memory that is there."""
        return self._rows["memories", (memory,)]

    def sharing(self, memory: Memory) -> list[Memory]:
        """The active ones that share a word with a memory."""
        names = set[str]().union(*(self._by_word.get(word, ()) for word in memory.statement.words))
        return [self._memories[name] for name in names]

    # --- what the stages ask (``proposal.Known``)

    def holder(self, content: str) -> str:
        """As ``Known.holder``."""
        rows = (self.get("memory_sayings", saying(kind, content)) for kind in KINDS)
        return next((str(row["memory"]) for row in rows if row is not None and row["memory"]), "")

    def was_deleted(self, content: str) -> bool:
        """As ``Known.was_deleted``."""
        rows = (self.get("memory_sayings", saying(kind, content)) for kind in KINDS)
        return any(row is not None and row["deleted"] for row in rows)

    def like(self, candidate: Candidate) -> list[Memory]:
        """As ``Known.like``: of the same slot first, then by the number of words shared."""
        named = set(self._by_slot.get(candidate.slot, ())) if candidate.slot is not None else set()
        if candidate.proposed.corrects in self._memories:
            named.add(candidate.proposed.corrects)
        shared: dict[str, int] = defaultdict(int)
        corrected = read(candidate.proposed.corrects).words if candidate.proposed.corrects else frozenset()
        for word in _keys(candidate.statement) | corrected:
            for memory in self._by_word.get(word, ()):
                shared[memory] += 1
        most = sorted(shared, key=lambda memory: (-shared[memory], memory))[:MOST_LIKE]
        return [self._memories[name] for name in dict.fromkeys((*sorted(named), *most))]

    def alike(self, candidate: Candidate) -> list[tuple[Memory, float]]:
        """As ``Known.alike``, for contents whose vectors are in ``vectors``."""
        mine = self.vectors.get(candidate.content)
        if mine is None:
            return []
        # one vector a text; see ``statements.gist`` for what of it was embedded
        same_kind = [one for one in self._memories.values() if one.kind == candidate.proposed.kind]
        known = [one for one in same_kind if one.content in self.vectors]
        if not known:
            return []
        likeness = np.stack([self.vectors[one.content] for one in known]) @ mine
        best = sorted(zip(known, likeness.tolist(), strict=True), key=lambda pair: (-pair[1], pair[0].memory))
        return best[:MOST_LIKE]

    # --- folding

    def _fold(self, recorded: Recorded, *, keep: bool) -> None:
        self._follow_pending(recorded)
        for change in apply(recorded, self):
            pk = change.pk if isinstance(change, Drop) else tuple(change.row[name] for name in _PK[change.table])
            ref = (change.table, pk)
            if not keep:
                self._before.setdefault(ref, self._rows.get(ref))
            if isinstance(change, Drop):
                self._rows.pop(ref, None)
            else:
                self._rows[ref] = change.row
            self._reindex(ref)

    def _follow_pending(self, recorded: Recorded) -> None:
        if isinstance(recorded.payload, MemoryProposed):
            self.pending.setdefault(short(recorded.event.id), recorded)

    def _reindex(self, ref: Ref) -> None:
        table, pk = ref
        if table == "memory_proposals":
            row = self._rows.get(ref)
            if row is not None and row["status"] in ("admitted", "rejected") and ref not in self._before:
                self.pending.pop(pk[0], None)
        if table != "memories":
            return
        name = pk[0]
        old = self._memories.pop(name, None)
        if old is not None:
            self._index(old, add=False)
        row = self._rows.get(ref)
        if row is None or row["status"] != "active":
            return
        said = read(row["content"])
        slot = slot_of(row["entity"], row["attribute"], said)
        new = self._memories[name] = Memory(name, row["kind"], row["content"], row["source"], said, slot)
        self._index(new, add=True)

    def _index(self, memory: Memory, *, add: bool) -> None:
        sets = [self._by_word[word] for word in _keys(memory.statement)]
        if memory.slot is not None:
            sets.append(self._by_slot[memory.slot])
        for names in sets:
            if add:
                names.add(memory.memory)
            else:
                names.discard(memory.memory)


def _keys(statement: Statement) -> frozenset[str]:
    """What a statement is found by: its words, and of a value in Chinese each character."""
    return statement.words | frozenset(_HAN.findall(statement.value))


def unseen(view: ScopeView, contents: Sequence[str]) -> list[str]:
    """Contents that have no vector yet: of candidates, and of the active memories they are compared with."""
    known = (memory.content for memory in view.memories().values())
    return [text for text in dict.fromkeys((*contents, *known)) if text not in view.vectors]
