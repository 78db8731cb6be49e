"""What is on its way to the backend: in memory, on disk when the backend is away, in order always.

Both clients drive the same ``Delivery``: they ask ``next`` what to do, send the batch it gives, and hand the answer to
``settle``. Nothing here touches the network or waits; the disk is touched only while the backend is away.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from refold.answers import Answer, Answered, Away, Outcome, TooLarge
from refold.envelope import Draft, Wait
from refold.errors import Conflict, Refused, Unavailable
from refold.mending import FILLER, filler
from refold.spool import Spool

logger = logging.getLogger("refold")
_SILENT = "the backend has not answered in time"
_EVENTS_FAULT = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""What an event that is not as it should be makes code raise."""

State = Literal["waiting", "kept", "delivered", "conflict", "refused"]
"""Of a queued event; ``kept``: the backend is away, and the event is on disk (in memory, where there is no spool)."""


@dataclass(frozen=True)
class Policy:
    """How events are batched and retried. Times in seconds.

    A batch goes when ``batch_events`` wait, when the oldest has waited ``flush_s``, or at once when somebody waits for
    one of its events. At most ``queue_events`` wait in memory; more make the agent wait a little.
    """

    batch_events: int = 200
    batch_bytes: int = 4 << 20
    flush_s: float = 0.05
    queue_events: int = 10_000
    backoff_s: float = 0.1
    backoff_max_s: float = 5.0


def backoff_s(failures: int, policy: Policy, jitter: float) -> float:
    """Seconds until the next attempt after ``failures`` in a row; ``jitter`` in 0..1 spreads clients by ±20 %."""
    if not failures:
        return 0.0
    doubled_s: float = policy.backoff_s * 2.0 ** min(failures - 1, 20)
    return min(doubled_s, policy.backoff_max_s) * (0.8 + 0.4 * jitter)


