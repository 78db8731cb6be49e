"""What a closed log still holds behind the archive's watermark, and what of it goes over into the next epoch.

Nobody was answered for these entries, and some may be old: a server that was rewound, or that comes back after another
one took its place, holds what nobody waits for any more. So each is judged as append judges an event, against what the
archive knows of its id, its task's attempts and its run's numbers; what is refused is kept, with its reason, as ever.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import orjson
from sqlalchemy import Connection, func, select

from events.archive import queries, store
from events.archive.refusals import Refusal, refusal_of
from events.archive.schema import refused_events
from events.clock import now_ms
from events.codec import to_cloudevent
from events.database import Database
from events.event import Event, Position
from events.keys import partition_of, task_key
from events.log.client import AnyRedis, ask
from events.log.layout import SEPARATOR, keys_of
from events.log.log import attempt_told
from events.log.tail import scan

SOURCE = "recovery"
"""The way in that refusals of recovery name."""

Task = tuple[str, str]
"""(org, task)"""
Run = tuple[str, str, str]
"""(org, task, run)"""

_LATEST_REFUSALS = 20_000
_NO_ATTEMPT = (0, "")
_LOST = "-1"


@dataclass
class Memory:
    """What append must know of tasks and runs, in the words of ``layout``: attempts, numbers, and who lost."""

    latest: dict[Task, tuple[int, str]] = field(default_factory=dict)
    starts: dict[Run, int] = field(default_factory=dict)
    seqs: dict[Run, int] = field(default_factory=dict)
    losers: set[Run] = field(default_factory=set)

    def learn(self, attempts: Mapping[Task, Sequence[tuple[int, str]]], seqs: Mapping[Run, int]) -> None:
        """Take in what the archive knows of some tasks and runs."""
        for (org, task), started in attempts.items():
            self.latest[org, task] = max(started, key=lambda start: start[0], default=_NO_ATTEMPT)
            for attempt, run in started:
                name = (org, task, run)
                self.starts[name] = max(attempt, self.starts.get(name, 0))
        self.seqs.update(seqs)

    def judge(self, event: Event, *, acknowledged: bool = False) -> str:
        """Take the event in and answer an empty text, or say why append would refuse it.

        The same rules as in ``append.lua``; one that was ``acknowledged`` is taken in whatever they say.
        """
        if not of_a_run(event):
            return ""
        run, attempt = (event.org, event.task, event.run), attempt_told(event)
        why = "" if acknowledged else self._refusal(run, attempt, event.seq)
        if why:
            return why
        if attempt > 0:
            self.latest[run[:2]], self.starts[run] = (attempt, event.run), attempt
            self.losers.discard(run)
        if event.seq:
            self.seqs[run] = event.seq
        return ""

    def lose(self, run: Run) -> None:
        """Note that a run wanted to start while another one had its task; one that has started did not lose."""
        if self.latest.get(run[:2], _NO_ATTEMPT)[0] > 0 and not self.starts.get(run):
            self.losers.add(run)

    def fields(self) -> dict[str, str]:
        """The fields of the ``seen`` hashes that say so."""
        told: dict[str, str] = {}
        for task, (attempt, winner) in self.latest.items():
            told["a" + SEPARATOR.join(task)] = f"{attempt}{SEPARATOR}{winner}"
        told |= {"r" + SEPARATOR.join(run): str(attempt) for run, attempt in self.starts.items()}
        told |= {"r" + SEPARATOR.join(run): _LOST for run in self.losers}
        told |= {"s" + SEPARATOR.join(run): str(seq) for run, seq in self.seqs.items()}
        return told

    def _refusal(self, run: Run, attempt: int, seq: int) -> str:
        latest, winner = self.latest.get(run[:2], _NO_ATTEMPT)
        mine = self.starts.get(run, 0)
        if attempt > 0 and attempt != latest + 1:
            self.lose(run)
            return f"attempt {latest} of its task is run {winner!r}"
        if attempt > 0 and mine > 0:
            return f"its run is attempt {mine} already"
        if attempt == 0 and run[2] != winner and (run in self.losers or 0 < mine < latest):
            return f"its run was superseded by run {winner!r}"
        expected = self.seqs.get(run, 0) + 1
        if seq > 0 and seq != expected:
            return f"seq {seq} does not follow: {expected} is expected"
        return ""


def of_a_run(event: Event) -> bool:
    """Whether attempts and numbers concern the event: they are kept where the run's task lives."""
    return bool(event.run) and event.key == task_key(event.task)


@dataclass
class Survey:
    """What recovery tells the script, and the list of refused events.

    ``skipped``: entries that stay behind, by id, and why: ``foreign`` (no reader could decode it), ``archived`` (the
    archive has it, or an entry before it is the same event) or ``refused``. ``seeds``: fields of the ``seen`` hashes.
    """

    skipped: dict[str, str] = field(default_factory=dict)
    seeds: dict[str, str] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)


