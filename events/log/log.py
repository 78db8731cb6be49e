"""Append to the log: the only way into a stream. One script call a partition and batch judges, numbers and remembers.

The outcome of a call whose connection broke is unknown; the caller sends the same events again, and their ids tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from events.bounded import map_bounded
from events.codec import to_fields
from events.errors import Fenced, LogFull
from events.event import Event, Position
from events.keys import partition_of, task_key
from events.log.arrivals import ring
from events.log.client import AnyRedis
from events.log.layout import SEPARATOR, Keys, keys_of
from events.log.scripts import Script
from events.registry import FROM_OUTSIDE
from events.types.run import AttemptOfRun, GivenUp
from events.types.tools import LateResult

Status = Literal["stored", "duplicate", "conflict", "seq_conflict", "attempt_conflict", "superseded", "speaks"]

WATCHDOG = "refold/watchdog"
"""The source of ends that nobody but the watchdog saw: of runs that a newer attempt has replaced, too.

Such an end is stored only while nothing stands in the log behind the position that it was judged by (``seen_to``) that
is a sign of its run's life.
"""

WINDOW = 100_000
"""Entries (ids, attempts, sequence numbers) after which the two hashes of a partition change places."""
LIMIT = 4 * WINDOW
"""Entries that a hash may hold while the archive is behind; then publishing waits."""

MAX_CALL, MAX_CALL_CHARS = 1_000, 4_000_000
"""Events of one script call, and characters of their data: a script holds up the whole server while it runs."""

_STRICT = -2
"""In place of an attempt: an event that builds upon the one before it."""

_SCRIPT = Script("append")
_pack = msgspec.msgpack.Encoder().encode


class Found(Protocol):
    """Where the archive holds an id first, and its content digest."""

    @property
    def position(self) -> Position:
        """Position of the first event with that id."""
        ...

    @property
    def digest(self) -> str:
        """Its content digest."""
        ...


class History(Protocol):
    """What append asks the archive about what the log has forgotten. Absent from an answer: never happened."""

    async def log_id(self) -> str:
        """The identity of the log. Asked once."""
        ...

    async def ids(self, partition: int, wanted: Sequence[tuple[str, str, str]]) -> Mapping[tuple[str, str, str], Found]:
        """By (org, key, id), where each archived event stands first."""
        ...

    async def tasks(self, wanted: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], Sequence[tuple[int, str]]]:
        """By (org, task), the (attempt, run) of each ``run.started``."""
        ...

    async def last_seqs(self, wanted: Sequence[tuple[str, str, str]]) -> Mapping[tuple[str, str, str], int]:
        """By (org, task, run), the highest ``seq``."""
        ...


class Appended(msgspec.Struct, frozen=True, gc=False):
    """What became of one event.

    ``position`` is the event's own when stored, the first one's when duplicate or conflict, else None. ``message``
    says what is wrong and what to do; it is empty for stored and duplicate. Where an attempt conflicts or was
    superseded, ``winner`` is the run that holds the task and ``attempt`` its number.
    """

    event: Event
    status: Status
    partition: int
    position: Position | None = None
    message: str = ""
    winner: str = ""
    attempt: int = 0


class Log:
    """The append side of the whole log.

    ``redis`` must leave responses as bytes. ``window`` and ``limit`` (default: 4 windows) bound what a partition
    remembers in Redis (see ``WINDOW`` and ``LIMIT``): about 110 bytes an entry, at most ``window + limit`` of them.
    """

    def __init__(
        self, redis: AnyRedis, partitions: int, history: History, *, window: int = WINDOW, limit: int | None = None
    ) -> None:
        self._redis = redis
        self._partitions = partitions
        self._history = history
        self._window = window
        self._limit = 4 * window if limit is None else limit
        self._keys = [keys_of(partition) for partition in range(partitions)]
        self._log_id = ""

    async def append(self, events: Sequence[Event]) -> list[Appended]:
        """Append events; outcomes in the same order. Events of one partition keep their order, partitions run at once.

        Raises Fenced when a partition needs recovery, LogFull when the archive is too far behind, Transient when Redis
        or the archive cannot be asked, SetupError when Redis refuses. Then some partitions' events may be stored: send
        the same events again.
        """
        groups: dict[int, list[int]] = {}
        partition_by_key: dict[tuple[str, str], int] = {}
        for index, event in enumerate(events):
            place = (event.org, event.key)
            if place not in partition_by_key:
                partition_by_key[place] = partition_of(event.org, event.key, self._partitions)
            groups.setdefault(partition_by_key[place], []).append(index)
        if len(groups) == 1:
            return await self._append_to(next(iter(groups)), events)
        answers = await map_bounded(
            lambda group: self._append_to(group[0], [events[i] for i in group[1]]), groups.items()
        )
        outcomes: list[Appended | None] = [None] * len(events)
        for indexes, answer in zip(groups.values(), answers, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            for index, outcome in zip(indexes, answer, strict=True):
                outcomes[index] = outcome
        return [outcome for outcome in outcomes if outcome is not None]

    async def _append_to(self, partition: int, events: Sequence[Event]) -> list[Appended]:
        appended: list[Appended] = []
        for part in _calls(events):
            epoch, outcomes = await self._call(partition, part)
            results = [_outcome(e, partition, epoch, o) for e, o in zip(part, outcomes, strict=True)]
            appended += await self._again(partition, await self._recall(partition, results))
        return appended

    async def _again(self, partition: int, results: list[Appended]) -> list[Appended]:
        """What followed a number that was refused at first, and turned out to be an old event, is judged anew."""
        again = _misjudged(results)
        if again:
            anew = await self._append_to(partition, [results[index].event for index in again])
            for index, result in zip(again, anew, strict=True):
                results[index] = result
        return results

    async def _call(self, partition: int, events: Sequence[Event]) -> tuple[int, list[Any]]:
        """The script's outcomes; a second call brings along what the first one needed from the archive."""
        keys: Keys = self._keys[partition]
        self._log_id = self._log_id or await self._history.log_id()
        arguments = _arguments(events)
        turn, seeds = -1, dict[str, str]()
        while True:
            options = (self._window, self._limit, turn, self._log_id)
            answer = await _SCRIPT.run(self._redis, keys[:4], _pack(options), _pack(seeds), *arguments)
            match answer:
                case [b"OK", epoch, outcomes]:
                    await ring(self._redis, partition)
                    return int(epoch), outcomes
                case [b"NEED", asked_at, fields]:
                    turn, seeds = asked_at, await self._seeds([field.decode() for field in fields])
                case [b"FULL", entries]:
                    raise LogFull(
                        f"partition {partition} remembers {entries:,} entries that the archive does not hold yet; "
                        "publish again when the archiver has caught up",
                        partition=partition,
                    )
                case [b"FENCED", why]:
                    raise Fenced(
                        f"partition {partition} is closed until recovery has opened it again: {why.decode()}",
                        partition=partition,
                    )
                case _:
                    raise TypeError(f"the append script answered {answer!r:.200}")

    async def _seeds(self, fields: Iterable[str]) -> dict[str, str]:
        """The values of forgotten fields, from the archive (``layout`` tells their form)."""
        named = [(field, tuple(field[1:].split(SEPARATOR))) for field in fields]
        tasks = {(names[0], names[1]) for field, names in named if field[0] in "ar"}
        runs = {(names[0], names[1], names[2]) for field, names in named if field[0] == "s"}
        attempts = await self._history.tasks(sorted(tasks)) if tasks else {}
        seqs = await self._history.last_seqs(sorted(runs)) if runs else {}
        seeds = {}
        for field, names in named:
            started = attempts.get((names[0], names[1]), [])
            if field[0] == "a":
                attempt, run = max(started, key=lambda start: start[0], default=(0, ""))
                seeds[field] = f"{attempt}{SEPARATOR}{run}"
            elif field[0] == "r":
                seeds[field] = str(max((attempt for attempt, run in started if run == names[2]), default=0))
            else:
                seeds[field] = str(seqs.get((names[0], names[1], names[2]), 0))
        return seeds

    async def _recall(self, partition: int, results: list[Appended]) -> list[Appended]:
        """A refused event may be an old one whose id the window has forgotten: then it is a duplicate."""
        wanted = [_identity(r.event) for r in results if r.position is None]
        if not wanted:
            return results
        found = await self._history.ids(partition, wanted)
        return [_known(r, found[_identity(r.event)]) if _identity(r.event) in found else r for r in results]


