"""Which events are a subject's: what an erasure takes, counted ahead or blanked.

====================  ==============================================================================================
of a subject          are the events that
====================  ==============================================================================================
user, session, task   name it, or have its key; those of its runs, under any key
run                   are of it
agent                 have its key; those of its runs (not what other scopes were told beside it)
org                   are of the organisation, all of them
====================  ==============================================================================================

A run is a user's, an agent's, a session's when its ``run.started`` says so; when that names none, or is not there, when
any of its events does. A run that it began, and that names nobody, is one, too. With a run goes what names no run and
stands under the key of its task (a context, say), and whatever was derived from it: what it caused, and what that
caused. Experiences and beliefs of agents and of the organisation hold no words and stay: what the run was evidence of
is taken back from them (the forgetter).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import orjson
from sqlalchemy import ColumnElement, Connection, Select, TextClause, and_, or_, select, true, tuple_

from events.archive.schema import IS_RUN_START, OF_A_RUN, event_ids, event_log
from events.event import Position
from events.keys import task_key
from events.types.system import Erasable

ERASURE = "scope.erased"
DEPTH = 8
"""Causes that are followed back, at most: a run's end, a proposal, a decision are three."""

_Run = tuple[str, str]
"""(task, run)."""


class Subject(NamedTuple):
    """Whose events: a level (see above), and its name within an organisation."""

    org: str
    level: Erasable
    name: str

    @property
    def key(self) -> str:
        """The partition key of the same name; of a run, the key of what names no task."""
        return "org" if self.level == "org" else f"{'task' if self.level == 'run' else self.level}/{self.name}"

    def named(self) -> ColumnElement[bool]:
        """The events that are its own by what they name."""
        table = event_log.c
        match self.level:
            case "org":
                return true()
            case "run":
                return table.run == self.name
            case "agent":
                return table.key == self.key
            case _:
                return or_(table[self.level] == self.name, table.key == self.key)


class Named(NamedTuple):
    """An event by what it names, without what it says."""

    epoch: int
    n: int
    verdict: str
    type: str
    key: str
    task: str
    run: str
    causation: str
    correlation: str


_NAMES = tuple(event_log.c[name] for name in Named._fields)


@dataclass
class Selection:
    """The events of a subject, partition by partition, and the runs that are its own."""

    conn: Connection
    subject: Subject
    _origins: dict[str, bool] = field(default_factory=dict)

    @cached_property
    def runs(self) -> set[_Run]:
        """The (task, run) that are the subject's."""
        return set(_runs(self.conn, self.subject))

    def of(self, partition: int, before: Position | None = None) -> list[Named]:
        """The subject's events in a partition (before a position), with those that repeat or contradict others."""
        here = and_(
            event_log.c.partition == partition, event_log.c.org == self.subject.org, event_log.c.type != ERASURE
        )
        if before is not None:
            here = and_(here, tuple_(event_log.c.epoch, event_log.c.n) < tuple_(*before))
        found = {(one.epoch, one.n): one for one in self._select(partition, here)}
        return [found[place] for place in sorted(found)]

    def _select(self, partition: int, here: ColumnElement[bool]) -> Iterator[Named]:
        yield from _read(self.conn, here, self.subject.named())
        if self.subject.level == "org":
            return
        for task, run in self._runs_in.get(partition, ()):
            yield from _read(self.conn, here, OF_A_RUN, event_log.c.run == run, event_log.c.task == task)
        for task in self._tasks_in.get(partition, ()):
            yield from _read(self.conn, here, event_log.c.key == task_key(task), event_log.c.run == "")
        if self.runs:
            derived = _read(self.conn, here, event_log.c.causation != "", event_log.c.run == "")
            yield from (one for one in derived if not _holds_no_words(one) and self._is_of_a_run(one.causation))

    @cached_property
    def _runs_in(self) -> Mapping[int, Sequence[_Run]]:
        """For each partition the runs that have events there: of thousands, each is in one or two."""
        found: defaultdict[int, list[_Run]] = defaultdict(list)
        for task, run in sorted(self.runs):
            query = self._partitions(OF_A_RUN, event_log.c.run == run, event_log.c.task == task).distinct()
            for partition in self.conn.execute(query).scalars():
                found[partition].append((task, run))
        return found

    @cached_property
    def _tasks_in(self) -> Mapping[int, Sequence[str]]:
        """For each partition the tasks of the runs whose key is there: a key is in one."""
        found: defaultdict[int, list[str]] = defaultdict(list)
        for task in sorted({task for task, _ in self.runs}):
            for partition in self.conn.execute(self._partitions(event_log.c.key == task_key(task)).limit(1)).scalars():
                found[partition].append(task)
        return found

    def _partitions(self, *where: ColumnElement[bool] | TextClause) -> Select[Any]:
        return select(event_log.c.partition).where(event_log.c.org == self.subject.org, *where)

    def _is_of_a_run(self, event_id: str) -> bool:
        """Whether an event is of one of the runs, or what it was derived from is."""
        seen: list[str] = []
        cause, answer = event_id, False
        while cause and len(seen) < DEPTH:
            if cause in self._origins:
                answer = self._origins[cause]
                break
            seen.append(cause)
            events = list(caused_by(self.conn, self.subject.org, cause))
            answer = any((one.task, one.run) in self.runs for one in events)
            cause = "" if answer else next((one.causation for one in events if one.causation), "")
        self._origins.update(dict.fromkeys(seen, answer))
        return answer


