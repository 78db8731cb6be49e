"""The async client: a task of the event loop sends what the agent records. It lives in one event loop."""

from __future__ import annotations

import asyncio
import atexit
import inspect
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from refold.blocks import CallCore, StepCore, arguments_of
from refold.contexts import ContextOptions
from refold.core import RunCore, RunWords
from refold.delivery import Batch, Delivery, Ticket, logger
from refold.envelope import Draft, Wait, envelope
from refold.errors import Conflict, NoCheckpoint, NotFound, RefoldError, Refused, Unavailable
from refold.opening import Client
from refold.plain import plain
from refold.reads import AsyncReads
from refold.resume import Resume, check_note, resume_params, resume_path, task_path
from refold.settling import settle_async
from refold.transport import AsyncTransport, connect_async
from refold.vocabulary import note_draft

if TYPE_CHECKING:
    from typing_extensions import Unpack  # only mypy reads it: typing has it from Python 3.11 on

T = TypeVar("T")
AlreadyDone = Callable[[str], Any]
"""As in the sync client; it may be a coroutine function."""


class AsyncRefold(AsyncReads, Client["AsyncRun"]):
    """The async client; use it as ``async with AsyncRefold(...) as client``. See ``Client`` for its arguments."""

    _delivery: Delivery
    _transport: AsyncTransport
    _loop: asyncio.AbstractEventLoop | None
    _task: asyncio.Task[None] | None
    _stopping: bool
    _closed: bool

    async def __aenter__(self) -> AsyncRefold:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def publish(self, type: str, data: Mapping[str, Any], *, wait: Wait = Wait.NO, **names: str) -> None:
        """Publish an event outside any run; ``names`` (user, session, task ...) override the client's own."""
        draft = Draft(type, plain(data), wait, counted=False)
        await self.send(draft, lambda put: put(envelope(draft, self._options.scope.narrow(**names))))

    async def resume(
        self, task: str, *, after: str = "", knows: str = "", config: Mapping[str, str | None] | None = None
    ) -> Resume:
        """What earlier attempts at a task left, at least up to the position token ``after``.

        ``config`` (see ``configured``) is compared with what they were configured with, ``knows`` (the schema version
        of checkpoints that the caller knows) with that of the last checkpoint: see ``changed`` and
        ``checkpoint_schema``.

        Raises NoCheckpoint when there is nothing, Unavailable when the backend does not answer or is not that far.
        """
        try:
            document = await self.get(resume_path(task), **resume_params(after, knows, config))
        except NotFound as error:
            raise NoCheckpoint(str(error)) from None
        return Resume.read(task, document)

    async def _read(self, path: str, params: dict[str, Any]) -> Any:
        return await self._transport.get(path, params)

    async def flush(self, timeout_s: float = 10.0) -> bool:
        """Wait until all that was recorded, and what earlier processes left, is delivered; False if not in time."""
        self._start()
        self._delivery.adopt()
        self._delivery.hurry()
        return await self._until(lambda: self._delivery.idle, timeout_s)

    async def close(self, timeout_s: float = 5.0) -> None:
        """Deliver what waits, or keep it in the spool when the backend is away. May be repeated."""
        if self._closed:
            return
        if not self._delivery.idle:
            self._start()
            failures = self._delivery.failures
            self._delivery.hurry()
            await self._until(lambda: self._delivery.idle or self._delivery.failures > failures, timeout_s)
        self._closed = self._stopping = True
        if self._task is not None:
            self._wake.set()
            _, late = await asyncio.wait([self._task], timeout=timeout_s)
            if late:
                self._task.cancel()
        self._delivery.close()
        await self._transport.close()

    # ---- for runs

    async def send(self, draft: Draft, publish: Callable[[Callable[[dict[str, Any]], None]], None]) -> str:
        """Put a draft in line and wait as it asks; returns its position token where it waited for one.

        ``publish`` gives the event to the function it is called with.
        """
        loop = self._start()
        if self._delivery.full and not await self._make_room():
            return ""
        if draft.wait is Wait.NO and not draft.must_pass:
            publish(lambda event: self._delivery.put(event, time.monotonic()))
            return ""
        changed = asyncio.Event()
        ticket = Ticket(lambda: _in_loop(loop, changed.set))
        publish(lambda event: self._delivery.put(event, time.monotonic(), ticket))
        await self._follow(draft, ticket, changed)
        return ticket.outcome.token if ticket.outcome else ""

    async def _follow(self, draft: Draft, ticket: Ticket, changed: asyncio.Event) -> None:
        deadline_s = time.monotonic() + self._options.timeout_s
        while not ticket.ends(draft.wait) and time.monotonic() < deadline_s:
            changed.clear()
            if not ticket.ends(draft.wait):
                await _wait(changed, deadline_s - time.monotonic())
        ticket.conclude(draft, self._delivery.absence)

    async def _make_room(self) -> bool:
        room = await self._until(lambda: not self._delivery.full, self._options.timeout_s)
        if room or self._delivery.overflow():
            return True
        self._delivery.dropped += 1
        logger.error("the queue is full and there is no spool: an event is lost (%d so far)", self._delivery.dropped)
        return False

    # ---- the sender

    def _open(self) -> None:
        self._closed = self._stopping = False
        options = self._options
        self._delivery = Delivery(options.policy, options.open_spool(), self._wake_up)
        self._transport = connect_async(options.url, options.ack, options.scope.org, options.api_key, options.timeout_s)
        self._wake = asyncio.Event()
        self._settled = asyncio.Event()
        self._loop = None
        self._task = None
        _live.add(self._delivery)

    def _new_run(self, core: RunCore, resume: bool) -> AsyncRun:
        return AsyncRun(self, core, resume=resume)

    def _wake_up(self) -> None:
        if self._loop is not None:
            _in_loop(self._loop, self._wake.set)

    def _start(self) -> asyncio.AbstractEventLoop:
        if self._closed:
            raise RefoldError("this client is closed")
        if self._task is None or self._loop is None or self._task.done():
            if self._task is not None:
                logger.error("the task that sends events ended: it is started again")
                self._delivery.recover()
            self._loop = asyncio.get_running_loop()
            self._delivery.adopt()
            self._task = self._loop.create_task(self._work(), name="refold-sender")
        return self._loop

    async def _work(self) -> None:
        while not self._stopping:
            self._wake.clear()
            step = await self._off_loop(lambda: self._delivery.next(time.monotonic()))
            if isinstance(step, Batch):
                await self._deliver(step)
            else:
                await _wait(self._wake, step)

    async def _deliver(self, batch: Batch) -> None:
        try:
            answer = await self._transport.send(batch.lines)
            await self._off_loop(lambda: self._delivery.settle(batch, answer, time.monotonic()))
        except Exception as raised:  # noqa: BLE001 - nothing that one event does may keep the others from being sent
            error = raised
            await self._off_loop(lambda: self._delivery.failed(batch, error, time.monotonic()))
        self._settled.set()
        self._settled = asyncio.Event()

    async def _off_loop(self, work: Callable[[], T]) -> T:
        """On a thread while the backend is away: only then the disk is touched."""
        return await asyncio.to_thread(work) if self._delivery.failures else work()

    async def _until(self, true: Callable[[], bool], timeout_s: float) -> bool:
        deadline_s = time.monotonic() + timeout_s
        while not true():
            if time.monotonic() >= deadline_s:
                return False
            await _wait(self._settled, deadline_s - time.monotonic())
        return True


