"""Curator and extractor over a real archive, on both stores: one memory whoever races, a reason for all the rest."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from numpy.typing import NDArray

from events import door
from events.archive import queries
from events.archive.reader import Archive, Archived
from events.database import Database
from events.errors import Transient
from events.event import START, Event, Position, Recorded
from projections.memories import MEMORIES_PROJECTION
from services.reactors.checkpoints import introduce
from services.reactors.consolidator import CONSOLIDATOR, Consolidator
from services.reactors.curator import CURATOR, Curator
from services.reactors.extractor import EXTRACTOR
from services.reactors.loop import ReactorLoop
from services.reactors.reactor import Outside, Reaction, Reactor, read_recorded
from tests.integration.reactor_lab import (
    PARTITIONS,
    ArchiveOutlet,
    archive,
    checkpoints_at_end,
    loop_of,
    opened,
    put,
    run_until,
    sqlite_log,
    stored,
)  # fmt: skip
from tests.unit.fold_runner import Folded

REACTORS = (CURATOR, EXTRACTOR, CONSOLIDATOR)


@pytest.fixture
def either(log_db: Database) -> Database:
    """The log on each store in turn, for what depends on it."""
    return opened(log_db, *REACTORS)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with sqlite_log(tmp_path / "stores", *REACTORS) as log:
        yield log


@dataclass
class WakingOutlet(ArchiveOutlet):
    """Wakes the loop behind every append, as the archiver does."""

    loop: ReactorLoop | None = None

    async def append(self, raws: Sequence[dict[str, Any]]) -> None:
        await super().append(raws)
        if self.loop is not None:
            self.loop.wake()


def running(db: Database, *reactors: Reactor, outlet: WakingOutlet | None = None, **more: Any) -> ReactorLoop:
    outlet = outlet or WakingOutlet(db)
    outlet.loop = loop_of(db, outlet, *(reactors or (curator(),)), **more)
    return outlet.loop


def curator() -> Reactor:
    """A curator that remembers nothing yet, as in a process of its own."""
    return Reactor(CURATOR.name, CURATOR.handles, Curator().react, from_start=True)


def proposal(name: str, content: str, **more: Any) -> Event:
    data = {"content": content, "kind": more.pop("kind", "preference"), **more.pop("data", {})}
    return door.admit({"id": name, "type": "memory.proposed", "user": "u1", "data": data, **more})


def said(run: str, content: str, role: str = "user", **more: Any) -> Event:
    names = {"user": "u1", "agent": "coder", "run": run, "session": f"s-{run}"}
    raw = {"id": f"{run}-{content[:40]}-{role}", "type": "message.added", "data": {"role": role, "content": content}}
    return door.admit({**names, **raw, **more})


def settled(run: str, **data: Any) -> Event:
    names = {"user": "u1", "agent": "coder", "run": run, "session": f"s-{run}"} | data.pop("names", {})
    raw = {"id": f"settled-{run}", "type": "settlement.recorded", "data": {"session_state": {}, **data}}
    return door.admit({name: value for name, value in {**names, **raw}.items() if value})


def scopes(db: Database) -> list[Recorded]:
    """What the archive holds, as folds see it."""

    def read(conn: Any) -> list[Archived]:
        return [a for p in range(PARTITIONS) for a in queries.read_log(conn, p, START, 100_000, None)]

    return [recorded for archived in db.read_now(read) if (recorded := read_recorded(archived)) is not None]


def replayed(db: Database, *, batch: int = 100) -> Folded:
    """The memories that the log makes, with no curator and no model anywhere."""
    return Folded(MEMORIES_PROJECTION).fold(scopes(db), batch=batch)


def active(db: Database) -> dict[str, str]:
    rows = replayed(db).table("memories")
    return {row["content"]: row["status"] for row in rows if row["status"] == "active"}


def all_decided(db: Database, proposals: int) -> bool:
    rows = replayed(db).table("memory_proposals")
    return len(rows) >= proposals and all(row["status"] in ("admitted", "rejected") for row in rows)


def curate(db: Database, proposals: int, *reactors: Reactor, **more: Any) -> None:
    asyncio.run(run_until([running(db, *reactors, **more)], lambda: all_decided(db, proposals)))


def reasons(db: Database) -> Counter[str]:
    return Counter(row["reason"] for row in replayed(db).table("memory_proposals"))


def test_two_settlements_propose_the_same_at_the_same_moment_and_two_curators_decide(either: Database) -> None:
    """C16, C46: one memory, live and after replay, though two curators work on one scope without knowing each other."""
    put(either, *(proposal(f"p{n}", "The user prefers metric units" + "." * (n % 2)) for n in range(12)))
    zombie = Reactor("zombie", CURATOR.handles, Curator().react, from_start=True)
    either.write_now(lambda conn: introduce(conn, [zombie]))
    curate(either, 12, curator(), zombie)
    assert len(active(either)) == 1
    assert reasons(either) == {"": 1, "duplicate": 11}
    assert replayed(either, batch=1).dump() == replayed(either).dump()


def test_what_is_said_later_takes_the_place_of_what_it_contradicts(db: Database) -> None:
    put(db, proposal("p1", "I live in Oslo", kind="fact"), proposal("p2", "我现在住在上海", kind="fact"))
    put(db, proposal("p3", "I prefer aisle seats"), proposal("p4", "Actually, I prefer window seats now"))
    curate(db, 4)
    assert set(active(db)) == {"我现在住在上海", "Actually, I prefer window seats now"}
    old = replayed(db).one("memories", content="I live in Oslo")
    new = replayed(db).one("memories", content="我现在住在上海")
    assert (old["status"], old["superseded_by"], old["because"]) == ("superseded", new["memory"], "another value")


def test_a_decision_that_an_edit_overtook_is_made_again(db: Database) -> None:
    """The edit lands between what the curator saw and its decision: the fold calls the decision stale."""
    put(db, proposal("p1", "I live in Oslo", kind="fact"))
    curate(db, 1)
    (memory,) = replayed(db).table("memories")
    edit = {"id": "edit", "type": "memory.edited", "user": "u1",
            "data": {"memory": memory["memory"], "content": "I live in Bergen", "kind": "fact"}}  # fmt: skip

    class Overtaken(WakingOutlet):
        async def append(self, raws: Sequence[dict[str, Any]]) -> None:
            if raws and not self.calls:
                await self.db.write(lambda conn: archive(conn, [door.admit(edit)]))
            await super().append(raws)

    put(db, proposal("p2", "I live in Bergen", kind="fact"))
    asyncio.run(run_until([running(db, outlet=Overtaken(db))], lambda: all_decided(db, 2)))
    found = replayed(db)
    assert found.one("memory_proposals", proposal="p2")["stale"] == 1
    assert found.one("memory_proposals", proposal="p2")["memory"] == memory["memory"]
    assert set(active(db)) == {"I live in Bergen"}


def test_a_log_that_cannot_be_written_for_a_while_and_a_new_curator_lose_nothing(db: Database) -> None:
    put(db, *(proposal(f"p{n}", f"I like the number {n}", kind="preference") for n in range(90)))
    first = running(db, outlet=WakingOutlet(db, failures=3), owner="first")
    asyncio.run(run_until([first], lambda: len(stored(db, "memory.admitted")) > 30))
    curate(db, 90, curator(), owner="second")
    assert len(active(db)) == 90
    assert len(stored(db, "memory.admitted")) == 90


def test_everything_that_a_settlement_proposes_has_its_reason(db: Database) -> None:
    """C21, C35, C40: good ones enter; secrets, wrong types, noise and Refold's own words do not, each with why."""
    items = [
        {"content": "The user prefers aisle seats", "kind": "preference", "confidence": 0.9},
        {"content": "the key is sk-live-AAAA1111BBBB2222cccc3333", "kind": "fact"},
        {"content": "confident", "confidence": 85},
        {"content": "negative", "confidence": -1},
        {"content": "as text", "confidence": "0.9"},
        {"content": "null", "confidence": None, "kind": "wish"},
        {"kind": "fact"},
        42,
        "  ",
        "ok thanks",
        '{"session_state": {"goal": "x"}, "reflections": []}',
    ]
    learnings = [
        "Run the linter before the tests, otherwise the build fails",
        "The user named Ada said so: a@b.example",
    ]
    put(db, settled("r1", memories=items, learnings=learnings, reflections=["I was too hasty with Ada"]))
    curate(db, 13, curator(), EXTRACTOR)
    assert set(active(db)) == {"The user prefers aisle seats", learnings[0]}
    assert reasons(db) == {"": 2, "credentials": 1, "malformed": 6, "empty": 1, "low_signal": 2, "own_output": 1}
    rows = replayed(db).dump().decode()
    assert "AAAA1111" not in rows and "hasty" not in rows
    assert replayed(db).one("memories", content=learnings[0])["agent"] == "coder"
    keys = {key for (_, key, table, _) in replayed(db).rows if table == "memories"}
    assert keys == {"user/u1", "agent/coder"}


