"""The checkpointer: LangGraph's threads in Refold."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import chain
from secrets import randbits
from types import TracebackType
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from typing_extensions import Self

from refold.errors import Conflict, RefoldError
from refold.integrations.langgraph import pruning, wire
from refold.integrations.langgraph.backend import Backend, thread_path
from refold.integrations.langgraph.memo import Memo
from refold.integrations.langgraph.writer import Writer

MAX_WRITERS = 10_000
"""Threads of which this process remembers what it knows; it reads the others again."""

PAGE = 20

PRUNE_TURNS, PRUNE_PAUSE_S = 20, 0.05
"""How often pruning is tried while others write to the thread."""


class RefoldSaver(BaseCheckpointSaver[str]):
    """Keeps the threads of a graph in Refold; sync and async methods of one object, for any number of threads.

    ``url`` is ``http://HOST:PORT``, or left out: ``REFOLD_URL``, else the instance whose data folder is ``REFOLD_DATA``
    or ``.refold`` here, else http://127.0.0.1:8321. ``org`` (left out: ``REFOLD_ORG``) is a wall: threads of others do
    not exist. ``timeout_s`` bounds every wait for the backend.

    ``put`` and ``put_writes`` return when what they save is durable: in the backend's archive, synced to disk. They
    raise Conflict when another process has written on to the thread since this run began, so that a thread is never
    forked unless an older checkpoint was asked for by its id; Unavailable when the backend does not answer in time;
    Refused when it refuses; ValueError for a ``thread_id`` of more than 240 characters. Reads hold everything that was
    durable when they began.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        org: str = "",
        api_key: str = "",
        serde: SerializerProtocol | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        super().__init__(serde=serde)
        self._backend = Backend(url, org, api_key, timeout_s)
        self._lock = threading.Lock()
        self._writers: OrderedDict[str, Writer] = OrderedDict()
        self._memo = Memo()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Let connections go. What ``put`` and ``put_writes`` returned for is durable already."""
        self._backend.close()

    # ---- reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that ``config`` names, or the newest of its namespace; None when there is none."""
        thread, namespace = _place(config)
        asked = get_checkpoint_id(config)
        document = self._read(thread, namespace, asked)
        return wire.found(self.serde, document, config if asked else None) if document else None

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """As ``get_tuple``."""
        return await asyncio.to_thread(self.get_tuple, config)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, the newest first: of a thread, or without ``config`` of all threads.

        ``filter``: members that the metadata must have; ``before``: only those older than the one it names.
        """
        left = -1 if limit is None else limit
        if left == 0:
            return
        for document in self._documents(config, filter, before, limit):
            found = wire.found(self.serde, document)
            if wire.fits(found.metadata, filter):
                yield found
                left -= 1
                if left == 0:
                    return

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """As ``list``."""
        found = self.list(config, filter=filter, before=before, limit=limit)
        while (one := await asyncio.to_thread(next, found, None)) is not None:
            yield one

    # ---- writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint, and the channel values that are new in it. The config that names it."""
        self._wait(*self._put(config, checkpoint, metadata, new_versions))
        return wire.config_of(*_place(config), checkpoint["id"])

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """As ``put``."""
        await self._await(*await asyncio.to_thread(self._put, config, checkpoint, metadata, new_versions))
        return wire.config_of(*_place(config), checkpoint["id"])

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Save what a task wrote after a checkpoint."""
        self._wait(*self._put_writes(config, writes, task_id, task_path))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """As ``put_writes``."""
        await self._await(*await asyncio.to_thread(self._put_writes, config, writes, task_id, task_path))

    # ---- giving up, copying

    def delete_thread(self, thread_id: str) -> None:
        """Give up all checkpoints and writes of a thread."""
        self._prune(thread_id, lambda: {"keep": []})

    async def adelete_thread(self, thread_id: str) -> None:
        """As ``delete_thread``."""
        await asyncio.to_thread(self.delete_thread, thread_id)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Give up the checkpoints that the metadata say these runs made, with their writes, in every thread."""
        doomed: dict[str, list[list[str]]] = {}
        for run_id in run_ids:
            filter = wire.wanted({"run_id": run_id})
            for document in self._backend.pages("/v1/checkpoints", metadata=filter, limit=PAGE):
                doomed.setdefault(document["thread"], []).append([document["namespace"], document["checkpoint"]])
        for thread, places in doomed.items():
            self._prune(thread, partial(dict, drop=places))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """As ``delete_for_runs``."""
        await asyncio.to_thread(self.delete_for_runs, run_ids)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy every checkpoint and write of a thread into another one, the oldest first."""
        documents = list(self._backend.pages(f"{thread_path(source_thread_id)}/checkpoints", limit=PAGE))
        known: set[tuple[str, str, str]] = set()
        said = chain.from_iterable(wire.copied(document, known) for document in reversed(documents))
        handed = [self._hand(target_thread_id, type, data, forks=True) for type, data in said]
        for future in handed:
            self._wait(target_thread_id, future)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """As ``copy_thread``."""
        await asyncio.to_thread(self.copy_thread, source_thread_id, target_thread_id)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Give up all but the newest checkpoint of each namespace (``keep_latest``), or all of them (``delete``).

        Of a graph with delta channels the checkpoints that its newest ones are rebuilt from stay, too. Raises
        ValueError for another strategy.
        """
        if strategy not in ("keep_latest", "delete"):
            raise ValueError(f"the strategy is `keep_latest` or `delete`, not {strategy!r}")
        for thread in thread_ids:
            self._prune(thread, partial(self._kept, thread) if strategy == "keep_latest" else lambda: {"keep": []})

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """As ``prune``."""
        await asyncio.to_thread(self.prune, thread_ids, strategy=strategy)

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Versions grow, and those of two branches of a thread are never the same."""
        count = 0 if current is None else int(str(current).split(".")[0])
        return f"{count + 1:032}.{randbits(64):020}"

    # ---- how

    def _read(self, thread: str, namespace: str, asked: str | None) -> wire.Raw | None:
        """The checkpoint's document: the one in memory, where the backend says that the thread is where it was."""
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
            if writer.learn(seq, namespace, head, asked or ""):
                self._memo.drop_thread(thread)
            if seq == writer.seq and not asked:
                self._memo.put(place, checkpoint)
        return checkpoint

    def _documents(
        self, config: RunnableConfig | None, filter: Any, before: RunnableConfig | None, limit: int | None
    ) -> Iterator[wire.Raw]:
        given = config["configurable"] if config else {}
        path = f"{thread_path(given['thread_id'])}/checkpoints" if config else "/v1/checkpoints"
        return self._backend.pages(
            path,
            namespace=given.get("checkpoint_ns"),
            checkpoint=given.get("checkpoint_id") or None,
            before=get_checkpoint_id(before) if before else None,
            metadata=wire.wanted(filter),
            limit=min(limit or PAGE, PAGE),
        )

    def _put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, versions: ChannelVersions
    ) -> tuple[str, Future[None]]:
        thread, _ = _place(config)
        return thread, self._hand(
            thread, "thread.advanced", wire.advanced(self.serde, config, checkpoint, metadata, versions)
        )

    def _put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> tuple[str, Future[None]]:
        thread, _ = _place(config)
        return thread, self._hand(
            thread, "thread.written", wire.written(self.serde, config, writes, task_id, task_path)
        )

    def _prune(self, thread: str, told: Callable[[], wire.Raw]) -> None:
        """Give up what ``told`` says, which is asked once the thread's number is known.

        Whoever writes to the thread after that takes the next number, and it is told anew: what that one saved is not
        given up by a list which was made before. Raises Conflict when others keep on writing.
        """
        why = ""
        for turn in range(PRUNE_TURNS):
            if turn:
                time.sleep(PRUNE_PAUSE_S)
            document = self._backend.document(thread_path(thread))
            if document is None:
                return
            try:
                if self._give_up(thread, document["seq"], told()):
                    return
            except Conflict as error:
                why = str(error)
        raise Conflict(f"thread {thread!r} is being written to: {why}; nothing was given up, try again", code="thread")

    def _kept(self, thread: str) -> wire.Raw:
        documents = self._backend.pages(f"{thread_path(thread)}/checkpoints", limit=PAGE)
        return {"keep": pruning.needed(self.serde, documents)}

    def _give_up(self, thread: str, seq: int, data: wire.Raw) -> bool:
        """Prune a thread whose last event has the number ``seq``; False while saves of this process are on their way.

        A run of this process that knows of all before goes on; one that was overtaken stays so. Raises Conflict.
        """
        events = wire.numbered(wire.events_of(wire.run_of(thread), "thread.pruned", data), seq + 1)
        with self._lock:
            writer = self._writer(thread)
            ours = writer.known and not writer.lost and writer.seq >= seq
            if ours and writer.seq > seq:
                return False
            if ours:
                writer.number(len(events))
                writer.forget()
            self._memo.drop_thread(thread)
            future = self._backend.courier.hand(events)
        if ours:
            self._wait(thread, future)
        else:
            future.result()
        return True

    def _hand(self, thread: str, type: str, data: wire.Raw, *, forks: bool = False) -> Future[None]:
        """Number the events that say this, and hand them in, in one step. Raises Conflict."""
        run = wire.run_of(thread)
        with self._lock:
            known = self._writer(thread).known
        if not known:
            self._read(thread, data.get("namespace", ""), None)
        events = wire.events_of(run, type, data)
        with self._lock:
            writer = self._writer(thread)
            if type == "thread.advanced" and not forks:
                writer.check(data["namespace"], data["checkpoint"], data["parent"])
            future = self._backend.courier.hand(wire.numbered(events, writer.number(len(events))))
            self._remember(writer, type, data)
        return future

    def _remember(self, writer: Writer, type: str, data: wire.Raw) -> None:
        """What was handed in; reads use it when the backend has it. Under the lock."""
        if type == "thread.advanced":
            writer.advance(data["namespace"], data["checkpoint"])
            self._memo.advance(writer.thread, data)
        else:
            self._memo.write(writer.thread, data)

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

    def _wait(self, thread: str, future: Future[None]) -> None:
        try:
            future.result()
        except RefoldError as error:
            raise self._failed(thread, error) from None

    async def _await(self, thread: str, future: Future[None]) -> None:
        try:
            await asyncio.shield(asyncio.wrap_future(future))
        except RefoldError as error:
            raise self._failed(thread, error) from None

    def _failed(self, thread: str, error: RefoldError) -> RefoldError:
        """What was not saved leaves a hole in the numbers: nothing more of this run can be."""
        with self._lock:
            writer = self._writer(thread)
            writer.lost = writer.lost or str(error)
            self._memo.drop_thread(thread)
        return writer.conflict(str(error)) if isinstance(error, Conflict) else error


def _place(config: RunnableConfig) -> tuple[str, str]:
    return str(config["configurable"]["thread_id"]), config["configurable"].get("checkpoint_ns") or ""