class Ticket:
    """Follows one event. ``changed`` is called, on whichever thread, each time its state changes."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.state: State = "waiting"
        self.outcome: Outcome | None = None
        self._changed = changed

    def set(self, state: State, outcome: Outcome | None = None) -> None:
        """Move on to a state."""
        self.state, self.outcome = state, outcome
        self._changed()

    def ends(self, wait: Wait) -> bool:
        """Whether somebody who waits like this has waited enough."""
        return self.state not in ("waiting", "kept") or (self.state == "kept" and wait is not Wait.HARD)

    def conclude(self, draft: Draft, absence: str) -> None:
        """Raise what the agent has to know of the event it waited for: Conflict, Refused or Unavailable.

        ``absence`` tells why the backend has not answered, and where the event waits.
        """
        if self.state == "conflict" and self.outcome:
            raise conflict_of(self.outcome)
        if self.state == "refused" and self.outcome and draft.must_pass:
            raise Refused(self.outcome.message, code=self.outcome.code, field=self.outcome.field)
        if self.state in ("waiting", "kept") and draft.wait is Wait.HARD:
            raise Unavailable(f"{draft.type} is not durable: {absence}")


def conflict_of(outcome: Outcome) -> Conflict:
    """The error that a conflict means."""
    started = outcome.code == "attempt_conflict"
    advice = " (`resume=True` goes on with that task; other work needs a task of its own)" if started else ""
    return Conflict(f"{outcome.message}{advice}", winner=outcome.winner, attempt=outcome.attempt, code=outcome.code)


@dataclass(frozen=True)
class Batch:
    """Lines to send now, in order."""

    lines: list[bytes]
    spooled: bool


class Delivery:
    """The queue between a client and its backend. Thread-safe."""

    def __init__(self, policy: Policy, spool: Spool | None, wake: Callable[[], None]) -> None:
        self.policy = policy
        self.dropped = 0
        self._spool = spool
        self._wake = wake
        self._away = _SILENT
        self._lock = threading.Lock()
        self._memory: deque[bytes] = deque()
        self._tickets: dict[str, Ticket] = {}
        self._conflicts: dict[str, Outcome] = {}
        self._oldest_s = 0.0
        self._urgent = False
        self._flying: Batch | None = None
        self._closed = False
        self._failures = 0
        self._retry_at_s = 0.0
        self._most = policy.batch_events

    # ---- the agent's side

    def put(self, event: dict[str, Any], now_s: float, ticket: Ticket | None = None) -> None:
        """Queue an event. With a ticket it goes out at once."""
        line = orjson.dumps(event)
        with self._lock:
            if not self._memory:
                self._oldest_s = now_s
            self._memory.append(line)
            if ticket is not None:
                self._tickets[event["id"]] = ticket
                self._urgent = True
            wake = self._urgent or len(self._memory) in (1, self.policy.batch_events)
        if wake:
            self._wake()

    def conflict(self, run: str) -> Conflict | None:
        """The conflict that ended a run, if one did."""
        outcome = self._conflicts.get(run)
        return None if outcome is None else conflict_of(outcome)

    def hurry(self) -> None:
        """Send what waits now, even if the backend was away a moment ago."""
        with self._lock:
            self._urgent, self._retry_at_s = True, 0.0
        self._wake()

    @property
    def full(self) -> bool:
        """Whether the agent should wait before it queues more."""
        flying = self._flying
        sent = len(flying.lines) if flying is not None and not flying.spooled else 0
        return len(self._memory) + sent >= self.policy.queue_events

    @property
    def failures(self) -> int:
        """How many attempts in a row did not reach the backend."""
        return self._failures

    @property
    def absence(self) -> str:
        """Why events wait, and where."""
        return f"{self._away}; {self._waiting}"

    @property
    def _waiting(self) -> str:
        where = "in memory" if self._spool is None else f"in {self._spool.folder}"
        return f"unsent events wait {where} and are sent later"

    @property
    def idle(self) -> bool:
        """Whether everything was delivered."""
        with self._lock:
            return not self._memory and self._flying is None and not self._spool

    # ---- the sender's side

    def adopt(self) -> None:
        """Take over the events that dead processes left on this disk."""
        if self._spool is None:
            return
        try:
            with self._lock:
                found = self._spool.adopt()
        except OSError as error:
            logger.warning("the spool cannot be read: %s", error)
            return
        if found:
            logger.info("sending %d events that an earlier process left in the spool", found)

    def next(self, now_s: float) -> Batch | float:
        """The batch to send now, or how many seconds to wait for something to do (or for ``wake``)."""
        with self._lock:
            if self._closed:
                return 3600.0
            if self._spool:
                self._park()
            if now_s < self._retry_at_s:
                return self._retry_at_s - now_s
            if self._spool:
                self._flying = Batch(_within(self._spool.head(self._most), self.policy.batch_bytes), spooled=True)
                return self._flying
            if not self._memory:
                self._urgent = False
                return 3600.0
            due_s = self._oldest_s + self.policy.flush_s
            if not self._urgent and len(self._memory) < self.policy.batch_events and now_s < due_s:
                return due_s - now_s
            return self._take(now_s)

    def settle(self, batch: Batch, answer: Answer, now_s: float) -> None:
        """Take in what became of a batch."""
        with self._lock:
            if self._closed:
                return  # too late: the batch is on disk and will be sent again, which the backend recognises
            self._flying = None
            if isinstance(answer, Away):
                self._is_away(batch, answer, now_s)
                return
            self._failures, self._retry_at_s, self._away = 0, 0.0, _SILENT
            if isinstance(answer, TooLarge):
                self._most = max(1, len(batch.lines) // 2)
                again = batch.lines
            else:
                self._most = self.policy.batch_events
                again = self._judge(batch.lines, answer)
            if batch.spooled and self._spool is not None:
                self._spool.replace(len(batch.lines), again)
            else:
                self._give_back(again)
        self._wake()

    def failed(self, batch: Batch, error: Exception, now_s: float) -> None:
        """Sending a batch, or taking in its answer, raised what it never should.

        Where the events may be at fault they are tried in ever smaller batches, and one that fails alone is set aside;
        anything else is tried again later, as if the backend were away.
        """
        logger.error("sending %d events failed", len(batch.lines), exc_info=error)
        if not isinstance(error, _EVENTS_FAULT):
            self.settle(batch, Away(f"sending failed: {error!r}"), now_s)
        elif len(batch.lines) > 1:
            self.settle(batch, TooLarge(repr(error)), now_s)
        else:
            with self._lock:
                if not self._closed:
                    self._flying = None
                    self._drop(batch, repr(error))

    def recover(self) -> None:
        """Take back what a sender that died was sending."""
        with self._lock:
            flying, self._flying = self._flying, None
            if flying is not None and not flying.spooled:
                self._give_back(flying.lines)

    def overflow(self) -> bool:
        """Make room in memory by moving it to disk; False when there is no disk to move it to."""
        with self._lock:
            self._park()
            return not self.full

    def close(self) -> None:
        """Put what is still in memory, or was sent without an answer, on disk for the next process. May be repeated."""
        with self._lock:
            if self._flying is not None and not self._flying.spooled:
                self._give_back(self._flying.lines)
            self._flying, self._closed = None, True
            self._park()
            if self._memory:
                self.dropped += len(self._memory)
                logger.error("%d events could be neither sent nor spooled", len(self._memory))
            if self._spool is not None:
                self._spool.close()

    def abandon(self) -> None:
        """In a forked child: let go of the parent's files without touching them. The lock may be held for ever."""
        if self._spool is not None:
            self._spool.close()

    # ---- inside, with the lock held

    def _take(self, now_s: float) -> Batch:
        first = [self._memory[index] for index in range(min(self._most, len(self._memory)))]
        lines = _within(first, self.policy.batch_bytes)
        for _ in lines:
            self._memory.popleft()
        self._oldest_s = now_s
        self._flying = Batch(lines, spooled=False)
        return self._flying

    def _park(self) -> None:
        """Move memory to the disk. Without a spool, or when the disk fails too, memory keeps it."""
        kept = list(self._memory)
        if self._spool is not None and kept:
            try:
                self._spool.append(kept)
                self._memory.clear()
            except OSError as error:
                logger.warning("the spool cannot be written: %s", error)
        for ticket in (self._tickets.get(_id(line)) for line in kept):
            if ticket is not None:
                ticket.set("kept")

    def _is_away(self, batch: Batch, answer: Away, now_s: float) -> None:
        log = logger.debug if self._failures else logger.warning
        log("%s; %s", answer.message, self._waiting)
        self._away = answer.message
        self._failures += 1
        wait_s = backoff_s(self._failures, self.policy, random.random())
        self._retry_at_s = now_s + max(wait_s, answer.retry_after_s)
        if not batch.spooled:
            self._give_back(batch.lines)
        self._park()

    def _give_back(self, lines: Sequence[bytes]) -> None:
        """Put lines of memory back to the front; later ones may have gone to the disk meanwhile (``overflow``)."""
        if self._spool and lines:
            try:
                self._spool.prepend(lines)
            except OSError as error:
                logger.warning("the spool cannot be written: %s", error)
            else:
                return
        self._memory.extendleft(reversed(lines))

    def _drop(self, batch: Batch, reason: str) -> None:
        """Set the only event of a batch aside; its number is filled."""
        line = batch.lines[0]
        event = orjson.loads(line)
        self._set_aside([line])
        outcome = Outcome("refused", "unsendable", reason)
        again = [_refusal(event, outcome)] if "seq" in event and event["type"] != FILLER else []
        if batch.spooled and self._spool is not None:
            self._spool.replace(1, again)
        else:
            self._give_back(again)
        self._resolve(event, outcome)

    def _set_aside(self, lines: Sequence[bytes]) -> None:
        """Keep events that the backend will not have in a file beside the spool."""
        if self._spool is None:
            return
        try:
            place = self._spool.reject(lines)
        except OSError as error:
            logger.warning("%d events that the backend will not have cannot be set aside: %s", len(lines), error)
        else:
            logger.warning("%d events that the backend will not have are in %s", len(lines), place)

    def _judge(self, lines: Sequence[bytes], answer: Answered) -> list[bytes]:
        """Resolve each event; returns what must be sent again, in order.

        A refused event leaves a hole in its run's numbers, which the backend would hold against every later event of
        the run. So a small event that says what was refused takes its number, and the later ones are sent again.
        """
        again: list[bytes] = []
        astray: list[bytes] = []
        holed: set[str] = set()
        for line, outcome in zip(lines, answer.outcomes, strict=True):
            event = orjson.loads(line)
            run = event.get("run", "")
            if outcome.verdict == "conflict" and run in holed and "seq" in event:
                again.append(line)
                continue
            if event["type"] != FILLER and "seq" in event:
                if outcome.verdict == "refused":
                    holed.add(run)
                    again.append(_refusal(event, outcome))
                elif outcome.code == "seq_conflict":
                    astray.append(line)
            self._resolve(event, outcome)
        if astray:
            # their run lost a number that nothing could fill; what they tell must not be lost with it
            self._set_aside(astray)
        return again

    def _resolve(self, event: dict[str, Any], outcome: Outcome) -> None:
        if outcome.code == "seq_conflict" and event["type"] == FILLER:
            return  # the backend has that number: what was lost here had arrived before
        if outcome.verdict != "delivered":
            logger.warning("%s %s: %s", event["type"], outcome.code, outcome.message)
        if outcome.verdict == "conflict" and "seq" in event:
            self._conflicts.setdefault(event["run"], outcome)
        ticket = self._tickets.pop(event["id"], None)
        if ticket is not None:
            ticket.set(outcome.verdict, outcome)


def _within(lines: list[bytes], most_bytes: int) -> list[bytes]:
    size = 0
    for index, line in enumerate(lines):
        size += len(line)
        if size > most_bytes and index:
            return lines[:index]
    return lines


def _id(line: bytes) -> str:
    return str(orjson.loads(line)["id"])


def _refusal(event: dict[str, Any], outcome: Outcome) -> bytes:
    message = outcome.message[:500]
    return filler(event, event["seq"], type=event["type"], id=event["id"], code=outcome.code, message=message)
