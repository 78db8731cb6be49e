"""Refold as LangGraph's checkpointer against LangGraph's own for SQLite and PostgreSQL, in the same run.

A checkpoint as agents have them: 30 messages and some scalars, of which each step changes a message and a scalar. The
value of ``messages`` is about 8 KB. ``put+get`` saves one and reads the newest back, by one thread and by 16, each on a
thread of the graph's own; ``graph`` runs a graph of 10 steps that wait for their checkpoints (``durability="sync"``),
16 of them at once. Sides take turns, a slice of some operations each, in an order that changes, so that what else the
machine does meets all alike; a ratio is one of two slices of one round, and its median and quartiles are told.
``on and on`` are slices of some thousand operations, in which a journal is sent while it is written.

What an answer means is the same on all sides, a commit that is synced to disk: SQLite with WAL and
``synchronous=FULL``, in this process; PostgreSQL with ``synchronous_commit``, on this machine, one pooled connection a
thread; Refold, as ``refold up`` comes: in its log (append-only file, fsync always) and its archive (SQLite with
``synchronous=FULL``, or PostgreSQL), in processes of its own, over HTTP; Refold with ``write_ahead``: in a journal of
this process, synced to disk, from where it goes to the backend in the same seconds, on the same processors: the rate
until the backend has all is told as well. Refold tells two writers of a thread apart, the others do not, and it does
more with each event: all read models follow the log.
Run: ``python -m benchmarks.langgraph``, once ``pip install --group bench`` is done.
"""

from __future__ import annotations

import argparse
import operator
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Annotated, Any, NamedTuple, Protocol, TypedDict
from uuid import uuid4

from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool
from refold.integrations.langgraph import RefoldSaver

from tests.instance import NO_MODEL, running_instance
from tests.servers import own_postgres

TARGET = 1.0
TOGETHER = 16
STEPS = 10
LONG = 120
FLUSH_S = 300.0

PEERS = ("sqlite", "postgres")
PLAIN = ("refold", "refold+postgres")
AHEAD = ("refold ahead", "refold+postgres ahead")

Saver = BaseCheckpointSaver[Any]


class State(TypedDict):
    """What the graph keeps."""

    messages: Annotated[list[AnyMessage], operator.add]
    steps: int


class Slice(NamedTuple):
    """Operations a second, milliseconds of this process for each, and the rate until all has arrived at the backend."""

    rate: float
    cpu_ms: float
    arrived: float


class Work(Protocol):
    """What one side does, in slices."""

    saver: Saver

    def work(self, amount: int) -> int:
        """A slice of it; how many operations that was."""
        ...


def main() -> None:
    """Measure all sides and print ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=480, help="pairs of put and get in all short slices of a side")
    parser.add_argument("--rounds", type=int, default=12, help="of a slice of each side")
    parser.add_argument("--sides", nargs="*", default=[], help="only these, beside the two peers")
    given = parser.parse_args()
    alone, together = max(1, given.events // given.rounds), max(1, given.events // given.rounds // TOGETHER)
    with savers(given.sides) as sides:
        one = {name: Talks(saver, 1) for name, saver in sides.items()}
        many = {name: Talks(saver, TOGETHER) for name, saver in sides.items()}
        graph = {name: Graphs(saver) for name, saver in sides.items()}
        measure("put+get, 1 thread", one, alone, given.rounds)
        measure(f"put+get, {TOGETHER} threads", many, together, given.rounds)
        measure(f"graph steps, {TOGETHER} graphs", graph, 1, given.rounds)
        measure(f"put+get, {TOGETHER} threads, on and on", many, LONG * together, max(4, given.rounds // 3))


def measure(what: str, sides: Mapping[str, Work], amount: int, rounds: int) -> None:
    """A slice of each side, again and again, in another order each time; then what was found."""
    names = list(sides)
    for side in sides.values():
        timed(side, 2)  # open connections, fill caches
    found: dict[str, list[Slice]] = {name: [] for name in names}
    for number in range(rounds):
        turned = names[number % len(names) :] + names[: number % len(names)]
        for name in turned if number // len(names) % 2 else reversed(turned):
            found[name].append(timed(sides[name], amount))
    report(what, found)


def report(what: str, found: Mapping[str, Sequence[Slice]]) -> None:
    """Print medians, and the median and quartiles of the ratios of the slices that were neighbours."""
    for name, slices in found.items():
        rate, cpu_ms, arrived = (median(getattr(one, field) for one in slices) for field in Slice._fields)
        delivered = f", {arrived:,.0f} a second until the backend has them" if name in AHEAD else ""
        print(f"{what:36} {name:21} {rate:7,.0f} a second, {cpu_ms:.2f} ms of this process{delivered}")
    for name in found:
        if name not in PEERS:
            peer = found["postgres" if "postgres" in name else "sqlite"]
            ratios = [mine.rate / theirs.rate for mine, theirs in zip(found[name], peer, strict=True)]
            low, middle, high = quantiles(ratios, n=4, method="inclusive")
            told = f"{middle:.2f}, half of all from {low:.2f} to {high:.2f} (target {TARGET:.1f})"
            print(f"{what:36} {name} / {PEERS['postgres' in name]}: {told}", flush=True)


def timed(side: Work, amount: int) -> Slice:
    """One slice; nothing of a journal is on its way before it, nor after it."""
    flush(side.saver)
    began, busy = time.perf_counter(), time.process_time()
    pieces = side.work(amount)
    took_s, busy_s = time.perf_counter() - began, time.process_time() - busy
    flush(side.saver)
    return Slice(pieces / took_s, busy_s / pieces * 1e3, pieces / (time.perf_counter() - began))


def flush(saver: Saver) -> None:
    """Wait for a journal to be empty."""
    assert not isinstance(saver, RefoldSaver) or saver.flush(FLUSH_S)


@contextmanager
def savers(wanted: Collection[str] = ()) -> Iterator[dict[str, Saver]]:
    """Each side on a store of its own: the two peers, and those that are wanted (none named: all)."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(own_postgres())
        sqlite = stack.enter_context(SqliteSaver.from_conn_string(str(folder / "peer.db")))
        options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        url = server.new_database().replace("postgresql+psycopg://", "postgresql://")
        pool = stack.enter_context(ConnectionPool(url, min_size=TOGETHER, max_size=TOGETHER, kwargs=options))
        postgres = PostgresSaver(pool)  # type: ignore[arg-type]
        sqlite.setup()
        postgres.setup()
        sides: dict[str, Saver] = {"sqlite": sqlite, "postgres": postgres}
        for name in [name for name in (*PLAIN, *AHEAD) if name in (wanted or (*PLAIN, *AHEAD))]:
            more = {"REFOLD_DATABASE_URL": server.new_database()} if "postgres" in name else {}
            data, ahead = folder / name.replace(" ", "-"), folder / "ahead" / name if name in AHEAD else None
            instance = stack.enter_context(running_instance(data, **NO_MODEL, **more))
            sides[name] = stack.enter_context(RefoldSaver(instance.url, write_ahead=ahead))
        yield sides


