"""The sync client: a thread of its own sends what the agent records."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from refold import ids
from refold.blocks import CallCore, StepCore, arguments_of
from refold.contexts import ContextOptions
from refold.core import RunCore, RunWords
from refold.delivery import Batch, Delivery, Ticket, logger
from refold.envelope import Draft, Wait, envelope
from refold.errors import Conflict, NoCheckpoint, NotFound, RefoldError, Refused, Unavailable
from refold.opening import Client
from refold.plain import plain
from refold.reads import Reads
from refold.resume import Resume, check_note, resume_params, resume_path, task_path
from refold.settling import settle
from refold.transport import Transport, connect
from refold.vocabulary import note_draft

if TYPE_CHECKING:
    from typing_extensions import Unpack  # only mypy reads it: typing has it from Python 3.11 on

T = TypeVar("T")
AlreadyDone = Callable[[str], Any]
"""Given a call's idempotency key; returns what the effect gave (or True), or None (or False) when it was not done."""


class Refold(Reads, Client["Run"]):
    """The sync client. Thread-safe; close it, or use it in a ``with`` block. See ``Client`` for its arguments."""

    _delivery: Delivery
    _transport: Transport
    _wake: threading.Event
    _thread: threading.Thread | None
    _forked: bool
    _stopping: bool
    _closed: bool

    def __enter__(self) -> Refold:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def publish(self, type: str, data: Mapping[str, Any], *, wait: Wait = Wait.NO, **names: str) -> None:
        """Publish an event outside any run; ``names`` (user, session, task ...) override the client's own."""
        draft = Draft(type, plain(data), wait, counted=False)
        self.send(draft, lambda put: put(envelope(draft, self._options.scope.narrow(**names))))

    def resume(
        self, task: str, *, after: str = "", knows: str = "", config: Mapping[str, str | None] | None = None
    ) -> Resume:
        """What earlier attempts at a task left, at least up to the position token ``after``.

        ``config`` (see ``configured``) is compared with what they were configured with, ``knows`` (the schema version
        of checkpoints that the caller knows) with that of the last checkpoint: see ``changed`` and
        ``checkpoint_schema``.

        Raises NoCheckpoint when there is nothing, Unavailable when the backend does not answer or is not that far.
        """
        try:
            document = self.get(resume_path(task), **resume_params(after, knows, config))
        except NotFound as error:
            raise NoCheckpoint(str(error)) from None
        return Resume.read(task, document)

    def _read(self, path: str, params: dict[str, Any]) -> Any:
        self._start()
        return self._transport.get(path, params)

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Wait until everything recorded so far, and whatever earlier processes left in the spool, is delivered.

        False when that did not happen in time; the events are kept.
        """
        self._start()
        self._delivery.adopt()
        self._delivery.hurry()
        return self._until(lambda: self._delivery.idle, timeout_s)

    def close(self, timeout_s: float = 5.0) -> None:
        """Deliver what waits, or keep it in the spool when the backend is away. May be repeated."""
        if self._closed or self._forked:
            return
        if not self._delivery.idle:
            self._start()
            failures = self._delivery.failures
            self._delivery.hurry()
            self._until(lambda: self._delivery.idle or self._delivery.failures > failures, timeout_s)
        self._closed = self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
        self._delivery.close()
        if self._thread is None or not self._thread.is_alive():
            self._transport.close()

    # ---- for runs

    def send(self, draft: Draft, publish: Callable[[Callable[[dict[str, Any]], None]], None]) -> str:
        """Put a draft in line and wait as it asks; returns its position token where it waited for one.

        ``publish`` gives the event to the function it is called with.
        """
        self._start()
        if self._delivery.full and not self._make_room():
            return ""
        if draft.wait is Wait.NO and not draft.must_pass:
            publish(lambda event: self._delivery.put(event, time.monotonic()))
            return ""
        changed = threading.Event()
        ticket = Ticket(changed.set)
        publish(lambda event: self._delivery.put(event, time.monotonic(), ticket))
        self._follow(draft, ticket, changed)
        return ticket.outcome.token if ticket.outcome else ""

    def _follow(self, draft: Draft, ticket: Ticket, changed: threading.Event) -> None:
        deadline_s = time.monotonic() + self._options.timeout_s
        while not ticket.ends(draft.wait):
            changed.clear()
            if not ticket.ends(draft.wait) and not changed.wait(deadline_s - time.monotonic()):
                break
        ticket.conclude(draft, self._delivery.absence)

    def _make_room(self) -> bool:
        if self._until(lambda: not self._delivery.full, self._options.timeout_s) or self._delivery.overflow():
            return True
        self._delivery.dropped += 1
        logger.error("the queue is full and there is no spool: an event is lost (%d so far)", self._delivery.dropped)
        return False

    # ---- the sender

    def _open(self) -> None:
        self._closed = False
        options = self._options
        self._wake = threading.Event()
        self._settled = threading.Condition()
        self._transport = connect(options.url, options.ack, options.scope.org, options.api_key, options.timeout_s)
        self._delivery = Delivery(options.policy, options.open_spool(), self._wake.set)
        self._thread = None
        self._starting = threading.Lock()
        self._forked = False
        self._stopping = False
        _live.add(self)

    def _new_run(self, core: RunCore, resume: bool) -> Run:
        return Run(self, core, resume=resume)

    def _start(self) -> None:
        if self._thread is not None and self._thread.is_alive() and not self._forked:
            return
        with self._starting:
            if self._forked:
                self._open()
            if self._closed:
                raise RefoldError("this client is closed")
            if self._thread is None or not self._thread.is_alive():
                if self._thread is not None:
                    logger.error("the thread that sends events died: it is started again")
                    self._delivery.recover()
                self._delivery.adopt()
                self._thread = threading.Thread(target=self._work, name="refold-sender", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while not self._stopping:
            step = self._delivery.next(time.monotonic())
            if isinstance(step, Batch):
                self._deliver(step)
                with self._settled:
                    self._settled.notify_all()
            else:
                self._wake.wait(step)
                self._wake.clear()

    def _deliver(self, batch: Batch) -> None:
        try:
            answer = self._transport.send(batch.lines)
            self._delivery.settle(batch, answer, time.monotonic())
        except Exception as error:  # noqa: BLE001 - nothing that one event does may keep the others from being sent
            self._delivery.failed(batch, error, time.monotonic())

    def _until(self, true: Callable[[], bool], timeout_s: float) -> bool:
        with self._settled:
            return self._settled.wait_for(true, timeout_s)

    def after_fork(self) -> None:
        """In a forked child: what the parent queued is the parent's to send; the child begins with nothing."""
        self._delivery.abandon()
        self._starting = threading.Lock()  # a thread of the parent may have held it in the moment of the fork
        self._forked = True


