"""Publish: through the door, onto the log, and an answer when the archive has it. What every way in calls.

An event counts as durable when the archive holds its id. Until then its position is provisional: recovery can void it
(the log was lost behind the watermark), and then the event is appended again, by itself, under the same id.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from sqlalchemy import Connection

from events.archive import store
from events.archive.erasing import erased_among, erased_positions
from events.archive.queries import read_epochs, read_ids
from events.archive.reader import Archive
from events.archive.refusals import Refusal, keep_refusals, refusal_of
from events.archive.watch import Watermarks
from events.bounded import map_bounded
from events.clock import now_ms
from events.codec import to_cloudevent
from events.database import Database
from events.door import MAX_EVENT_BYTES, admit_all
from events.errors import Fenced, LogFull, Refused, SetupError, Transient
from events.event import Event, Position
from events.keys import partition_of
from events.log.client import AnyRedis
from events.log.identity import claim
from events.log.log import MAX_CALL, Appended, Log
from events.log.recovery import open_partition
from events.registry import EVENT_TYPES, ONLY_HERE, note_on
from events.strict_json import clean_text
from events.tokens import write_token

Ack = Literal["durable", "fast"]
Status = Literal["stored", "duplicate", "conflict", "refused", "accepted"]

PUBLIC_WAYS = frozenset(("http", "inbox"))
"""Ways in (``source`` of a call) by which anybody publishes who may."""

TIMEOUT_S = 30.0
OUTAGE_S = 3.0
"""How long a call tries to reach Redis again: a restart takes less, and for a longer outage the caller is told."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one event.

    ``stored`` and ``duplicate`` are durable, ``accepted`` (with ``ack=fast``) is on the log but may still be lost.
    ``conflict`` and ``refused`` are not stored, but kept for inspection; ``code``, ``field`` and ``message`` say why.
    ``token`` is what a read takes as ``after=``; of a duplicate or a conflict it names the first event. ``winner`` and
    ``attempt`` name the run that holds the task, where an attempt conflicts or was superseded. ``note`` says what the
    publisher of an event that was taken should know: that no read model of this version understands its type.
    """

    id: str
    status: Status
    code: str = ""
    message: str = ""
    field: str = ""
    token: str = ""
    winner: str = ""
    attempt: int = 0
    note: str = ""


class NotDurable(Transient):
    """Not yet durable; send the same events again with the same ids: nothing is lost or doubled."""


class Publisher:
    """The one way in. ``start`` it inside the event loop, and ``stop`` it there.

    ``source`` of a call names the way in, for the list of refused events. ``timeout_s`` bounds each call.
    """

    def __init__(
        self,
        redis: AnyRedis,
        db: Database,
        partitions: int,
        *,
        timeout_s: float = TIMEOUT_S,
        max_event_bytes: int = MAX_EVENT_BYTES,
    ) -> None:
        self.watermarks = Watermarks(redis, db)
        self._redis = redis
        self._db = db
        self._partitions = partitions
        self._log = Log(redis, partitions, Archive(db))
        self._timeout_s = timeout_s
        self._max_event_bytes = max_event_bytes
        self._log_id = ""

    async def start(self) -> None:
        """Begin to listen for the archiver's wake-ups."""
        self.watermarks.start()

    async def stop(self) -> None:
        """End listening."""
        await self.watermarks.stop()

    async def claim(self) -> None:
        """Make sure that Redis is this log's. Raises SetupError when it holds another one, Transient."""
        await claim(self._redis, await self._db.read(store.log_id))

    async def publish(
        self, raws: Sequence[Any], *, org: str = "default", ack: Ack = "durable", source: str = "http"
    ) -> list[Outcome]:
        """Admit and publish raw events; an outcome for each, in their order. One bad event harms no other.

        A Refused among ``raws`` stands for an event that its reader could not read. ``org`` is that of events that
        name none. Raises NotDurable when time ran out, Transient when a store cannot be reached: then send the same
        events again with the same ids.
        """
        admitted = self._admit(raws, org)
        if source in PUBLIC_WAYS:
            admitted = [_public(event) for event in admitted]
        events = [event for event in admitted if isinstance(event, Event)]
        outcomes = iter(await self._publish(events, ack, source))
        answers, refusals = [], []
        for raw, event in zip(raws, admitted, strict=True):
            if isinstance(event, Event):
                answers.append(next(outcomes))
                continue
            answers.append(Outcome(_id_of(raw), "refused", event.code, str(event), event.field))
            refusals.append((_refused(raw, event, org, source), _run_of(raw)))
        await self._keep(refusals)
        return answers

    async def publish_events(
        self, events: Sequence[Event], *, ack: Ack = "durable", source: str = "internal"
    ) -> list[Outcome]:
        """Publish events that have passed the door, as ``publish`` does."""
        return await self._publish(events, ack, source)

    def _admit(self, raws: Sequence[Any], org: str) -> list[Event | Refused]:
        readable = [raw for raw in raws if not isinstance(raw, Refused)]
        admitted = iter(admit_all(readable, org=org, max_bytes=self._max_event_bytes))
        return [raw if isinstance(raw, Refused) else next(admitted) for raw in raws]

    async def _publish(self, events: Sequence[Event], ack: Ack, source: str) -> list[Outcome]:
        if not events:
            return []
        deadline = time.monotonic() + self._timeout_s
        self._log_id = self._log_id or await self._db.read(store.log_id)
        appended = await self._append(events, deadline)
        if ack == "fast":
            outcomes = [_provisional(a, self.watermarks.seen(a.partition), self._log_id) for a in appended]
        else:
            outcomes = await self._settle(appended, deadline)
        conflicts = [(event, o) for event, o in zip(events, outcomes, strict=True) if o.status == "conflict"]
        await self._keep([(_conflicting(event, o, source), event.run) for event, o in conflicts])
        return outcomes

    async def _append(self, events: Sequence[Event], deadline: float) -> list[Appended]:
        """Append, partition by partition: what one has taken is not sent again because another is closed."""
        groups: dict[int, list[int]] = {}
        for index, event in enumerate(events):
            groups.setdefault(partition_of(event.org, event.key, self._partitions), []).append(index)
        answers = await map_bounded(
            lambda group: self._append_to(group[0], [events[index] for index in group[1]], deadline), groups.items()
        )
        appended: dict[int, Appended] = {}
        for group, answer in zip(groups.values(), answers, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            appended.update(zip(group, answer, strict=True))
        return [appended[index] for index in range(len(events))]

    async def _append_to(self, partition: int, events: Sequence[Event], deadline: float) -> list[Appended]:
        """Append to one partition. A closed one is opened, a full one waited for, as long as there is time.

        A short outage of Redis is waited for, too; what it had taken already is then answered as a duplicate.
        """
        began, pause_s, appended = time.monotonic(), _FIRST_PAUSE_S, list[Appended]()
        while len(appended) < len(events):
            try:
                appended += await self._log.append(events[len(appended) : len(appended) + MAX_CALL])
                continue
            except Transient as error:
                passes = isinstance(error, Fenced | LogFull)
                if time.monotonic() + pause_s > (deadline if passes else min(deadline, began + OUTAGE_S)):
                    raise
                if isinstance(error, Fenced):
                    await self._open(partition)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        return appended

    async def _open(self, partition: int) -> None:
        """Open a closed partition; when that cannot be just now, the next append says why.

        Raises Transient when it never can as things are set up: the events have their place with their publisher
        until somebody has changed that.
        """
        try:
            await open_partition(self._redis, self._db, partition)
        except Transient as error:
            logger.debug("%s", error)
        except SetupError as error:
            raise Transient(str(error)) from error

    async def _settle(self, appended: Sequence[Appended], deadline: float) -> list[Outcome]:
        """Wait until the archive holds each event, and answer what it says; append again what recovery voided."""
        ours = {index: a.position for index, a in enumerate(appended) if a.status == "stored"}
        outcomes: dict[int, Outcome] = {}
        pending = dict(enumerate(appended))
        while True:
            for index in [index for index, a in pending.items() if a.position is None]:
                outcomes[index] = _not_stored(pending.pop(index))
            if not pending:
                return [outcomes[index] for index in range(len(appended))]
            await self._wait(pending.values(), deadline)
            found = await self._db.read(partial(_look_up, appended=list(pending.values())))
            for index in [index for index, a in pending.items() if _identity(a.event) in found.firsts]:
                a = pending.pop(index)
                first = found.firsts[_identity(a.event)]
                gone = (a.partition, first.position) in found.erased
                outcomes[index] = _erased(a) if gone else _settled(a, first, ours.get(index), self._log_id)
            void = [index for index, a in pending.items() if found.is_void(a)]
            if void:
                again = await self._append([pending[index].event for index in void], deadline)
                if any(pending[index].position == anew.position for index, anew in zip(void, again, strict=True)):
                    # a server that another one has overtaken has them where they were, and knows of nothing
                    await asyncio.sleep(_LONGEST_PAUSE_S)
                pending.update(zip(void, again, strict=True))
            elif pending:
                # the watermark in SQL has not come as far as the wake-up said: never spin on it
                await asyncio.sleep(_FIRST_PAUSE_S)

    async def _wait(self, pending: Iterable[Appended], deadline: float) -> None:
        last: dict[int, Position] = {}
        for a in pending:
            if a.position is not None:
                last[a.partition] = max(a.position, last.get(a.partition, a.position))
        left = deadline - time.monotonic()
        if left <= 0 or not await self.watermarks.wait_for(last, left):
            raise NotDurable(
                f"not yet durable after {self._timeout_s:g} s (does the archiver run?): send the same events again "
                "with the same ids, nothing is lost or doubled"
            )

    async def _keep(self, refusals: Sequence[tuple[Refusal, str]]) -> None:
        """Keep refusals, each with the run that the event names; not of erased runs, whose words are to go."""

        def work(conn: Connection) -> None:
            gone = erased_among(conn, {(refusal.org, run) for refusal, run in refusals})
            keep_refusals(conn, [refusal for refusal, run in refusals if (refusal.org, run) not in gone])

        if refusals:
            await self._db.write(work)


@dataclass(frozen=True)
class _Archived:
    """What the archive says of events: where their ids stand first; the epochs, when some id is not there.

    ``erased`` are those of these places at which an event was erased.
    """

    firsts: dict[tuple[str, str, str], store.First]
    epochs: dict[int, dict[int, int | None]]
    erased: set[tuple[int, Position]]

    def is_void(self, a: Appended) -> bool:
        """Whether the event's epoch ended before its position."""
        if a.position is None:
            return False
        end = self.epochs.get(a.partition, {}).get(a.position.epoch)
        return end is not None and a.position.n > end


def _look_up(conn: Connection, appended: Sequence[Appended]) -> _Archived:
    firsts = read_ids(conn, [_identity(a.event) for a in appended])
    places = [(a.partition, firsts[_identity(a.event)].position) for a in appended if _identity(a.event) in firsts]
    epochs = read_epochs(conn) if len(firsts) < len(appended) else {}
    return _Archived(firsts, epochs, erased_positions(conn, places))


def _identity(event: Event) -> tuple[str, str, str]:
    return event.org, event.key, event.id


def _settled(a: Appended, first: store.First, ours: Position | None, log_id: str) -> Outcome:
    """The outcome of an event whose id the archive holds at ``first``; ``ours`` is where we stored it, if we did."""
    token = write_token([(a.partition, first.position)], log_id)
    if first.digest != a.event.digest:
        message = a.message or f"id {a.event.id!r} is taken by another event: the same id must have the same content"
        return Outcome(a.event.id, "conflict", "conflict", message, "id", token)
    # an earlier first was there before us; a later one is our own, carried over by recovery
    stored = ours is not None and first.position >= ours
    return Outcome(a.event.id, "stored" if stored else "duplicate", token=token, note=note_on(a.event.type))


def _erased(a: Appended) -> Outcome:
    """The outcome of an event that was erased, now or as it came: it keeps its place in the log, and says nothing."""
    message = "this event, its run or what it was derived from was erased: what is new takes a new run, with new ids"
    return Outcome(a.event.id, "refused", "erased", message)


def _not_stored(a: Appended) -> Outcome:
    """The outcome of an event that the log did not take, whatever its id: a late attempt, a ``seq`` out of order."""
    field = "seq" if a.status == "seq_conflict" else "run"
    return Outcome(a.event.id, "conflict", a.status, a.message, field, winner=a.winner, attempt=a.attempt)


def _provisional(a: Appended, watermark: Position, log_id: str) -> Outcome:
    """The outcome of an event that nobody waits for; a duplicate is one when the first is known to be archived.

    Another epoch tells nothing: the first may be void by now.
    """
    if a.position is None:
        return _not_stored(a)
    token = write_token([(a.partition, a.position)], log_id)
    if a.status == "conflict":
        return Outcome(a.event.id, "conflict", "conflict", a.message, "id", token)
    archived = watermark.epoch == a.position.epoch and watermark >= a.position
    status: Status = "duplicate" if a.status == "duplicate" and archived else "accepted"
    return Outcome(a.event.id, status, token=token, note=note_on(a.event.type))


def _public(event: Event | Refused) -> Event | Refused:
    """An event that anybody may publish: not one that the backend alone decides."""
    if isinstance(event, Event) and event.type in ONLY_HERE:
        instead = EVENT_TYPES[event.type].instead
        return Refused(f"only Refold itself publishes {event.type}: {instead}", code="not_yours", field="type")
    return event


def _id_of(raw: Any) -> str:
    return _member(raw, "id")


def _run_of(raw: Any) -> str:
    return clean_text(_member(raw, "run"))


def _member(raw: Any, name: str) -> str:
    raw = raw.context.get("raw") if isinstance(raw, Refused) else raw
    value = raw.get(name) if isinstance(raw, dict) else ""
    return value if isinstance(value, str) else ""


def _refused(raw: Any, refusal: Refused, org: str, source: str) -> Refusal:
    named = raw.get("org") if isinstance(raw, dict) else None
    return refusal_of(
        refusal.context.get("raw", "") if isinstance(raw, Refused) else raw,
        org=named if isinstance(named, str) and named else org,
        source=source,
        code=refusal.code,
        field=refusal.field,
        reason=str(refusal),
        received_ms=now_ms(),
    )


def _conflicting(event: Event, outcome: Outcome, source: str) -> Refusal:
    return refusal_of(
        to_cloudevent(event),
        org=event.org,
        source=source,
        code=outcome.code,
        field=outcome.field,
        reason=outcome.message,
        received_ms=now_ms(),
    )