def caused_by(conn: Connection, org: str, event_id: str) -> Iterable[Named]:
    """The events of an id in an organisation, under whatever key."""
    place = and_(
        event_log.c.partition == event_ids.c.partition,
        event_log.c.epoch == event_ids.c.epoch,
        event_log.c.n == event_ids.c.n,
    )
    query = select(*_NAMES).join_from(event_ids, event_log, place)
    rows = conn.execute(query.where(event_ids.c.id == event_id, event_ids.c.org == org))
    return [Named(*row) for row in rows]


def _holds_no_words(one: Named) -> bool:
    """Counts and rules of agents and of the organisation: by them the forgetter knows what it has to take back."""
    learned = one.type == "experience.recorded" or one.type.startswith("belief.")
    return learned and (one.key == "org" or one.key.startswith("agent/"))


def _read(conn: Connection, *where: Any) -> Iterator[Named]:
    return (Named(*row) for row in conn.execute(select(*_NAMES).where(*where)))


def _runs(conn: Connection, subject: Subject) -> Iterator[_Run]:
    """The runs of a subject; see the module."""
    table, level = event_log.c, subject.level
    if level == "org":
        return
    member = table.run if level == "run" else table.task if level == "task" else table[level]
    found: set[_Run] = set()
    for task, run in conn.execute(
        select(table.task, table.run).where(table.org == subject.org, OF_A_RUN, member == subject.name).distinct()
    ):
        if level in ("run", "task") or set(_names(conn, subject, member, task, run)) <= {subject.name}:
            found.add((task, run))
    yield from found
    if level in ("user", "session"):
        yield from _begun_by(conn, subject, member, found)


def _begun_by(conn: Connection, subject: Subject, member: ColumnElement[str], runs: Collection[_Run]) -> Iterator[_Run]:
    """The runs that these began, and those that they began, as far as they name nobody of their own."""
    table = event_log.c
    query = select(table.task, table.run, table.data).where(table.org == subject.org, IS_RUN_START, member == "")
    children: dict[str, list[_Run]] = {}
    for task, run, data in conn.execute(query):
        children.setdefault(orjson.loads(data).get("parent_run", ""), []).append((task, run))
    seen, waiting = set(runs), [run for _, run in runs]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in seen:
                seen.add(child)
                waiting.append(child[1])
                yield child


def _names(conn: Connection, subject: Subject, member: ColumnElement[str], task: str, run: str) -> Sequence[str]:
    """Whose a run is as its ``run.started`` says; nobody's, where that names none."""
    query = select(member).where(
        event_log.c.org == subject.org, OF_A_RUN, event_log.c.run == run, event_log.c.task == task, IS_RUN_START
    )
    return [name for name in conn.execute(query).scalars() if name]