class Run(RunWords[None]):
    """One attempt at a task. How its block ends is how the run ends (see ``refold.core.reason_of``)."""

    def __init__(self, client: Refold, core: RunCore, *, resume: bool) -> None:
        self.core = core
        self._client = client
        self._resume = resume

    def __enter__(self) -> Run:
        earlier = self._earlier() if self._resume else None
        if earlier is not None:
            self.core.consider(earlier)
        token = self._send(self.core.start(earlier, resume=self._resume))
        if earlier is not None:
            # now that older attempts can add nothing, what they left is final
            left = self._client.resume(self.task, after=token, knows=self.core.checkpoint_version)
            self.core.learn(left, earlier)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.record_all(self.core.end(error))
            settle(self, error)
        except Conflict:
            if error is None:
                raise
            logger.warning("run %s lost its task before it ended", self.id)

    def note(
        self,
        key: str,
        content: Any,
        *,
        category: str = "",
        ttl_s: float | None = None,
        expected_version: int | None = None,
    ) -> None:
        """A keyed note of the task; it takes the place of the former one.

        With ``expected_version`` (0: there is none yet) it does so only where that is the note's version, and raises
        NoteConflict where it is not; Unavailable when the backend does not tell, RefoldError on the inbox.
        """
        draft = note_draft(key, content, category, ttl_s, expected_version)
        if expected_version is None:
            self.record(draft)
            return
        self._client.must_answer("`expected_version` asks whether a note is as it was")
        self._still_ours()
        written: list[str] = []
        token = self._client.send(draft, lambda put: self.core.publish_told(draft, put, written))
        check_note(self._client.get(task_path(self.task), after=token), written[0])

    def context(self, query: str = "", **options: Unpack[ContextOptions]) -> dict[str, Any]:
        """The client's ``context`` of this run's task, with everything in it that was recorded so far."""
        self._client.flush()
        return self._client.context(self.task, query, **options)

    def policy(self, *, tokens: int | None = None, **context: Any) -> dict[str, Any]:
        """The client's ``policy`` for this run's task, with everything in it that was recorded so far."""
        self._client.flush()
        return self._client.policy(task=self.task, tokens=tokens, **context)

    def record_all(self, drafts: Sequence[Draft]) -> None:
        """Publish drafts under this run, in order. Raises Conflict once another worker has taken over the task."""
        for draft in drafts:
            self._still_ours()
            self._send(draft)

    def step(self, step: str, title: str = "") -> Step:
        """``with run.step(id)``: the step completes or fails as its block does. An id is the same in every attempt."""
        return Step(self, StepCore(self.core, step, title))

    def tool(
        self,
        name: str,
        arguments: Any = None,
        *,
        side_effect: bool = False,
        already_done: AlreadyDone | None = None,
        step: str | None = None,
        key: str | None = None,
        expected_s: float | None = None,
    ) -> Tool:
        """A tool call, as a block (``with run.tool(...) as call``) or around a function (``@run.tool(...)``).

        With ``side_effect`` the call is durable before the block runs; else the block does not run, and Unavailable is
        raised, or Refused when the backend refuses the call, or RefoldError at once on the inbox, which cannot tell.
        A resumed run asks ``already_done`` first; where the effect was done, ``call.done`` is true and the block must
        not repeat it (a decorated function is not called); UncertainEffect is raised where nobody can tell. Give
        ``key`` where two equal calls of one step are two effects.
        """

        if side_effect:
            self._client.must_answer("a call with `side_effect=True` is recorded durably before its effect")

        def core(given: Any) -> CallCore:
            return CallCore(self.core, name, given, side_effect=side_effect, step=step, key=key)

        return Tool(self, core, arguments, already_done, expected_s)

    def call(self, name: str, function: Callable[..., T], arguments: Mapping[str, Any], **how: Any) -> T:
        """Call ``function(**arguments)`` as a ``tool``; returns what it gave, now or in an earlier attempt."""
        with self.tool(name, arguments, **how) as call:
            if not call.done:
                call.result = function(**arguments)
        result: T = call.result
        return result

    def late(self, drafts: Sequence[Draft]) -> None:
        """Publish the ends of calls of a run that has lost its task."""
        for draft in drafts:
            self._send(draft)

    def _still_ours(self) -> None:
        conflict = self._client.conflict(self.id)
        if conflict is not None:
            raise conflict

    def _send(self, draft: Draft) -> str:
        return self._client.send(draft, lambda put: self.core.publish(draft, put))

    def _earlier(self) -> Resume | None:
        if not self._client.flush():
            raise Unavailable(f"what earlier attempts left unsent is not delivered: {self._client.absence}")
        try:
            core = self.core
            return self._client.resume(self.task, knows=core.checkpoint_version, config=core.versions)
        except NoCheckpoint:
            return None