async def survey(
    redis: AnyRedis,
    db: Database,
    partition: int,
    ends: Mapping[int, int],
    archived_once: Position,
    keep: Callable[[], Awaitable[None]],
) -> Survey:
    """Judge what the closed log of a partition holds behind its ``ends``: the n at which the archive ended each epoch.

    Up to ``archived_once`` its epoch was archived already: what is not in the archive any more, because that came from
    a backup, was acknowledged, and goes over whatever is missing before it. ``keep`` is called now and then: the work
    goes on. Raises Transient.
    """
    found, memory, seen = Survey(), Memory(), set[tuple[str, str, str]]()
    losers = await db.read(lambda conn: _recent_losers(conn, partition))
    await _learn(db, memory, losers)
    for run in losers:
        memory.lose(run)
    async for batch in _behind(redis, partition, ends):
        await keep()
        events = [event for _, event in batch if event is not None]
        archived = await db.read(lambda conn: queries.read_ids(conn, [_identity(e) for e in events]))  # noqa: B023
        await _learn(db, memory, {(e.org, e.task, e.run) for e in events if of_a_run(e)})
        for entry_id, event in batch:
            if event is None:
                found.skipped[entry_id] = "foreign"
            elif _identity(event) in archived or _identity(event) in seen:
                found.skipped[entry_id] = "archived"
            elif why := memory.judge(event, acknowledged=_is_within(entry_id, archived_once)):
                found.skipped[entry_id] = "refused"
                found.refusals.append(_refused(event, why))
            else:
                seen.add(_identity(event))
    found.seeds = memory.fields()
    return found


async def _behind(
    redis: AnyRedis, partition: int, ends: Mapping[int, int]
) -> AsyncIterator[list[tuple[str, Event | None]]]:
    """The entries that stand behind the watermark, and those that are none of ours, in order."""
    keys = keys_of(partition)
    for key in (keys.aside, keys.log):
        kind = await ask(redis, key, lambda node: node.type(key))  # noqa: B023
        if kind != b"stream":
            continue
        async for batch in scan(redis, key):
            yield [(entry_id, event) for entry_id, event in batch if event is None or _is_behind(entry_id, ends)]
        return  # beside a log that was put aside, the other one is an unfinished copy of it


def _is_behind(entry_id: str, ends: Mapping[int, int]) -> bool:
    epoch, _, n = entry_id.partition("-")
    return int(n) > ends.get(int(epoch), -1)


def _is_within(entry_id: str, mark: Position) -> bool:
    """Whether an entry stands in the epoch of ``mark``, and not behind it."""
    epoch, _, n = entry_id.partition("-")
    return int(epoch) == mark.epoch and int(n) <= mark.n


async def _learn(db: Database, memory: Memory, runs: Iterable[Run]) -> None:
    """Look up what memory does not know yet of these runs and their tasks."""
    named = sorted(runs)
    tasks = sorted({run[:2] for run in named} - memory.latest.keys())
    fresh = [run for run in named if run not in memory.seqs]

    def work(conn: Connection) -> None:
        attempts = queries.read_attempts(conn, tasks)
        memory.learn({task: attempts.get(task, []) for task in tasks}, dict.fromkeys(fresh, 0))
        memory.seqs.update(queries.read_last_seqs(conn, fresh))

    if named:
        await db.read(work)


def _recent_losers(conn: Connection, partition: int) -> set[Run]:
    """The runs whose ``run.started`` lost, by the newest of the refused events."""
    partitions = store.partition_count(conn) or 1
    table = refused_events.c
    newest = conn.execute(select(func.max(table.number))).scalar() or 0
    query = select(table.raw).where(
        table.number > newest - _LATEST_REFUSALS, table.code == "attempt_conflict", table.event_type == "run.started"
    )
    losers = set()
    for (raw,) in conn.execute(query):
        # a long text was cut; the data come last
        head, _, _ = raw.partition(',"data":')
        try:
            named = orjson.loads(head + "}" if head != raw else raw)
            run = (named["org"], named.get("task", named["run"]), named["run"])
        except (ValueError, KeyError):
            continue
        if partition_of(run[0], task_key(run[1]), partitions) == partition:
            losers.add(run)
    return losers


def _identity(event: Event) -> tuple[str, str, str]:
    return event.org, event.key, event.id


def _refused(event: Event, why: str) -> Refusal:
    return refusal_of(
        to_cloudevent(event), org=event.org, source=SOURCE, code="not_carried_over", field="",
        reason=f"Redis lost its place before this event was durable, and by now {why}", received_ms=now_ms(),
    )  # fmt: skip
