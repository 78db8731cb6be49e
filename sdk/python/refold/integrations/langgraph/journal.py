"""A write-ahead journal: events that are safe on this machine's disk, until the backend has them.

It is the SDK's spool (see ``refold.spool``): files of JSON lines that one process each holds by a lock, and that the
next one adopts when their process is dead. Threads that arrive together share one write and one fsync: one of them does
it for all, on its own thread. Who arrives meanwhile waits, and the first of those does it for the next.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakSet

import orjson

from refold.errors import RefoldError
from refold.integrations.langgraph.courier import MAX_EVENTS, first
from refold.integrations.langgraph.wire import Raw, thread_of
from refold.integrations.langgraph.writer import Tenure
from refold.spool import Spool

logger = logging.getLogger("refold")

GATHER_BYTES = 16 << 20
"""More than this is much: whoever sends should not wait for more to come."""

SEGMENT_BYTES = 4 << 20
"""Of one file; what a dead process had sent of its last one is sent again, which the backend recognises."""


@dataclass(frozen=True, eq=False)
class Entry:
    """An event that waits for the backend. ``since``: monotonic seconds; ``inherited``: from a dead process."""

    tenure: Tenure
    line: bytes
    since: float
    inherited: bool = False


@dataclass(frozen=True, eq=False)
class _Handed:
    """Entries that belong together, and whoever waits until they are on the disk."""

    tenure: Tenure
    entries: list[Entry]
    kept: Future[None]


class _Turn:
    """One thread that waits until what it handed in is written, or until it ``leads``: it is to write, for all."""

    def __init__(self) -> None:
        self.leads = False
        self._over = threading.Lock()
        self._over.acquire()

    def wait(self) -> None:
        """Until ``end``."""
        self._over.acquire()

    def end(self) -> None:
        """Wake its thread."""
        self._over.release()


class Journal:
    """First in, first out; thread-safe. ``changed`` is notified when something comes, goes, or is lost.

    Raises RefoldError when ``folder`` cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.changed = threading.Condition()
        self.bytes = 0
        self._disk = threading.Lock()  # before ``changed``, where both are needed
        self._spool = Spool(folder, segment_bytes=SEGMENT_BYTES, fill=False)
        self._handed: list[_Handed] = []
        self._turns: deque[_Turn] = deque()
        self._led = False
        self._entries: deque[Entry] = deque()
        self._waiting: Counter[str] = Counter()
        self._inherited: Counter[str] = Counter()
        self._forked = False
        try:
            self._spool.adopt()
            self._spool.append([])
        except OSError as error:
            raise RefoldError(
                f"the write-ahead folder {folder} cannot be used ({error}): name one on a local disk that this process "
                "may write to"
            ) from None
        self._inherit()
        _JOURNALS.add(self)

    # ---- coming in

    def hand(self, events: Sequence[Raw], tenure: Tenure) -> Future[None]:
        """Take events over; they are on the disk when the future ends, which takes a ``push``."""
        if self._forked:
            raise RefoldError("this saver was made before the process was forked: make one in each process")
        now = time.monotonic()
        entries = [Entry(tenure, orjson.dumps(event), now) for event in events]
        handed = _Handed(tenure, entries, Future())
        with self.changed:
            self._handed.append(handed)
            self._count(entries, 1)
        return handed.kept

    def push(self) -> None:
        """Put all that was handed in on the disk, or wait until another thread has done it.

        Each thread that leads writes once: it is not kept from its own work by what comes after.
        """
        with self.changed:
            if not self._handed:
                return
            turn = _Turn() if self._led else None
            if turn is not None:
                self._turns.append(turn)
            self._led = True
        try:
            if turn is not None:
                turn.wait()
        finally:  # after a Ctrl-C, too: nobody may wait for ever for one that has gone
            if turn is None or self._leads(turn):
                self._lead()

    def _leads(self, turn: _Turn) -> bool:
        with self.changed:
            if turn in self._turns:
                self._turns.remove(turn)
            return turn.leads

    def _lead(self) -> None:
        served: deque[_Turn] = deque()
        try:
            with self.changed:
                served, self._turns = self._turns, served
            self._write()
        finally:
            with self.changed:
                following = self._turns.popleft() if self._turns else None
                self._led = following is not None
                if following is not None:
                    following.leads = True
                    served.append(following)
            for turn in served:
                turn.end()

    def _write(self) -> None:
        with self._disk:
            with self.changed:
                handed, self._handed = self._handed, []
            lost = [one for one in handed if one.tenure.lost is not None]
            good = [one for one in handed if one.tenure.lost is None]
            try:
                self._append(good)
            except OSError as error:
                self._lack(good, f"cannot be written ({error}); make room there")
                good, lost = [], handed
            except BaseException:  # Ctrl-C in the midst: nobody may wait for ever
                self._lack(good, "was not written: that was interrupted")
                self._tell([], handed)
                raise
            self._tell(good, lost)

    def _append(self, handed: Sequence[_Handed]) -> None:
        entries = [entry for one in handed for entry in one.entries]
        if not entries:
            return
        self._spool.append([entry.line for entry in entries])
        with self.changed:
            # what comes on top of others wakes nobody, unless it is much
            if not self._entries or self.bytes > GATHER_BYTES:
                self.changed.notify_all()
            self._entries.extend(entries)

    def _lack(self, handed: Iterable[_Handed], why: str) -> None:
        for one in handed:
            one.tenure.lost = RefoldError(
                f"nothing of this was saved: the write-ahead folder {self.folder} {why}, and invoke the graph again"
            )

    def _tell(self, kept: Iterable[_Handed], lost: Sequence[_Handed]) -> None:
        if lost:
            with self.changed:
                for one in lost:
                    self._count(one.entries, -1)
                self.changed.notify_all()
        for one in kept:
            one.kept.set_result(None)
        for one in lost:
            one.kept.set_exception(one.tenure.lost)

    def prepare(self) -> None:
        """Make the file that comes after the one that is being filled, so that no save has to wait for it.

        For one thread at a time. A disk that takes no more says so at a save.
        """
        if self._forked or not self._spool.wants_segment:
            return
        with suppress(OSError):
            made = self._spool.new_segment()
            with self._disk:
                self._spool.give_segment(made)

    # ---- what waits

    def waits(self, thread: str | None = None) -> bool:
        """Whether something of a thread, or anything, has not reached the backend."""
        return bool(self._waiting if thread is None else self._waiting.get(thread))

    def kept(self) -> bool:
        """Whether something is on the disk that can be sent."""
        return bool(self._entries)

    def inherits(self, thread: str) -> bool:
        """Whether something of a thread waits that a dead process left."""
        return thread in self._inherited

    def inherited(self) -> dict[Tenure, list[Raw]]:
        """What dead processes left: events by tenure, in order."""
        found: dict[Tenure, list[Raw]] = {}
        with self.changed:
            for entry in self._entries:
                if entry.inherited:
                    found.setdefault(entry.tenure, []).append(orjson.loads(entry.line))
        return found

    def extent(self) -> tuple[int, int, float]:
        """How many events wait, their bytes, and how many seconds the first one has waited."""
        with self.changed:
            age_s = time.monotonic() - self._entries[0].since if self._entries else 0.0
            return self._waiting.total(), self.bytes, age_s

    # ---- going out

    def head(self, limit: int = MAX_EVENTS) -> list[Entry]:
        """The first entries, as many as go in one request and at most ``limit``."""
        with self._disk:
            lines = self._spool.head(limit)
            count = first(lines)
            with self.changed:
                return [self._entries[index] for index in range(count)]

    def settle(self, batch: Sequence[Entry], lost: Sequence[tuple[Entry, RefoldError]]) -> None:
        """The entries that ``head`` gave last were judged. What was ``lost`` loses all of its tenure that waits.

        It is set aside in a file, for a person to look at; the error that its writer gets names that.
        """
        errors: dict[Tenure, RefoldError] = {}
        for entry, error in lost:
            errors.setdefault(entry.tenure, error)
        with self._disk:
            self._spool.replace(len(batch), [])
            with self.changed:
                for _ in batch:
                    self._entries.popleft()
                self._count(batch, -1)
            for tenure, error in errors.items():
                self._lose(tenure, [entry for entry, _ in lost if entry.tenure is tenure], error)
            with self.changed:
                self.changed.notify_all()

    def _lose(self, tenure: Tenure, judged: list[Entry], error: RefoldError) -> None:
        with self.changed:
            waiting = [entry for entry in self._entries if entry.tenure is tenure]
        lines = [entry.line for entry in (*judged, *waiting)]
        try:
            place = (
                f"{len(lines)} events that it had saved on this machine are set aside in {self._spool.reject(lines)}"
            )
            self._spool.remove(lines)
        except OSError as cause:
            place = f"{len(lines)} events that it had saved stay in {self.folder}, and cannot be set aside: {cause}"
            self._spool.remove(lines, from_disk=False)
        with self.changed:
            self._entries = deque(entry for entry in self._entries if entry.tenure is not tenure)
            self._count(waiting, -1)
        error.args = (f"{error}; {place}",)
        tenure.lost = error
        logger.warning("thread %r: %s", tenure.thread, error)

    def close(self) -> None:
        """Let the files go; what waits in them is for the next process."""
        with self._disk:
            self._spool.tidy()
            self._spool.close()

    def abandon(self) -> None:
        """In a forked child: let go of the parent's files without touching them, and know nothing of what it saved."""
        self._forked = True
        self._disk, self.changed = threading.Lock(), threading.Condition()  # the parent's may be held for ever
        self._spool.close()
        self._handed, self._entries, self.bytes = [], deque(), 0
        self._turns, self._led = deque(), False
        self._waiting.clear()
        self._inherited.clear()

    # ---- inside

    def _inherit(self) -> None:
        """What bears a higher number, in another file too, builds upon what is before it: it is of one tenure."""
        now = time.monotonic()
        latest: dict[str, tuple[Tenure, int]] = {}
        for line in self._spool.lines():
            event = orjson.loads(line)
            thread, seq = thread_of(event.get("run", "")), event.get("seq", 0)
            tenure, before = latest.get(thread, (None, 0))
            if tenure is None or seq <= before:
                tenure = Tenure(thread)
            latest[thread] = tenure, seq
            self._entries.append(Entry(tenure, line, now, inherited=True))
        self._count(self._entries, 1)

    def _count(self, entries: Iterable[Entry], sign: int) -> None:
        """Under ``changed``."""
        for entry in entries:
            self.bytes += sign * len(entry.line)
            for counter in (self._waiting, self._inherited) if entry.inherited else (self._waiting,):
                counter[entry.tenure.thread] += sign
                if not counter[entry.tenure.thread]:
                    del counter[entry.tenure.thread]


_JOURNALS: WeakSet[Journal] = WeakSet()


def _after_fork() -> None:
    for journal in _JOURNALS:
        journal.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
