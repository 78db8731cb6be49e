"""A model in a process of its own, from the side of the one that asks: begun at the first question, ended when idle.

Its tokeniser would hold up an event loop, its libraries take seconds to import and a gigabyte to hold: none of that is
felt by whoever asks. It ends with the process that began it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from events.errors import RefoldError, Transient
from services.embedding import wire
from services.embedding.choice import Choice
from services.embedding.model import Matrix

T = TypeVar("T")

START_S = 180.0
"""How long a model may take to load, on a busy machine."""
ANSWER_S = 120.0
"""How long an answer may take; then the process is taken to hang, and ended."""
IDLE_S = 300.0
"""How long a process that nobody asks is kept."""
_END_S = 5.0

_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Died(Transient):
    """The process of an embedding model died, or hung, over a question."""


class Loaded(NamedTuple):
    """What a process says of its model."""

    name: str
    dimension: int


class ModelProcess:
    """Asks one model. Questions wait for each other. ``nice``: it gives way to other processes so much.

    ``close`` it in the end. Every method raises Transient when the process fails (the next call begins another; Died,
    when it was over these texts), and SetupError when the model cannot be loaded.
    """

    def __init__(self, choice: Choice, *, nice: int = 0, idle_s: float = IDLE_S) -> None:
        self.choice = choice
        self._nice = nice
        self._idle_s = idle_s
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._loaded = Loaded("", 0)
        self._end_idle: asyncio.TimerHandle | None = None
        self._asking: set[asyncio.Task[Any]] = set()

    @property
    def pid(self) -> int | None:
        """The process at work, if there is one."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    async def load(self) -> Loaded:
        """The name and dimension of the model, once it is in memory."""
        return await self._shielded(self._load())

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Matrix:
        """A row a text, as ``Embedder.embed`` gives them."""
        return await self._shielded(self._embed({"texts": list(texts), "query": query}, len(texts)))

    async def close(self) -> None:
        """End the process, whatever it does. It may be asked again: then another begins."""
        if self._end_idle is not None:
            self._end_idle.cancel()
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.terminate()
        await self._end_in_turn()

    async def _shielded(self, asking: Coroutine[Any, Any, T]) -> T:
        """A question is asked to its end, though nobody waits any more: the next one must not get its answer."""
        task = asyncio.create_task(asking)
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    async def _load(self) -> Loaded:
        async with self._turn:
            await self._running()
            return self._loaded

    async def _embed(self, question: Mapping[str, Any], wanted: int) -> Matrix:
        async with self._turn:
            process = await self._running()
            try:
                async with asyncio.timeout(ANSWER_S):
                    return await self._ask(process, question, wanted)
            except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
                await self._end()
                raise Died(f"the process of the embedding model failed ({type(error).__name__})") from error
            finally:
                self._watch_idleness()

    async def _ask(self, process: asyncio.subprocess.Process, question: Mapping[str, Any], wanted: int) -> Matrix:
        assert process.stdin is not None
        process.stdin.write(wire.told(question))
        await process.stdin.drain()
        wire.heard(await _frame(process))
        return wire.unpacked(await _frame(process), wanted, self._loaded.dimension)

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is not None and self._process.returncode is None:
            return self._process
        choice = self.choice
        options = ["--model", choice.model, "--url", choice.url, "--form", choice.form, "--nice", str(self._nice)]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "services.embedding", *options,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
            env={**os.environ, **_ONE_THREAD},
        )  # fmt: skip
        self._process = process
        try:
            async with asyncio.timeout(START_S):
                told = wire.heard(await _frame(process))
        except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
            await self._end()
            raise Transient(f"the process of the embedding model {choice.model!r} did not start") from error
        except RefoldError:
            await self._end()
            raise
        self._loaded = Loaded(told["name"], told["dimension"])
        return process

    def _watch_idleness(self) -> None:
        if self._end_idle is not None:
            self._end_idle.cancel()
        self._end_idle = asyncio.get_running_loop().call_later(self._idle_s, self._idle)

    def _idle(self) -> None:
        ending = asyncio.create_task(self._end_in_turn(), name="end an idle embedding process")
        self._asking.add(ending)
        ending.add_done_callback(self._asking.discard)

    async def _end_in_turn(self) -> None:
        async with self._turn:
            await self._end()

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _END_S)
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _frame(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    head = await process.stdout.readexactly(wire.LENGTH.size)
    return await process.stdout.readexactly(wire.LENGTH.unpack(head)[0])