def _calls(events: Sequence[Event]) -> Iterator[Sequence[Event]]:
    """The batch in parts that one script call can take; usually there is one."""
    start, chars = 0, 0
    for index, event in enumerate(events):
        chars += len(event.data)
        if index > start and (index - start == MAX_CALL or chars > MAX_CALL_CHARS):
            yield events[start:index]
            start, chars = index, len(event.data)
    if start < len(events):
        yield events[start:]


def _identity(event: Event) -> tuple[str, str, str]:
    return event.org, event.key, event.id


def _known(refused: Appended, first: Found) -> Appended:
    if refused.position is not None:
        return refused
    if first.digest == refused.event.digest:
        return Appended(refused.event, "duplicate", refused.partition, first.position)
    return _conflict(refused.event, refused.partition, first.position)


def _misjudged(results: Sequence[Appended]) -> list[int]:
    """Which events of a thread were refused for what precedes them, while that is an old one sent again."""
    old: set[tuple[str, str]] = set()
    found = []
    for index, result in enumerate(results):
        thread = (result.event.org, result.event.run)
        if attempt_told(result.event) != _STRICT:
            continue
        if result.status == "duplicate":
            old.add(thread)
        elif result.status == "seq_conflict" and thread in old:
            found.append(index)
    return found


def attempt_told(event: Event) -> int:
    """What the script is told of attempts: the attempt that starts, 0 to check the run's, -1 not to.

    -2 for an event of a thread, which has no attempts: there an event builds upon the one before.
    """
    kind = event.type
    if kind.startswith("thread."):
        return _STRICT
    if kind == "run.started":
        return msgspec.json.decode(event.data, type=AttemptOfRun).attempt
    if kind in FROM_OUTSIDE or (kind == "run.terminated" and event.source == WATCHDOG):
        return -1
    if kind in ("tool.returned", "tool.failed") and '"late":true' in event.data:
        return -1 if msgspec.json.decode(event.data, type=LateResult).late else 0
    return 0