class Step:
    """The block of one step; see ``refold.blocks.StepCore`` for what can be set on it."""

    def __init__(self, run: Run, core: StepCore) -> None:
        self._run = run
        self._core = core

    def __enter__(self) -> StepCore:
        self._run.record_all(self._core.opening())
        return self._core

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        self._run.record_all(self._core.closing(error))


class Tool:
    """The block of one call, or what wraps a function so that each of its calls is one."""

    def __init__(
        self,
        run: Run,
        core: Callable[[Any], CallCore],
        arguments: Any,
        already_done: AlreadyDone | None,
        expected_s: float | None,
    ) -> None:
        self._run = run
        self._make = core
        self._core = core(arguments)
        self._already_done = already_done
        self._expected_s = expected_s

    def __enter__(self) -> CallCore:
        call = self._core
        if call.must_ask(self._already_done is not None) and self._already_done is not None:
            call.found(self._already_done(call.key))
        try:
            self._run.record_all(call.opening(self._expected_s))
        except (Unavailable, Refused) as error:
            self._run.record_all(call.not_called(error))
            raise
        return call

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        drafts = self._core.closing(error)
        try:
            self._run.record_all(drafts)
        except Conflict:
            self._run.late(self._core.late(drafts))
            raise

    def __call__(self, function: Callable[..., T]) -> Callable[..., T]:
        """Make each call of ``function`` a tool call with its own arguments."""

        @wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> T:
            named = arguments_of(function, args, kwargs)
            with Tool(self._run, self._make, named, self._already_done, self._expected_s) as call:
                if not call.done:
                    call.result = function(*args, **kwargs)
            result: T = call.result
            return result

        return wrapper


_live: weakref.WeakSet[Refold] = weakref.WeakSet()


def _at_exit() -> None:
    for client in list(_live):
        client.close()


def _after_fork() -> None:
    ids.after_fork()
    for client in list(_live):
        client.after_fork()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
