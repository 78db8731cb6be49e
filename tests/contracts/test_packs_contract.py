"""What an export holds, on each store: one scope and nothing else, the same bytes for the same log, however folded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import date
from functools import partial
from typing import Any

import pytest

from events.database import Stores
from events.door import admit
from events.event import Event
from projections import generations
from projections.engine.birth import ensure_first_generation
from projections.engine.folder import PartitionFolder
from projections.engine.source import ArchiveSource
from projections.engine.store import GenerationStore
from projections.projection import Projection
from projections.read_models import ReadModels
from projections.rebuilding.rebuild import rebuild
from projections.registry import PROJECTIONS
from services.packs.form import Pack, Scope
from services.packs.gathering import gather
from services.packs.writing import write_pack
from tests.contracts.engine_lab import PARTITIONS, Lab

READ = [PROJECTIONS[name] for name in ("memories", "beliefs", "task_state", "settlements")]
DAY = date(2026, 3, 10)
ADA = ("default", "user/ada")


def raw(id: str, type: str, data: dict[str, Any], **envelope: Any) -> Event:
    return admit({"id": id, "type": type, "time": "2026-03-01T10:00:00Z", "data": data, **envelope})


def life(user: str, agent: str = "clerk") -> list[Event]:
    """A run of a user, or of an agent alone, with a note and a settlement; a memory and a belief of theirs."""
    who = {"agent": agent, **({"user": user} if user else {})}
    scope = "user" if user else "agent"
    name = user or agent
    run = {"run": f"r-{name}", "session": f"s-{name}", **who}
    admitted = {"memory": f"m-{name}", "content": f"{name} says", "kind": "fact", "scope": scope}
    believed = {"belief": "rule/brief", "kind": "learning", "statement": "be brief", "confidence": 0.7, "scope": scope,
                "elsewhere": [{"kind": "feedback", "detail": "from elsewhere"}, None, "said", [5]]}  # fmt: skip
    verified = {"belief": "rule/brief", "supports": True, "scope": scope, "because": ["e1"]}
    return [
        raw(f"1-{name}", "run.started", {"goal": "x"}, **run),
        raw(f"2-{name}", "note.written", {"key": "api_key", "content": f"sk-live-{name}-AAAA1111BBBB2222"}, **run),
        raw(f"3-{name}", "run.terminated", {"reason": "end_turn"}, **run),
        raw(f"4-{name}", "settlement.recorded", {"session_state": {"goal": f"of {name}"}}, **run),
        raw(f"5-{name}", "memory.admitted", admitted, **who),
        raw(f"6-{name}", "memory.admitted", {**admitted, "memory": f"n-{name}", "content": "gone"}, **who),
        raw(f"7-{name}", "memory.invalidated", {"memory": f"n-{name}", "scope": scope}, **who),
        raw(f"8-{name}", "belief.proposed", believed, **who),
        raw(f"9-{name}", "belief.verified", verified, **who),
        raw(f"10-{name}", "belief.proposed", {**believed, "belief": "rule/gone"}, **who),
        raw(f"11-{name}", "belief.retracted", {"belief": "rule/gone", "scope": scope}, **who),
    ]  # fmt: skip


@pytest.fixture
def lab(stores: Stores) -> Iterator[Lab]:
    lab = Lab(stores)
    lab.archive(*life("ada"), *life("bob"), *life("", "coder"))
    for projection in READ:
        ensure_first_generation(projection, lab.stores, lab.log, "test")
        fold(lab, projection, batch=3)
    yield lab
    lab.log.close()


def fold(lab: Lab, projection: Projection, batch: int) -> None:
    active = lab.log.read_now(partial(generations.active, projection=projection.name))
    assert active is not None
    store = GenerationStore(projection, lab.stores.generation(active.name))
    for partition in range(PARTITIONS):
        folder = PartitionFolder.take_over(store, ArchiveSource(lab.log), partition, "test", batch=batch)
        while folder.step().read:
            pass
        folder.hand_over()
    store.db.close()


def exported(lab: Lab, *scopes: tuple[str, str]) -> list[Pack]:
    """The packs of scopes, each given as its organisation and its key."""
    read_models = ReadModels(READ, lab.stores, lab.log)

    async def each() -> list[Pack]:
        return [await gather(read_models, org, Scope.of(key), DAY) for org, key in scopes]

    try:
        return asyncio.run(each())
    finally:
        read_models.close()


def test_an_export_holds_its_scope_and_is_the_same_however_it_was_folded(lab: Lab) -> None:
    """C21: and no secret, not even where the name of a note is all that tells."""
    pack = check_scopes(lab)
    (belief,) = pack.beliefs
    told = [(one.get("because"), one.get("detail")) for one in belief.evidence]
    assert told == [(["e1"], None), (None, "from elsewhere")]
    assert (belief.supports, belief.against) == (1, 0) and 0.7 < belief.confidence < 0.8
    assert pack.notes[0].note == "api_key" and b"sk-live" not in write_pack(pack)
    for projection in READ[:2]:
        rebuild(projection, lab.stores, lab.log, processes=1)
    again, after = exported(lab, ADA, ADA)
    assert write_pack(again) == write_pack(after) and after.digest == pack.digest
    assert after.source != pack.source, "it tells which generations it was made from"


def check_scopes(lab: Lab) -> Pack:
    """Each scope has its own and nothing else; the pack of ada."""
    others = [("default", key) for key in ("agent/clerk", "org", "user/nobody")] + [("another", "user/ada")]
    ada, bob, coder, *empty = exported(lab, ADA, ("default", "user/bob"), ("default", "agent/coder"), *others)
    for name, pack in (("ada", ada), ("bob", bob), ("coder", coder)):
        assert [one.content for one in pack.memories] == [f"{name} says"], "what holds no more is left out"
        assert [one.belief for one in pack.beliefs] == ["rule/brief"], "what was taken back is left out"
        assert [one.run for one in pack.notes] == [one.run for one in pack.settlements] == [f"r-{name}"]
        assert (pack.settlements[0].session_state or {})["goal"] == f"of {name}"
    assert not any(count for pack in empty for count in pack.counts.values()), "clerk's runs are its users'"
    return ada