def test_a_run_of_nobody_proposes_nothing_for_anybody_and_says_so(db: Database) -> None:
    put(db, settled("r1", memories=[{"content": "The user lives in Oslo"}], names={"user": "", "agent": ""}))
    curate(db, 1, curator(), EXTRACTOR)
    assert reasons(db) == {"nobody": 1}


def test_what_a_user_says_becomes_memory_and_what_an_agent_or_a_tool_says_does_not(db: Database) -> None:
    """C40: nor does a memory that comes back in a message, as it was or in a context."""
    put(
        db,
        said("r1", "Hi! I prefer aisle seats. 我对花生过敏。Can you find me a flight?"),
        said("r1", "I prefer window seats", role="assistant"),
        said("r1", "I live in a tool", role="tool"),
        said("r2", "<refold-memories>\n- I prefer middle seats\n</refold-memories>\nwhat now?"),
        said("r3", "I prefer aisle seats."),
        said("r4", "I prefer aisle seats", user=""),
    )
    asyncio.run(
        run_until(
            [running(db, curator(), EXTRACTOR)],
            lambda: all_decided(db, 3) and checkpoints_at_end(db, "extractor"),
        )
    )
    assert set(active(db)) == {"I prefer aisle seats.", "我对花生过敏。"}
    assert reasons(db) == {"": 2, "duplicate": 1}


