"""Write ahead: what is saved is safe on this machine's disk at once, and goes to the backend in batches after that."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from refold.answers import Answered, Away, TooLarge
from refold.errors import RefoldError, Unavailable
from refold.integrations.langgraph.courier import FIRST_PAUSE_S, LAST_PAUSE_S, MAX_EVENTS, error_of
from refold.integrations.langgraph.journal import GATHER_BYTES, Entry, Journal
from refold.integrations.langgraph.wire import Raw
from refold.integrations.langgraph.writer import Tenure
from refold.transport import Transport

logger = logging.getLogger("refold")

MAX_WAITING_BYTES = 128 << 20

QUIET_S, GATHER_S = 0.02, 2.0
"""While nobody waits for arrival the sender gathers, until nothing has come for a while, and no longer than this since
the last request, nor than until ``GATHER_BYTES`` wait: many events in one request cost the backend a tenth of as many
requests, and a burst has the processor for itself."""


@dataclass(frozen=True)
class Backlog:
    """What is saved on this machine and has not reached the backend.

    ``age_s``: how many seconds the first of the ``events`` has waited; ``away``: why the backend does not answer.
    """

    events: int
    bytes: int
    age_s: float
    away: str


class Ahead:
    """A journal in ``folder``, and a thread that sends what is in it, with the same ids until it arrives.

    ``timeout_s`` bounds every wait for the backend. At most ``max_bytes`` wait in the journal, and in memory.
    """

    def __init__(self, connect: Callable[[], Transport], folder: Path, timeout_s: float, max_bytes: int) -> None:
        self._connect = connect
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes
        self._away, self._retry_after_s = "", 0.0
        self._hurry = self._closed = False
        self._awaited = 0
        self._most = MAX_EVENTS
        self._thread: threading.Thread | None = None
        self._journal = Journal(folder)
        if self._journal.waits():
            logger.info("sending what an earlier process left in %s", folder)
            self._start()

    # ---- the savers' side

    def hand(self, events: list[Raw], tenure: Tenure | None = None) -> Future[None]:
        """Take numbered events over; they are safe when the future ends, which takes a ``push``.

        Raises RefoldError after ``close``.
        """
        if self._closed:
            raise RefoldError("this client is closed")
        if tenure is None:
            raise TypeError("events without a number need no order: hand them to a Courier")
        return self._journal.hand(events, tenure)

    def push(self) -> None:
        """Put what was handed in on the disk, together with what other threads have."""
        self._journal.push()
        self._start()

    def room(self) -> None:
        """Wait until there is room for more. Raises Unavailable."""
        if not self._wait(lambda: self._journal.bytes < self._max_bytes, self._timeout_s):
            waiting = f"{self._journal.bytes:,} bytes wait in {self._journal.folder}, which is the limit"
            raise Unavailable(f"nothing of this was saved: {waiting}; {self._away or 'the backend is slower'}")

    def waits(self, thread: str) -> bool:
        """Whether something of a thread has not reached the backend."""
        return self._journal.waits(thread)

    def inherits(self, thread: str) -> bool:
        """Whether something of a thread waits that a dead process left."""
        return self._journal.inherits(thread)

    def inherited(self) -> dict[Tenure, list[Raw]]:
        """What dead processes left in the folder: events by tenure, in order."""
        return self._journal.inherited()

    def caught_up(self, thread: str) -> bool:
        """Wait for what a dead process left of a thread, unless the backend does not answer: then False."""
        self._wait(lambda: bool(self._away) or not self._journal.inherits(thread), self._timeout_s)
        return not self._journal.inherits(thread)

    def arrive(self, thread: str | None = None) -> None:
        """Wait until all of a thread, or of all threads, has reached the backend. Raises Unavailable."""
        if not self.flush(self._timeout_s, thread):
            what = "what was saved" if thread is None else f"what was saved of thread {thread!r}"
            where = f"is in {self._journal.folder} and has not reached the backend"
            raise Unavailable(f"{what} {where}: {self._away or 'it has not answered in time'}")

    def flush(self, timeout_s: float, thread: str | None = None) -> bool:
        """Whether all of a thread, or of all threads, has reached the backend, after ``timeout_s`` at the latest."""
        if not self._journal.waits(thread):
            return True
        self.push()
        return self._wait(lambda: not self._journal.waits(thread), timeout_s)

    def backlog(self) -> Backlog:
        """What waits."""
        return Backlog(*self._journal.extent(), self._away)

    def close(self) -> None:
        """Send what waits, unless the backend does not answer: what is left then is for the next saver there."""
        if self._journal.waits():
            self.push()
        with self._journal.changed:
            self._closed = True
            self._journal.changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        if self._journal.waits():
            events, _, _ = self._journal.extent()
            logger.warning(
                "%d events wait in %s for the next saver there: %s", events, self._journal.folder, self._away
            )
        self._journal.close()

    def _wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        with self._journal.changed:
            if condition():
                return True
            self._awaited += 1
            self._hurry = True
            self._journal.changed.notify_all()
            try:
                return self._journal.changed.wait_for(condition, timeout_s)
            finally:
                self._awaited -= 1

    # ---- the sender's side

    def _start(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            return
        with self._journal.changed:
            if self._closed or (self._thread is not None and self._thread.is_alive()):
                return
            self._thread = threading.Thread(target=self._work, name="refold-ahead", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        transport = self._connect()
        pause_s = FIRST_PAUSE_S
        try:
            while batch := self._next():
                if self._send(transport, batch):
                    pause_s = FIRST_PAUSE_S
                elif self._closed:
                    return
                else:
                    self._pause(max(pause_s, self._retry_after_s))
                    pause_s = min(2 * pause_s, LAST_PAUSE_S)
        finally:
            transport.close()

    def _next(self) -> list[Entry]:
        """The entries to send now; none when the journal is closed and all is sent."""
        with self._journal.changed:
            self._journal.changed.wait_for(lambda: self._closed or self._journal.kept())
        self._gather()
        return self._journal.head(self._most)

    def _gather(self) -> None:
        until, before = time.monotonic() + GATHER_S, -1
        while before != self._journal.bytes and time.monotonic() < until:
            before = self._journal.bytes
            self._journal.prepare()
            with self._journal.changed:
                if self._journal.changed.wait_for(self._enough, QUIET_S):
                    return

    def _enough(self) -> bool:
        return self._closed or self._awaited > 0 or self._journal.bytes > min(GATHER_BYTES, self._max_bytes // 2)

    def _send(self, transport: Transport, batch: list[Entry]) -> bool:
        """False when the backend did not judge the batch."""
        answer = transport.send([entry.line for entry in batch])
        if isinstance(answer, Answered):
            judged = zip(batch, answer.outcomes, strict=True)
            self._away, self._most = "", MAX_EVENTS
            self._journal.settle(batch, [(e, error_of(o)) for e, o in judged if o.verdict != "delivered"])
            return True
        if isinstance(answer, TooLarge):
            self._most = max(1, len(batch) // 2)
            return True
        self._miss(answer)
        return False

    def _miss(self, answer: Away) -> None:
        if not self._away:
            logger.warning("%s; what is saved waits in %s", answer.message, self._journal.folder)
        with self._journal.changed:
            self._away, self._retry_after_s = answer.message, answer.retry_after_s
            self._journal.changed.notify_all()

    def _pause(self, pause_s: float) -> None:
        with self._journal.changed:
            self._journal.changed.wait_for(lambda: self._hurry or self._closed, pause_s)
            self._hurry = False
