"""Carries events to the backend: many callers, one connection, in order, each batch durable before the next goes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import orjson

from refold.answers import Answered, Outcome
from refold.errors import Conflict, RefoldError, Refused, Unavailable
from refold.transport import Transport

MAX_EVENTS = 500
MAX_BYTES = 4 << 20
FIRST_PAUSE_S, LAST_PAUSE_S = 0.05, 2.0


class Parcel:
    """Events that belong together; ``done`` is set when all are durable, or tells what became of the first other."""

    def __init__(self, events: list[dict[str, Any]], deadline: float) -> None:
        self.lines = [orjson.dumps(event) for event in events]
        self.deadline = deadline
        self.done: Future[None] = Future()
        self.left = len(events)

    def settle(self, outcome: Outcome) -> None:
        """What became of its next event."""
        self.left -= 1
        if outcome.verdict != "delivered":
            self.fail(_error(outcome))
        elif not self.left:
            self.end(lambda: self.done.set_result(None))

    def fail(self, error: RefoldError) -> None:
        """It is not, or not known to be, in."""
        self.end(lambda: self.done.set_exception(error))

    def end(self, say: Callable[[], None]) -> None:
        """Tell whoever waits, once; who has stopped waiting (a cancelled task) is told nothing."""
        if not self.done.done() and self.done.set_running_or_notify_cancel():
            say()


class Courier:
    """Sends on a thread of its own, which starts with the first parcel.

    While the backend does not answer, it sends again, with the same ids, until ``timeout_s`` seconds after a parcel was
    handed in: then that fails with Unavailable, and what became of it is known by reading only.
    """

    def __init__(self, transport: Callable[[], Transport], timeout_s: float) -> None:
        self._connect = transport
        self._timeout_s = timeout_s
        self._ready = threading.Condition()
        self._waiting: list[Parcel] = []
        self._thread: threading.Thread | None = None
        self._closed = False

    def hand(self, events: list[dict[str, Any]]) -> Future[None]:
        """Take events over; the order of the calls is the order of sending. Raises RefoldError after ``close``."""
        parcel = Parcel(events, time.monotonic() + self._timeout_s)
        with self._ready:
            if self._closed:
                raise RefoldError("this client is closed")
            self._waiting.append(parcel)
            if self._thread is None or not self._thread.is_alive():  # a forked process has none of its parent's threads
                self._thread = threading.Thread(target=self._work, name="refold-courier", daemon=True)
                self._thread.start()
            self._ready.notify()
        return parcel.done

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
        start = 0
        while start < len(owners):
            batch = _batch(owners, start)
            if self._send(transport, batch):
                start += len(batch)
            else:
                gone = {id(parcel) for parcel, _ in batch}
                owners = [owner for owner in owners[start:] if id(owner[0]) not in gone]
                start = 0

    def _send(self, transport: Transport, batch: list[tuple[Parcel, bytes]]) -> bool:
        """False when the backend did not answer in time: all that had a part in the batch have failed then."""
        lines = [line for _, line in batch]
        deadline = max(parcel.deadline for parcel, _ in batch)
        pause_s = FIRST_PAUSE_S
        while True:
            answer = transport.send(lines)
            if isinstance(answer, Answered):
                for (parcel, _), outcome in zip(batch, answer.outcomes, strict=True):
                    parcel.settle(outcome)
                return True
            if time.monotonic() + pause_s > deadline:
                for parcel, _ in batch:
                    parcel.fail(Unavailable(f"{answer.message}; whether it was saved shows when the thread is read"))
                return False
            time.sleep(max(pause_s, getattr(answer, "retry_after_s", 0.0)))
            pause_s = min(2 * pause_s, LAST_PAUSE_S)


def _batch(owners: list[tuple[Parcel, bytes]], start: int) -> list[tuple[Parcel, bytes]]:
    size, end = 0, start
    while end < len(owners) and end - start < MAX_EVENTS:
        size += len(owners[end][1])
        if size > MAX_BYTES and end > start:
            break
        end += 1
    return owners[start:end]


def _error(outcome: Outcome) -> RefoldError:
    if outcome.verdict == "conflict":
        return Conflict(outcome.message, winner=outcome.winner, attempt=outcome.attempt, code=outcome.code)
    return Refused(outcome.message, code=outcome.code, field=outcome.field)