class AsyncRun(RunWords[Coroutine[Any, Any, None]]):
    """One attempt at a task; every word of it is awaited. See ``refold.Run``."""

    def __init__(self, client: AsyncRefold, core: RunCore, *, resume: bool) -> None:
        self.core = core
        self._client = client
        self._resume = resume

    async def __aenter__(self) -> AsyncRun:
        earlier = await self._earlier() if self._resume else None
        if earlier is not None:
            self.core.consider(earlier)
        token = await self._send(self.core.start(earlier, resume=self._resume))
        if earlier is not None:
            # now that older attempts can add nothing, what they left is final
            left = await self._client.resume(self.task, after=token, knows=self.core.checkpoint_version)
            self.core.learn(left, earlier)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            await self.record_all(self.core.end(error))
            await settle_async(self, error)
        except Conflict:
            if error is None:
                raise
            logger.warning("run %s lost its task before it ended", self.id)

    async def note(
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
            await self.record(draft)
            return
        self._client.must_answer("`expected_version` asks whether a note is as it was")
        self._still_ours()
        written: list[str] = []
        token = await self._client.send(draft, lambda put: self.core.publish_told(draft, put, written))
        check_note(await self._client.get(task_path(self.task), after=token), written[0])

    async def context(self, query: str = "", **options: Unpack[ContextOptions]) -> dict[str, Any]:
        """The client's ``context`` of this run's task, with everything in it that was recorded so far."""
        await self._client.flush()
        return await self._client.context(self.task, query, **options)

    async def policy(self, *, tokens: int | None = None, **context: Any) -> dict[str, Any]:
        """The client's ``policy`` for this run's task, with everything in it that was recorded so far."""
        await self._client.flush()
        return await self._client.policy(task=self.task, tokens=tokens, **context)

    async def record_all(self, drafts: Sequence[Draft]) -> None:
        """Publish drafts under this run, in order. Raises Conflict once another worker has taken over the task."""
        for draft in drafts:
            self._still_ours()
            await self._send(draft)

    def step(self, step: str, title: str = "") -> AsyncStep:
        """``async with run.step(id)``: the step completes, or fails, as its block does."""
        return AsyncStep(self, StepCore(self.core, step, title))

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
    ) -> AsyncTool:
        """A tool call, as a block (``async with``) or around a coroutine function; see ``Run.tool``."""

        if side_effect:
            self._client.must_answer("a call with `side_effect=True` is recorded durably before its effect")

        def core(given: Any) -> CallCore:
            return CallCore(self.core, name, given, side_effect=side_effect, step=step, key=key)

        return AsyncTool(self, core, arguments, already_done, expected_s)

    async def call(
        self, name: str, function: Callable[..., Awaitable[T]], arguments: Mapping[str, Any], **how: Any
    ) -> T:
        """Await ``function(**arguments)`` as a tool; ``how`` as in ``tool``."""
        async with self.tool(name, arguments, **how) as call:
            if not call.done:
                call.result = await function(**arguments)
        result: T = call.result
        return result

    async def late(self, drafts: Sequence[Draft]) -> None:
        """Publish the ends of calls of a run that has lost its task."""
        for draft in drafts:
            await self._send(draft)

    def _still_ours(self) -> None:
        conflict = self._client.conflict(self.id)
        if conflict is not None:
            raise conflict

    async def _send(self, draft: Draft) -> str:
        return await self._client.send(draft, lambda put: self.core.publish(draft, put))

    async def _earlier(self) -> Resume | None:
        if not await self._client.flush():
            raise Unavailable(f"what earlier attempts left unsent is not delivered: {self._client.absence}")
        try:
            core = self.core
            return await self._client.resume(self.task, knows=core.checkpoint_version, config=core.versions)
        except NoCheckpoint:
            return None


