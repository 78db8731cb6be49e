"""The checkpointer: LangGraph's threads in Refold."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import chain
from pathlib import Path
from random import getrandbits
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

from refold.integrations.langgraph import pruning, wire
from refold.integrations.langgraph.ahead import MAX_WAITING_BYTES, Backlog
from refold.integrations.langgraph.backend import Backend, thread_path
from refold.integrations.langgraph.threads import Threads

PAGE = 20


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

    ``write_ahead`` names a folder on this machine's disk: then they return when what they save is synced to a journal
    there, and it reaches the backend a moment later, in order; after a crash the next saver with that folder sends it
    first. Other machines see it when it is there, and another writer of the thread is found out then: the next ``put``
    or ``get_tuple`` of the thread raises Conflict, and what was not delivered is set aside in a file. Reads of a thread
    of which something waits come from memory, or wait. At most ``write_ahead_bytes`` wait: then ``put`` does, up to
    ``timeout_s``. Raises RefoldError for a folder that cannot be used, or written. Processes may share a folder. In a
    forked process it must be made anew.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        org: str = "",
        api_key: str = "",
        serde: SerializerProtocol | None = None,
        timeout_s: float = 30.0,
        write_ahead: str | os.PathLike[str] | None = None,
        write_ahead_bytes: int = MAX_WAITING_BYTES,
    ) -> None:
        super().__init__(serde=serde)
        self._backend = Backend(url, org, api_key, timeout_s)
        folder = None if write_ahead is None else Path(write_ahead)
        self._threads = Threads(self._backend, folder, write_ahead_bytes)

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
        """Let connections go. What ``put`` and ``put_writes`` returned for is durable already.

        With ``write_ahead`` what waits is sent before; while the backend does not answer, it stays in the folder.
        """
        self._threads.close()
        self._backend.close()

    def flush(self, timeout_s: float = 30.0) -> bool:
        """Whether the backend has all that was saved, after ``timeout_s`` at the latest."""
        return self._threads.ahead is None or self._threads.ahead.flush(timeout_s)

    def backlog(self) -> Backlog:
        """What is saved on this machine and has not reached the backend: nothing, without ``write_ahead``."""
        return self._threads.ahead.backlog() if self._threads.ahead else Backlog(0, 0, 0.0, "")

    # ---- reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that ``config`` names, or the newest of its namespace; None when there is none."""
        thread, namespace = _place(config)
        asked = get_checkpoint_id(config)
        document = self._threads.read(thread, namespace, asked)
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
        self._threads.wait(*self._put(config, checkpoint, metadata, new_versions))
        return wire.config_of(*_place(config), checkpoint["id"])

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """As ``put``."""
        await self._threads.wait_async(*await asyncio.to_thread(self._put, config, checkpoint, metadata, new_versions))
        return wire.config_of(*_place(config), checkpoint["id"])

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Save what a task wrote after a checkpoint."""
        self._threads.wait(*self._put_writes(config, writes, task_id, task_path))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """As ``put_writes``."""
        await self._threads.wait_async(*await asyncio.to_thread(self._put_writes, config, writes, task_id, task_path))

    # ---- giving up, copying

    def delete_thread(self, thread_id: str) -> None:
        """Give up all checkpoints and writes of a thread."""
        self._threads.prune(thread_id, lambda: {"keep": []})

    async def adelete_thread(self, thread_id: str) -> None:
        """As ``delete_thread``."""
        await asyncio.to_thread(self.delete_thread, thread_id)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Give up the checkpoints that the metadata say these runs made, with their writes, in every thread."""
        doomed: dict[str, list[list[str]]] = {}
        for run_id in run_ids:
            filter = wire.wanted({"run_id": run_id})
            for document in self._threads.pages(None, "/v1/checkpoints", metadata=filter, limit=PAGE):
                doomed.setdefault(document["thread"], []).append([document["namespace"], document["checkpoint"]])
        for thread, places in doomed.items():
            self._threads.prune(thread, partial(dict, drop=places))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """As ``delete_for_runs``."""
        await asyncio.to_thread(self.delete_for_runs, run_ids)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy every checkpoint and write of a thread into another one, the oldest first."""
        path = f"{thread_path(source_thread_id)}/checkpoints"
        documents = list(self._threads.pages(source_thread_id, path, limit=PAGE))
        known: set[tuple[str, str, str]] = set()
        said = chain.from_iterable(wire.copied(document, known) for document in reversed(documents))
        handed = [self._threads.save(target_thread_id, type, data, forks=True) for type, data in said]
        self._threads.push()
        for future in handed:
            self._threads.wait(target_thread_id, future)

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
            self._threads.prune(
                thread, partial(self._kept, thread) if strategy == "keep_latest" else lambda: {"keep": []}
            )

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """As ``prune``."""
        await asyncio.to_thread(self.prune, thread_ids, strategy=strategy)

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Versions grow, and those of two branches of a thread are never the same."""
        count = 0 if current is None else int(str(current).split(".")[0])
        return f"{count + 1:032}.{getrandbits(64):020}"

    # ---- how

    def _documents(
        self, config: RunnableConfig | None, filter: Any, before: RunnableConfig | None, limit: int | None
    ) -> Iterator[wire.Raw]:
        given = config["configurable"] if config else {}
        thread = given["thread_id"] if config else None
        return self._threads.pages(
            thread,
            "/v1/checkpoints" if thread is None else f"{thread_path(thread)}/checkpoints",
            namespace=given.get("checkpoint_ns"),
            checkpoint=given.get("checkpoint_id") or None,
            before=get_checkpoint_id(before) if before else None,
            metadata=wire.wanted(filter),
            limit=min(limit or PAGE, PAGE),
        )

    def _put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, versions: ChannelVersions
    ) -> tuple[str, Future[None]]:
        data = wire.advanced(self.serde, config, checkpoint, metadata, versions)
        return self._save(config, "thread.advanced", data)

    def _put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> tuple[str, Future[None]]:
        return self._save(config, "thread.written", wire.written(self.serde, config, writes, task_id, task_path))

    def _save(self, config: RunnableConfig, type: str, data: wire.Raw) -> tuple[str, Future[None]]:
        thread, _ = _place(config)
        future = self._threads.save(thread, type, data)
        self._threads.push()
        return thread, future

    def _kept(self, thread: str) -> wire.Raw:
        documents = self._threads.pages(thread, f"{thread_path(thread)}/checkpoints", limit=PAGE)
        return {"keep": pruning.needed(self.serde, documents)}


def _place(config: RunnableConfig) -> tuple[str, str]:
    return str(config["configurable"]["thread_id"]), config["configurable"].get("checkpoint_ns") or ""