def _arguments(events: Sequence[Event]) -> tuple[bytes, ...]:
    """The runs and the events of a batch, packed for the script; and which events demand that their run is silent."""
    runs: dict[tuple[str, str, str], int] = {}
    packed: list[list[str | int]] = []
    silences: dict[int, Position] = {}
    for event in events:
        run, attempt, seq = 0, 0, 0
        # attempts and seq are kept where the run's task lives; what is keyed elsewhere is not counted there
        if event.run and event.key == task_key(event.task):
            run = runs.setdefault((event.org, event.task, event.run), len(runs) + 1)
            attempt, seq = attempt_told(event), event.seq
            if event.type == "run.terminated" and event.source == WATCHDOG and (seen_to := _seen_to(event)):
                silences[len(packed) + 1] = seen_to
        field = f"i{event.org}{SEPARATOR}{event.key}{SEPARATOR}{event.id}"
        packed.append([field, event.digest, run, attempt, seq, *to_fields(event)])
    arguments = _pack([(f"{org}{SEPARATOR}{task}", run) for org, task, run in runs]), _pack(packed)
    return (*arguments, _pack((silences, dict.fromkeys(FROM_OUTSIDE, True)))) if silences else arguments


def _seen_to(event: Event) -> Position | None:
    """Up to where whoever gave the run up had looked for a sign of its life."""
    text = msgspec.json.decode(event.data, type=GivenUp).seen_to
    return Position.parse(text) if text else None


def _outcome(event: Event, partition: int, epoch: int, outcome: Any) -> Appended:
    """The outcome of one event as the script told it, in words."""
    match outcome:
        case int(n):
            return Appended(event, "stored", partition, Position(epoch, n))
        case [b"duplicate", place]:
            return Appended(event, "duplicate", partition, _position(epoch, place))
        case [b"conflict", place]:
            return _conflict(event, partition, _position(epoch, place))
        case [b"seq", expected]:
            message = f"seq {event.seq} of run {event.run!r} does not follow: {expected} is expected"
            return Appended(event, "seq_conflict", partition, message=message)
        case [b"follows", refused]:
            message = f"seq {event.seq} of run {event.run!r} follows seq {refused}, which was refused"
            return Appended(event, "seq_conflict", partition, message=message)
        case [b"speaks", n]:
            message = f"run {event.run!r} is not silent: see {epoch}-{n}"
            return Appended(event, "speaks", partition, message=message)
        case [b"started", attempt]:
            message = f"run {event.run!r} is attempt {attempt} of task {event.task!r}; a new attempt is a new run"
            return Appended(
                event, "attempt_conflict", partition, message=message, winner=event.run, attempt=int(attempt)
            )
        case [b"attempt", 0, _]:
            message = f"task {event.task!r} has not started: its first attempt is 1"
            return Appended(event, "attempt_conflict", partition, message=message)
        case [b"attempt", latest, winner]:
            message = (
                f"attempt {latest} of task {event.task!r} is run {winner.decode()!r}: "
                f"the next one is attempt {latest + 1}"
            )
            return Appended(
                event, "attempt_conflict", partition, message=message, winner=winner.decode(), attempt=latest
            )
        case [b"superseded", latest, winner]:
            message = (
                f"run {event.run!r} was superseded by run {winner.decode()!r} (attempt {latest} of task "
                f"{event.task!r}); only late results of its tool calls are taken, marked `late: true`"
            )
            return Appended(event, "superseded", partition, message=message, winner=winner.decode(), attempt=latest)
        case _:
            raise TypeError(f"the append script answered {outcome!r:.200}")


def _position(epoch: int, place: int | bytes) -> Position:
    """Where the log has it: n in the open epoch, or a whole position."""
    return Position(epoch, place) if isinstance(place, int) else Position.parse(place)


def _conflict(event: Event, partition: int, first: Position) -> Appended:
    message = f"id {event.id!r} is taken by another event, at {first}: the same id must have the same content"
    return Appended(event, "conflict", partition, first, message)