class AsyncStep:
    """The block of one step; see ``refold.blocks.StepCore`` for what can be set on it."""

    def __init__(self, run: AsyncRun, core: StepCore) -> None:
        self._run = run
        self._core = core

    async def __aenter__(self) -> StepCore:
        await self._run.record_all(self._core.opening())
        return self._core

    async def __aexit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._run.record_all(self._core.closing(error))


class AsyncTool:
    """The block of one call, or what wraps a coroutine function so that each of its calls is one."""

    def __init__(
        self,
        run: AsyncRun,
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

    async def __aenter__(self) -> CallCore:
        call = self._core
        if call.must_ask(self._already_done is not None) and self._already_done is not None:
            found = self._already_done(call.key)
            call.found(await found if inspect.isawaitable(found) else found)
        try:
            await self._run.record_all(call.opening(self._expected_s))
        except (Unavailable, Refused) as error:
            await self._run.record_all(call.not_called(error))
            raise
        return call

    async def __aexit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        drafts = self._core.closing(error)
        try:
            await self._run.record_all(drafts)
        except Conflict:
            await self._run.late(self._core.late(drafts))
            raise

    def __call__(self, function: Callable[..., Awaitable[T]]) -> Callable[..., Coroutine[Any, Any, T]]:
        """Make each call of a coroutine function a tool call with its own arguments."""

        @wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> T:
            named = arguments_of(function, args, kwargs)
            async with AsyncTool(self._run, self._make, named, self._already_done, self._expected_s) as call:
                if not call.done:
                    call.result = await function(*args, **kwargs)
            result: T = call.result
            return result

        return wrapper


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    """Until the event is set, or the time is over. (``asyncio.wait_for`` of Python 3.11 can lose a cancellation.)"""
    timer = asyncio.get_running_loop().call_later(timeout_s, event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()


def _in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(call)


_live: weakref.WeakSet[Delivery] = weakref.WeakSet()


def _at_exit() -> None:
    """A client that was never closed: its loop is gone, so its events go to the spool."""
    for delivery in list(_live):
        delivery.close()


atexit.register(_at_exit)