def test_nothing_automatic_brings_back_what_was_deleted_but_a_person_does(db: Database) -> None:
    put(db, proposal("p1", "I prefer aisle seats"))
    curate(db, 1)
    (memory,) = replayed(db).table("memories")
    data = {"memory": memory["memory"], "kind": "preference"}
    put(db, door.admit({"id": "d", "type": "memory.deleted", "user": "u1", "data": data}))
    put(db, said("r1", "I prefer aisle seats"))
    curate(db, 2, curator(), EXTRACTOR)
    assert (active(db), reasons(db)["deleted"]) == ({}, 1)
    put(db, proposal("p3", "I prefer aisle seats", data={"source": "person"}))
    curate(db, 3)
    assert set(active(db)) == {"I prefer aisle seats"}


def test_an_agent_learns_from_a_tool_that_fails_in_three_runs_once(db: Database) -> None:
    def lived(n: int, label: str, tool: str = "deploy") -> Event:
        data = {"run": f"r{n}", "deriver_version": 1, "scope": "agent",
                "counts": [{"tool": tool, "label": label, "count": 1}]}  # fmt: skip
        return door.admit({"id": f"x{n}{tool}", "type": "experience.recorded", "agent": "coder", "data": data})

    put(db, *(lived(n, "fatal_failure") for n in range(6)), *(lived(n, "success", "read") for n in range(6)))
    curate(db, 1, curator(), EXTRACTOR)
    ((content, status),) = active(db).items()
    assert content.startswith("The tool deploy failed") and status == "active"
    assert len(stored(db, "memory.proposed")) == 1


def test_of_runs_that_were_judged_again_the_last_judgement_counts_in_any_order(db: Database) -> None:
    def lived(n: int, label: str, version: int, revision: int) -> Event:
        data = {"run": f"r{n}", "deriver_version": version, "revision": revision, "scope": "agent"}
        data["counts"] = [{"tool": "deploy", "label": label, "count": 1}]
        raw = {"id": f"x{n}-{version}-{revision}", "type": "experience.recorded", "agent": "coder", "data": data}
        return door.admit(raw)

    put(db, *(one for n in range(2) for one in (lived(n, "success", 2, 1), lived(n, "fatal_failure", 1, 3))))
    put(db, *(lived(n, "fatal_failure", 2, 2) for n in range(2, 4)))
    curate(db, 0, curator(), EXTRACTOR)
    assert stored(db, "memory.proposed") == []


