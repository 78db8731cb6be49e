"""Carries events to the backend: many callers, one connection, in order, each batch durable before the next goes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

import orjson

from refold.answers import Answered, Outcome
from refold.errors import Conflict, RefoldError, Refused, Unavailable
from refold.integrations.langgraph.writer import Tenure
from refold.transport import Transport

MAX_EVENTS = 500
MAX_BYTES = 3_900_000
"""Of one request. The backend judges so much in one step, and that step keeps what follows a lost event out."""

FIRST_PAUSE_S, LAST_PAUSE_S = 0.05, 2.0


class Carrier(Protocol):
    """Takes events over, on their way to the backend. ``Courier`` and ``Ahead`` differ in when they are safe."""

    def hand(self, events: list[dict[str, Any]], tenure: Tenure | None = None) -> Future[None]:
        """Take events over, in order; the future ends when they are safe. Without a ``tenure`` they are numberless."""
        ...

    def push(self) -> None:
        """What the caller's own thread must do, before it waits for what it has handed in."""
        ...

    def close(self) -> None:
        """Send what was handed in, then end."""
        ...


class Parcel:
    """Events that belong together; ``done`` is set when all are durable, or tells what became of the first other."""

    def __init__(self, events: list[dict[str, Any]], tenure: Tenure | None, deadline: float) -> None:
        self.lines = [orjson.dumps(event) for event in events]
        self.deadline = deadline
        self.done: Future[None] = Future()
        self.left = len(events)
        self.tenure = tenure or Tenure("")
        self.numbered = tenure is not None

    def settle(self, outcome: Outcome) -> None:
        """What became of its next event."""
        self.left -= 1
        if outcome.verdict != "delivered":
            self.fail(error_of(outcome), loses=self.numbered)
        elif not self.left:
            self.end(lambda: self.done.set_result(None))

    def fail(self, error: RefoldError, *, loses: bool) -> None:
        """It is not, or not known to be, in; ``loses``: nor is what follows it."""
        if loses:
            error = self.tenure.lost = self.tenure.lost or error
        self.end(lambda: self.done.set_exception(error))

    def lost(self) -> bool:
        """Whether it must not be sent any more: then its giver is told."""
        if self.tenure.lost is None:
            return False
        self.fail(self.tenure.lost, loses=False)
        return True

    def end(self, say: Callable[[], None]) -> None:
        """Tell whoever waits, once; who has stopped waiting (a cancelled task) is told nothing."""
        if not self.done.done() and self.done.set_running_or_notify_cancel():
            say()


class Courier:
    """Sends on a thread of its own, which starts with the first parcel.

    While the backend does not answer, it sends again, with the same ids, until ``timeout_s`` seconds after a parcel was
    handed in: then that fails with Unavailable, and what became of it is known by reading only. When an event of a
    tenure fails, all that was handed in after it fails too.
    """

    def __init__(self, transport: Callable[[], Transport], timeout_s: float) -> None:
        self._connect = transport
        self._timeout_s = timeout_s
        self._ready = threading.Condition()
        self._waiting: list[Parcel] = []
        self._thread: threading.Thread | None = None
        self._closed = False

    def hand(self, events: list[dict[str, Any]], tenure: Tenure | None = None) -> Future[None]:
        """Take events over; the order of the calls is the order of sending. Raises RefoldError after ``close``."""
        parcel = Parcel(events, tenure, time.monotonic() + self._timeout_s)
        with self._ready:
            if self._closed:
                raise RefoldError("this client is closed")
            self._waiting.append(parcel)
            if self._thread is None or not self._thread.is_alive():  # a forked process has none of its parent's threads
                self._thread = threading.Thread(target=self._work, name="refold-courier", daemon=True)
                self._thread.start()
            self._ready.notify()
        return parcel.done

    def push(self) -> None:
        """Nothing: the courier's own thread does all."""

    def close(self) -> None:
        """Send what is handed in, then end."""
        with self._ready:
            self._closed = True
            self._ready.notify()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        transport = self._connect()
        try:
            while parcels := self._next():
                self._deliver(transport, parcels)
        finally:
            transport.close()

    def _next(self) -> list[Parcel]:
        """All that fit one round; empty when there is nothing more to come."""
        with self._ready:
            while not self._waiting and not self._closed:
                self._ready.wait()
            parcels, self._waiting = self._waiting, []
            return parcels

    def _deliver(self, transport: Transport, parcels: list[Parcel]) -> None:
        owners = [(parcel, line) for parcel in parcels for line in parcel.lines]
        while owners := [owner for owner in owners if not owner[0].lost()]:
            count = first([line for _, line in owners])
            self._send(transport, owners[:count])
            owners = owners[count:]

    def _send(self, transport: Transport, batch: list[tuple[Parcel, bytes]]) -> None:
        """When the backend does not answer in time, all that have a part in the batch fail."""
        lines = [line for _, line in batch]
        deadline = max(parcel.deadline for parcel, _ in batch)
        pause_s = FIRST_PAUSE_S
        while True:
            answer = transport.send(lines)
            if isinstance(answer, Answered):
                for (parcel, _), outcome in zip(batch, answer.outcomes, strict=True):
                    parcel.settle(outcome)
                return
            if time.monotonic() + pause_s > deadline:
                for parcel, _ in batch:
                    error = Unavailable(f"{answer.message}; whether it was saved shows when the thread is read")
                    parcel.fail(error, loses=True)
                return
            time.sleep(max(pause_s, getattr(answer, "retry_after_s", 0.0)))
            pause_s = min(2 * pause_s, LAST_PAUSE_S)


def first(lines: Sequence[bytes]) -> int:
    """How many of the lines go in one request."""
    size, end = 0, 0
    while end < min(len(lines), MAX_EVENTS):
        size += len(lines[end])
        if size > MAX_BYTES and end:
            break
        end += 1
    return end


def error_of(outcome: Outcome) -> RefoldError:
    """What an outcome that is not ``delivered`` means for the giver."""
    if outcome.verdict == "conflict":
        return Conflict(outcome.message, winner=outcome.winner, attempt=outcome.attempt, code=outcome.code)
    return Refused(outcome.message, code=outcome.code, field=outcome.field)
