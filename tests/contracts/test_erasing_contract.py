"""Erasing on both stores: what is a subject's, what stays of an event, and folds that come to the same either way."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from sqlalchemy import select

from events.archive import erasing, queries
from events.archive.queries import Archived
from events.archive.schema import erasures
from events.archive.subjects import Subject
from events.errors import Transient
from events.event import START, Event
from events.keys import partition_of
from projections import generations
from projections.engine.birth import ensure_first_generation
from projections.engine.folder import PartitionFolder
from projections.engine.source import ArchiveSource
from projections.engine.store import GenerationStore
from projections.projection import Projection
from projections.rebuilding.verify import verify
from services.erasing.asking import events_of
from tests.contracts.engine_lab import PARTITIONS, TOY, Lab, discard, dump, event, lab_in, naive, note

WORD = "zebrafish"
OWN = Subject("default", "user", "u1")


def whole(lab: Lab) -> list[Archived]:
    """The archive, whatever the verdict."""
    return lab.log.read_now(lambda c: [a for p in range(PARTITIONS) for a in queries.read_log(c, p, START, 9999)])


def verdicts(lab: Lab) -> dict[str, str]:
    """By id, but for the erasures themselves."""
    return {a.event().id: a.verdict for a in whole(lab) if a.type != "scope.erased"}


def erase(lab: Lab, subject: Subject = OWN, name: str = "x") -> None:
    """Archive an erasure in every partition."""
    lab.archive(*events_of(subject, name, "somebody", PARTITIONS))


def gone(lab: Lab) -> set[str]:
    return {id_ for id_, verdict in verdicts(lab).items() if verdict == erasing.ERASED}


def told(id_: str, task: str = "t", **names: Any) -> Event:
    """A message of a run, with the word in it."""
    return event("message.added", id_, task, {"role": "user", "content": f"{WORD} {id_}"}, **names)


def started(id_: str, task: str, run: str, **names: Any) -> Event:
    data = {"goal": WORD, **names.pop("data", {})}
    return event("run.started", id_, task, data, run=run, **names)


def proposed(id_: str, **names: Any) -> Event:
    return event("memory.proposed", id_, "", {"content": WORD, "kind": "preference"}, run="", **names)


# --- whose events ----------------------------------------------------------------------------------------------------

LOG = (
    started("s1", "t1", "r1", user="u1", agent="a1", session="z1"),
    told("m1", "t1", run="r1"),  # names nobody: its run is the user's
    event("context.assembled", "c1", "t1", {"context": "c", "now": "2026-03-01T10:00:00Z", "query": WORD}, run=""),
    started("s2", "t2", "r2", user="u2", agent="a1", session="z1"),
    told("m2", "t2", run="r2", user="u2"),
    started("child", "t3", "r3", data={"parent_run": "r1"}),
    told("m3", "t3", run="r3"),
    proposed("p1", user="u1", causation="m1"),
    proposed("p2", user="u2", causation="m1"),  # derived from u1's words all the same
    proposed("p3", user="u2", causation="p2"),
    proposed("p4", user="u2", causation="m2"),
    event("settlement.degraded", "d1", "t1", {"degraded": "no_model"}, run="r1", session="z1"),
    told("other-org", "t1", run="r1", user="u1", org="elsewhere"),
)


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (OWN, {"s1", "m1", "c1", "child", "m3", "p1", "p2", "p3", "d1"}),
        (Subject("default", "user", "u2"), {"s2", "m2", "p2", "p3", "p4"}),
        (Subject("default", "agent", "a1"), {"s1", "m1", "c1", "s2", "m2", "p1", "p2", "p3", "p4", "d1"}),
        (Subject("default", "session", "z1"),
         {"s1", "m1", "c1", "s2", "m2", "child", "m3", "p1", "p2", "p3", "p4", "d1"}),
        (Subject("default", "task", "t2"), {"s2", "m2", "p4"}),
        (Subject("default", "run", "r1"), {"s1", "m1", "c1", "p1", "p2", "p3", "d1"}),
        (Subject("default", "org", "default"), {one.id for one in LOG} - {"other-org"}),
        (Subject("default", "user", "nobody"), set()),
    ],
)  # fmt: skip
def test_what_is_a_subjects(tmp_path: Path, subject: Subject, expected: set[str]) -> None:
    lab = lab_in(tmp_path)
    lab.archive(*LOG)
    counted = lab.log.read_now(lambda conn: erasing.count(conn, subject, PARTITIONS))
    assert (counted.events, gone(lab)) == (len(expected), set()), "counting changes nothing"
    erase(lab, subject)
    assert gone(lab) == expected
    (erasure,) = lab.log.read_now(erasing.read_erasures)
    assert (erasure.events, erasure.subject, erasure.by) == (len(expected), subject, "somebody")
    assert erasure.partitions.keys() == set(range(PARTITIONS)) and erasure.finished_ms is None
    lab.log.close()


def test_of_an_event_its_place_and_names_stay(lab: Lab) -> None:
    """Order, counts, duplicates and attempts hold; no word stays, of what repeats and contradicts others neither."""
    lab.archive(started("s1", "t1", "r1", user="u1", data={"attempt": 2}), told("m1", "t1", run="r1", seq=7))
    lab.archive(told("m1", "t1", run="r1", seq=7), event("message.added", "m1", "t1", {"role": "user"}, run="r1"))
    before = [(a.partition, a.position, a.type, a.event().digest) for a in whole(lab)]
    erase(lab)
    after = [a for a in whole(lab) if a.type != "scope.erased"]
    assert [(a.partition, a.position, a.type, a.event().digest) for a in after] == before
    assert WORD not in str([a.event() for a in after])
    assert [a.verdict for a in after] == [erasing.ERASED, erasing.ERASED, "duplicate_of", "conflict_with"]
    attempts, seqs = lab.log.read_now(
        lambda conn: (
            queries.read_attempts(conn, [("default", "t1")]),
            queries.read_last_seqs(conn, [("default", "t1", "r1")]),
        )
    )
    assert attempts == {("default", "t1"): [(2, "r1")]} and list(seqs.values()) == [7]


def test_what_comes_after_an_erasure_brings_nothing_back(lab: Lab) -> None:
    """Late words of an erased run, answers to erased events, and records of its task; new runs count."""
    lab.archive(started("s1", "t1", "r1", user="u1"), told("m1", "t1", run="r1"), proposed("p0", user="u3"))
    erase(lab)
    lab.archive(
        told("late", "t1", run="r1"), proposed("answer", user="u2", causation="m1"),
        proposed("next", user="u2", causation="answer"), proposed("apart", user="u2", causation="p0"),
        event("context.assembled", "c1", "t1", {"context": "c", "now": "2026-03-01T10:00:00Z"}, run=""),
    )  # fmt: skip
    assert gone(lab) == {"s1", "m1", "late", "answer", "next", "c1"}
    lab.archive(started("s2", "t1", "r2", user="u1", data={"attempt": 2}), told("m2", "t1", run="r2"))
    lab.archive(event("context.assembled", "c2", "t1", {"context": "c", "now": "2026-03-01T10:00:00Z"}, run=""))
    assert not gone(lab) & {"s2", "m2", "c2", "apart"}
    erase(lab, name="again")
    assert gone(lab) == {"s1", "m1", "late", "answer", "next", "c1", "s2", "m2", "c2"}


def test_what_is_erased_and_sent_again_says_nothing(lab: Lab) -> None:
    """The log remembers ids for a while, and publishers try again for longer."""
    lab.archive(own := proposed("p1", user="u1"), other := proposed("p2", user="u2"))
    erase(lab)
    lab.archive(own, structs.replace(own, data=f'{{"content":"other {WORD}"}}', digest="another"), other)
    of_own, of_other = ([a for a in whole(lab) if a.event().id == one.id] for one in (own, other))
    assert [a.verdict for a in of_own] == [erasing.ERASED, "duplicate_of", "conflict_with"]
    assert {a.event().data for a in of_own} == {"{}"}
    assert [a.event().data for a in of_other] == [other.data] * 2


def test_an_answer_that_comes_before_the_erasure_has_come_to_what_it_answers(lab: Lab) -> None:
    """Partitions are archived one by one: an erased run is known in all of them from the first on."""
    lab.archive(started("s1", "t1", "r1", user="u1"), told("m1", "t1", run="r1"))
    first = whole(lab)[0].partition
    answers = (proposed("answer", user=f"u{n}", causation="m1") for n in range(2, 99))
    answer = next(one for one in answers if partition_of(one.org, one.key, PARTITIONS) != first)
    other = partition_of(answer.org, answer.key, PARTITIONS)
    events = events_of(OWN, "x", "", PARTITIONS)
    lab.archive(events[other])
    lab.archive(answer)
    lab.archive(*events)
    assert gone(lab) == {"s1", "m1", "answer"}


def test_an_erasure_asked_for_again_is_the_same(lab: Lab) -> None:
    lab.archive(*LOG)
    erase(lab)
    erase(lab)
    assert len(lab.log.read_now(lambda conn: conn.execute(select(erasures)).all())) == PARTITIONS


# --- folds -----------------------------------------------------------------------------------------------------------


class Live:
    """A generation that is folded as it goes."""

    def __init__(self, lab: Lab, projection: Projection = TOY) -> None:
        self.lab = lab
        ensure_first_generation(projection, lab.stores, lab.log, "w")
        active = lab.log.read_now(lambda conn: generations.active(conn, projection.name))
        assert active is not None
        self.store = GenerationStore(projection, lab.stores.generation(active.name))
        source = ArchiveSource(lab.log)
        self.folders = [PartitionFolder.take_over(self.store, source, p, "w", batch=3) for p in range(PARTITIONS)]

    def fold(self, steps: int = 10_000) -> None:
        for folder in self.folders:
            for _ in range(steps):
                if not folder.step().read:
                    break

    def check(self) -> None:
        """The rows are those of a log in which what is erased never was, and of a refold."""
        effective: dict[int, Sequence[Any]] = {
            p: [(a.position, a.event()) for a in whole(self.lab) if a.partition == p and a.verdict == "effective"]
            for p in range(PARTITIONS)
        }
        assert dump(self.store.db) == naive(effective)
        found = verify(TOY, self.lab.stores, self.lab.log)
        assert found.equal, found.first_differences


@pytest.fixture
def live(lab: Lab) -> Iterator[Live]:
    one = Live(lab)
    yield one
    one.store.db.close()


def hazards(rng: random.Random, count: int) -> list[Event]:
    """Events of two users in tasks that they share: notes, calls, poison, discards, and what waits behind them."""
    events = []
    for number in range(count):
        task, user = f"t{rng.randrange(4)}", f"u{rng.randrange(2)}"
        who = {"run": f"r-{task}-{user}", "user": user}
        events.append(
            rng.choice([
                note(f"n{number}", task, f"k{rng.randrange(3)}", {"w": WORD if user == "u1" else number}, **who),
                event("tool.called", f"c{number}", task, {"call_id": "c", "name": "x", "arguments": WORD}, **who),
                note(f"bad{number}", task, "poison", **who) if rng.random() < 0.2 else told(f"m{number}", task, **who),
            ])
        )  # fmt: skip
    bad = [one for one in events if one.id.startswith("bad")]
    return events + [discard(f"d{one.id}", one.task, one.id) for one in bad[::2]]


@pytest.mark.parametrize("seed", range(2))
def test_folds_that_saw_the_words_and_folds_that_did_not_come_to_the_same(lab: Lab, live: Live, seed: int) -> None:
    """Whatever was folded when the erasure came; poison and what waits behind it included."""
    rng = random.Random(seed)
    for round_ in range(3):
        lab.archive(*hazards(random.Random(f"{seed}/{round_}"), 12))
        live.fold(rng.choice([0, 1, 2, 9]))
        if round_ == 1:
            erase(lab)
            live.fold(rng.choice([0, 1]))
    erase(lab, name="second")
    live.fold()
    live.check()
    assert WORD not in str(dump(live.store.db))


def test_owners_change_where_rows_vanish(lab: Lab, live: Live) -> None:
    """Whoever keeps rows in memory sees that they are to be read anew; the owner goes on."""
    lab.archive(*LOG)
    live.fold()
    before = [folder.claim.owner_epoch for folder in live.folders]
    erase(lab)
    live.fold()
    lab.archive(note("after", "t9", "k"), note("after2", "t1", "k"))
    live.fold()
    assert [folder.claim.owner_epoch for folder in live.folders] == [epoch + 1 for epoch in before]
    live.check()


def test_a_check_before_the_erasure_is_folded_says_so(lab: Lab, live: Live) -> None:
    lab.archive(note("n", "t", "k", WORD, user="u1"))
    live.fold()
    erase(lab)
    with pytest.raises(Transient, match="has not come to an erasure yet"):
        verify(TOY, lab.stores, lab.log)
    live.fold()
    live.check()


def test_a_projection_may_handle_the_erasure_itself(lab: Lab) -> None:
    """It is folded once in each partition, after the keys were made anew."""
    own = Live(lab, replace(TOY, name="own", handles=TOY.handles | {"scope.erased"}))
    lab.archive(note("n", "t", "k", WORD, user="u1"))
    own.fold()
    erase(lab)
    own.fold()
    counted = [(key, events) for _, key, events, *_ in dump(own.store.db)["tallies"]]
    assert counted == [(f"partition/{p}", 1) for p in range(PARTITIONS)]
    own.store.db.close()