class Talks:
    """Conversations, each of which saves and reads back on a thread of its own, and goes on at each ``work``."""

    def __init__(self, saver: Saver, together: int) -> None:
        self.saver = saver
        self._talks = [Talk(saver) for _ in range(together)]
        self._pool = ThreadPoolExecutor(together)

    def work(self, amount: int) -> int:
        """So many pairs of a put and a get in each; how many in all."""
        list(self._pool.map(lambda talk: talk.go_on(amount), self._talks))
        return amount * len(self._talks)


class Talk:
    """One conversation as agents have them."""

    def __init__(self, saver: Saver) -> None:
        self._saver = saver
        self._place: Any = {"thread_id": uuid4().hex, "checkpoint_ns": ""}
        self._config: Any = {"configurable": self._place}
        self._messages: list[Any] = [HumanMessage("x" * 200, id=str(n)) for n in range(30)]
        self._versions: dict[str, Any] = {}
        self._number = 0

    def go_on(self, pairs: int) -> None:
        """Save and read back, again and again; what is read is what was saved."""
        for _ in range(pairs):
            self._step()

    def _step(self) -> None:
        self._messages = [*self._messages[1:], HumanMessage("y" * 200, id=str(self._number + 30))]
        changed = ["messages", "steps"] if self._number else ["messages", "steps", "goal", "plan"]
        values = {"messages": self._messages, "steps": self._number, "goal": "g" * 300, "plan": ["p" * 60] * 8}
        fresh = {name: self._saver.get_next_version(self._versions.get(name), None) for name in changed}
        self._versions = {**self._versions, **fresh}
        checkpoint = Checkpoint(
            v=4, id=str(uuid6()), ts="2026-03-01T10:00:00+00:00", channel_values=values,
            channel_versions=self._versions, versions_seen={"agent": self._versions}, updated_channels=changed,
        )  # fmt: skip
        metadata: Any = {"source": "loop", "step": self._number, "parents": {}}
        self._config = self._saver.put(self._config, checkpoint, metadata, fresh)
        self._number += 1
        found = self._saver.get_tuple({"configurable": self._place})
        assert found is not None
        assert found.checkpoint["channel_values"] == values


class Graphs:
    """A graph of ``STEPS`` steps, which are saved as they are done; ``TOGETHER`` new threads at once."""

    def __init__(self, saver: Saver) -> None:
        self.saver = saver
        builder = StateGraph(State)
        for number in range(STEPS):
            builder.add_node(f"n{number}", lambda state: {"messages": [HumanMessage("y" * 200)], "steps": 1})
            builder.add_edge(f"n{number - 1}" if number else START, f"n{number}")
        builder.add_edge(f"n{STEPS - 1}", END)
        self._graph: Any = builder.compile(checkpointer=saver)
        self._pool = ThreadPoolExecutor(TOGETHER)

    def work(self, amount: int) -> int:
        """So many runs of each thread; how many steps in all."""
        list(self._pool.map(lambda _: self._run(amount), range(TOGETHER)))
        return amount * TOGETHER * STEPS

    def _run(self, amount: int) -> None:
        config = {"configurable": {"thread_id": uuid4().hex}}
        for _ in range(amount):
            self._graph.invoke({"messages": [HumanMessage("x" * 200)]}, config, durability="sync")


if __name__ == "__main__":
    main()
