"""What a process knows of its threads, and how they are read, written to and given up: one writer each."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from refold.errors import Conflict, RefoldError
from refold.integrations.langgraph import wire
from refold.integrations.langgraph.ahead import Ahead
from refold.integrations.langgraph.backend import Backend, thread_path
from refold.integrations.langgraph.courier import Carrier
from refold.integrations.langgraph.memo import Memo
from refold.integrations.langgraph.writer import Tenure, Writer

MAX_WRITERS = 10_000
"""Threads of which this process remembers what it knows; it reads the others again."""

PRUNE_TURNS, PRUNE_PAUSE_S = 20, 0.05
"""How often pruning is tried while others write to the thread."""


class Threads:
    """Threads of checkpoints in one backend, for any number of callers.

    With a ``folder`` what is saved goes into a journal there, and reaches the backend later (see ``Ahead``).
    """

    def __init__(self, backend: Backend, folder: Path | None, max_bytes: int) -> None:
        self._backend = backend
        self._lock = threading.Lock()
        self._writers: OrderedDict[str, Writer] = OrderedDict()
        self._memo = Memo()
        self.ahead: Ahead | None = None
        self._carrier: Carrier = backend.courier
        if folder is not None:
            own = backend.own_folder(folder)
            self._carrier = self.ahead = Ahead(backend.connect, own, backend.timeout_s, max_bytes)
            self._inherit(self.ahead)

    def close(self) -> None:
        """Send what waits."""
        self._carrier.close()

    # ---- reading

    def read(self, thread: str, namespace: str, asked: str | None) -> wire.Raw | None:
        """The checkpoint's document: the one in memory, where the backend says that the thread is where it was.

        While what this process saved has not reached the backend, the one in memory is the newest.
        """
        if self.ahead is not None and self.ahead.waits(thread):
            mine, document = self._unsent(self.ahead, thread, namespace, asked)
            if mine:
                return document
        self.arrive(thread)
        return self._ask(thread, namespace, asked)

    def pages(self, thread: str | None, path: str, **params: Any) -> Iterator[wire.Raw]:
        """All documents of a list that is about a thread, or about all of them."""
        self.arrive(thread)
        yield from self._backend.pages(path, **params)

    def arrive(self, thread: str | None) -> None:
        """Wait until the backend has all that was saved of a thread, or of all. Raises Unavailable, Conflict."""
        if self.ahead is not None:
            self.ahead.arrive(thread)
            if thread is not None:
                with self._lock:
                    self._tell(self._writer(thread))

    # ---- writing

    def save(self, thread: str, type: str, data: wire.Raw, *, forks: bool = False) -> Future[None]:
        """Number the events that say this, and hand them in, in one step; ``push`` them then. Raises Conflict."""
        run = wire.run_of(thread)
        if self.ahead is not None:
            self.ahead.room()
        with self._lock:
            known = self._writer(thread).known
        if not known:
            self.read(thread, data.get("namespace", ""), None)
        events = wire.events_of(run, type, data)
        with self._lock:
            writer = self._writer(thread)
            self._tell(writer)
            if type == "thread.written":
                writer.check_there(data["namespace"], data["checkpoint"])
            elif not forks:
                writer.check(data["namespace"], data["checkpoint"], data["parent"])
            future = self._carrier.hand(wire.numbered(events, writer.number(len(events))), writer.tenure)
            self._remember(writer, type, data)
        return future

    def push(self) -> None:
        """What the caller's thread must do once it has handed in what it waits for."""
        self._carrier.push()

    def wait(self, thread: str, future: Future[None]) -> None:
        """Until what ``save`` handed in is safe. Raises Conflict, Refused, Unavailable."""
        try:
            future.result()
        except RefoldError as error:
            raise self._failed(thread, error) from None

    async def wait_async(self, thread: str, future: Future[None]) -> None:
        """As ``wait``."""
        try:
            await asyncio.shield(asyncio.wrap_future(future))
        except RefoldError as error:
            raise self._failed(thread, error) from None

    # ---- giving up

    def prune(self, thread: str, told: Callable[[], wire.Raw]) -> None:
        """Give up what ``told`` says, which is asked once the thread's number is known.

        Whoever writes to the thread after that takes the next number, and it is told anew: what that one saved is not
        given up by a list which was made before. Raises Conflict when others keep on writing.
        """
        why = ""
        for turn in range(PRUNE_TURNS):
            if turn:
                time.sleep(PRUNE_PAUSE_S)
            if self.ahead is not None:
                self.ahead.arrive(thread)
            document = self._backend.document(thread_path(thread))
            if document is None:
                return
            try:
                if self._give_up(thread, document["seq"], told()):
                    return
            except Conflict as error:
                why = str(error)
        raise Conflict(f"thread {thread!r} is being written to: {why}; nothing was given up, try again", code="thread")

    def _give_up(self, thread: str, seq: int, data: wire.Raw) -> bool:
        """Prune a thread whose last event has the number ``seq``; False while saves of this process are on their way.

        A run of this process that knows of all before goes on; one that was overtaken stays so. Raises Conflict.
        """
        events = wire.numbered(wire.events_of(wire.run_of(thread), "thread.pruned", data), seq + 1)
        with self._lock:
            writer = self._writer(thread)
            ours = writer.known and not writer.lost and not writer.tenure.lost and writer.seq >= seq
            if ours and writer.seq > seq:
                return False
            if ours:
                writer.number(len(events))
                writer.give_up(data.get("keep"), data.get("drop", ()))
            self._memo.drop_thread(thread)
            tenure = writer.tenure if ours else Tenure(thread)
            future = self._carrier.hand(events, tenure)
        self.push()
        try:
            future.result()
            if self.ahead is not None:
                self.ahead.arrive(thread)
            if tenure.lost is not None:
                raise tenure.lost
        except RefoldError as error:
            raise self._failed(thread, error) if ours else error from None
        return True

    # ---- inside

    def _ask(self, thread: str, namespace: str, asked: str | None) -> wire.Raw | None:
        place = thread, namespace
        known = None
        with self._lock:
            if not asked and self._memo.holds(place):
                known, document = self._writer(thread).seq, self._memo.get(place)
        answer = self._backend.document(thread_path(thread), namespace=namespace, checkpoint=asked, known=known)
        if answer is not None and answer.get("unchanged"):
            return document
        seq, head, checkpoint = (answer["seq"], answer["head"], answer["checkpoint"]) if answer else (0, "", None)
        with self._lock:
            writer = self._writer(thread)
            if writer.learn(seq, namespace, head, (asked or "") if checkpoint else ""):
                self._memo.drop_thread(thread)
            if seq == writer.seq and not asked:
                self._memo.put(place, checkpoint)
        return checkpoint

    def _unsent(self, ahead: Ahead, thread: str, namespace: str, asked: str | None) -> tuple[bool, wire.Raw | None]:
        """Whether memory tells what a read asks for, while the backend lacks it; and that.

        What a dead process left may be old: others may have gone on. So the backend is asked where it answers.
        """
        if ahead.inherits(thread) and ahead.caught_up(thread):
            return False, None
        place = thread, namespace
        with self._lock:
            writer = self._writer(thread)
            if not writer.known or writer.lost or writer.tenure.lost or not self._memo.holds(place):
                return False, None
            document = self._memo.get(place)
            head = document["checkpoint"] if document else ""
            if asked and asked != head:
                return False, None
            writer.heads[namespace] = max(head, writer.heads.get(namespace, ""))
            return True, document

    def _remember(self, writer: Writer, type: str, data: wire.Raw) -> None:
        """What was handed in; reads use it when the backend has it. Under the lock."""
        if type == "thread.advanced":
            writer.advance(data["namespace"], data["checkpoint"])
            self._memo.advance(writer.thread, data)
        elif type == "thread.written":
            self._memo.write(writer.thread, data)
        else:
            writer.give_up(data.get("keep"), data.get("drop") or ())
            self._memo.drop_thread(writer.thread)

    def _inherit(self, ahead: Ahead) -> None:
        """Know what a dead process left as if it were one's own; of a thread that is there as a whole, its state."""
        for tenure, events in ahead.inherited().items():
            thread, seqs = tenure.thread, [event.get("seq", 0) for event in events]
            writer = self._writer(thread)
            writer.seq, writer.known, writer.tenure = seqs[-1], True, tenure
            self._memo.drop_thread(thread)
            happened = list(wire.said(events)) if seqs == list(range(1, len(seqs) + 1)) else []
            for namespace in {data["namespace"] for _, data in happened if "namespace" in data}:
                self._memo.put((thread, namespace), None)  # nothing was there before
            for type, data in happened:
                self._remember(writer, type, data)

    def _tell(self, writer: Writer) -> None:
        """Raise, once, what became of saves that were safe on this machine and that the backend has not taken."""
        error = writer.tenure.lost
        if error is not None and not writer.lost:
            raise self._lose(writer, error)

    def _failed(self, thread: str, error: RefoldError) -> RefoldError:
        with self._lock:
            return self._lose(self._writer(thread), error)

    def _lose(self, writer: Writer, error: RefoldError) -> RefoldError:
        """What was not saved leaves a hole in the numbers: nothing more of this run can be. Under the lock."""
        writer.lost = writer.lost or str(error)
        self._memo.drop_thread(writer.thread)
        return writer.conflict(str(error)) if isinstance(error, Conflict) else error

    def _writer(self, thread: str) -> Writer:
        """Under the lock."""
        writer = self._writers.get(thread)
        if writer is None:
            writer = self._writers[thread] = Writer(thread)
            if len(self._writers) > MAX_WRITERS:
                forgotten, _ = self._writers.popitem(last=False)
                self._memo.drop_thread(forgotten)
        self._writers.move_to_end(thread)
        return writer