@pytest.mark.parametrize("reactor", [Curator, Consolidator])
def test_of_a_scope_that_was_erased_nothing_is_remembered(
    db: Database, reactor: type[Curator] | type[Consolidator]
) -> None:
    put(db, proposal("p1", "I prefer aisle seats"))
    curate(db, 1)
    one, log = reactor(), Archive(db)
    remembered = one._scopes._of

    async def react(to: Archived) -> None:
        recorded = read_recorded(to)
        assert recorded is not None
        await one.react(Reaction("curator", to, recorded, log))

    def of_type(name: str) -> list[Archived]:
        return db.read_now(
            lambda conn: [a for p in range(PARTITIONS) for a in queries.read_log(conn, p, START, 99) if a.type == name]
        )

    (admitted,) = of_type("memory.admitted")
    asyncio.run(react(admitted))
    assert [*remembered[log]] == [("default", "user/u1")]
    for org in ("other", "default"):
        data = {"level": "user", "subject": "u1", "partition": 0}
        put(db, door.admit({"id": "gone", "type": "scope.erased", "org": org, "data": data}))
        asyncio.run(react(of_type("scope.erased")[-1]))
        assert len(remembered[log]) == (org == "other")


def test_meaning_tells_duplicates_where_a_model_is_there_and_a_replay_asks_none(db: Database) -> None:
    asked: list[str] = []

    async def embed(texts: Sequence[str]) -> NDArray[np.float32]:
        asked.extend(texts)
        return [
            np.array([1.0, 0.0] if "bicycle" in text or "cycling" in text else [0.0, 1.0], np.float32) for text in texts
        ]

    put(db, proposal("p1", "Goes to the office by bicycle every day"))
    put(db, proposal("p2", "The user commutes through cycling daily"))
    put(db, proposal("p3", "Collects stamps from Norway at weekends"))
    curate(db, 3, outside=Outside(embed=embed))
    assert len(asked) == 3
    assert reasons(db) == {"": 2, "duplicate": 1}
    before = replayed(db).dump()
    assert (replayed(db, batch=1).dump(), len(asked)) == (before, 3)


def test_a_model_that_cannot_be_had_stops_nobody(db: Database) -> None:
    async def embed(texts: Sequence[str]) -> NDArray[np.float32]:
        raise Transient("away")

    put(db, proposal("p1", "I prefer aisle seats"))
    curate(db, 1, outside=Outside(embed=embed))
    assert len(active(db)) == 1


def test_a_curator_reads_a_scope_of_other_events_up_to_its_end(db: Database) -> None:
    noise = [
        door.admit({"id": f"n{n}", "type": "feedback.given", "user": "u1", "data": {"text": "ok"}}) for n in range(9)
    ]
    put(db, *noise, proposal("p1", "I prefer aisle seats"), *noise[:0])
    curate(db, 1)
    (decision,) = stored(db, "memory.admitted")
    assert Position.parse(orjson.loads(decision.data)["based_on"]).n >= 9


def test_what_says_more_takes_in_what_says_less_unless_that_was_changed_meanwhile(db: Database) -> None:
    fuller = "The staging database is reset every Sunday at 3:00"
    put(db, proposal("p1", "The staging database is reset every Sunday", kind="fact"))
    put(db, proposal("p2", fuller, kind="fact"), proposal("p3", "I like green tea"), proposal("p4", "I like tea"))
    loop = running(db, curator(), CONSOLIDATOR)
    asyncio.run(run_until([loop], lambda: len(stored(db, "memory.consolidated")) == 1 and all_decided(db, 4)))
    assert set(active(db)) == {fuller, "I like green tea", "I like tea"}
    rows = replayed(db).table("memories")
    assert sorted(row["because"] for row in rows if row["status"] == "superseded") == ["consolidated", "consolidated"]
