"""A projector has folded words, and then an erasure came: it makes the keys anew, or dies or sleeps on the way."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection

from events.archive import queries
from events.archive.subjects import Subject
from events.event import START, Event, Position
from projections import generations
from projections.rebuilding.verify import verify
from services.erasing.asking import events_of
from tests.chaos.projector_world import ProjectorWorld
from tests.contracts.engine_lab import PARTITIONS, TOY, Lab, dump, event, naive, note

WORD = "zebrafish"


def said() -> list[Event]:
    """Two users' events in the same tasks, one of them poison with what waits behind it."""
    events = []
    for number in range(4):
        task, own, other = f"t{number}", {"run": f"own{number}", "user": "u1"}, {"run": f"r{number}", "user": "u2"}
        events += [note(f"o{number}", task, "k", WORD, **own), note(f"n{number}", task, "k2", number, **other)]
        events += [note(f"p{number}", task, WORD, "x", **own)]
    events += [note("bad", "t1", "poison", run="own1", user="u1"), note("waits", "t1", "k3", run="r1", user="u2")]
    return [*events, event("tool.returned", "c", "t2", {"call_id": "c", "result": WORD}, run="own2", user="u1")]


class ErasingWorld(ProjectorWorld):
    """The victim is a projector that comes to an erasure; another one goes on for it."""

    def make_template(self) -> None:
        lab = Lab(self.stores())
        lab.archive(*said())
        self.project()
        lab.archive(*events_of(Subject("default", "user", "u1"), "x", "", PARTITIONS), note("last", "t3", "k4"))
        lab.log.close()

    def check(self) -> None:
        """No word is left, what waited is folded, and all is as if the words had never been."""
        self.expire_leases()
        self.project()
        lab = Lab(self.stores())
        logs = lab.log.read_now(_effective)
        active = lab.log.read_now(lambda conn: generations.active(conn, TOY.name))
        assert active is not None
        db = lab.stores.generation(active.name)
        rows = dump(db)
        assert rows == naive(logs)
        assert WORD not in str(rows) and "waits" in str(logs)
        found = verify(TOY, lab.stores, lab.log)
        assert found.equal, found.first_differences
        db.close()
        lab.log.close()


def _effective(conn: Connection) -> Mapping[int, list[tuple[Position, Event]]]:
    return {
        p: [(a.position, a.event()) for a in queries.read_log(conn, p, START, 1000) if a.verdict == "effective"]
        for p in range(PARTITIONS)
    }


WORLD = ErasingWorld
