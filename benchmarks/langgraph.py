"""Refold as LangGraph's checkpointer against LangGraph's own for SQLite and PostgreSQL, in the same run.

A checkpoint as agents have them: 30 messages and some scalars, of which each step changes a message and a scalar. The
value of ``messages`` is about 8 KB. ``put+get`` saves one and reads the newest back, by one thread and by 16, each on a
thread of the graph's own; ``graph`` runs a graph of 10 steps that wait for their checkpoints (``durability="sync"``),
16 of them at once.

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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Annotated, Any, TypedDict
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

from tests.instance import running_instance
from tests.servers import own_postgres

TARGET = 1.0
TOGETHER = 16
STEPS = 10
FLUSH_S = 300.0

PLAIN = ("refold", "refold+postgres")
AHEAD = ("refold ahead", "refold+postgres ahead")

Saver = BaseCheckpointSaver[Any]


class State(TypedDict):
    """What the graph keeps."""

    messages: Annotated[list[AnyMessage], operator.add]
    steps: int


def main() -> None:
    """Measure all sides and print ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=480, help="pairs of put and get")
    parser.add_argument("--rounds", type=int, default=3, help="of all sides, one after the other; medians are told")
    given = parser.parse_args()
    pairs = given.events
    measures: dict[str, Callable[[Saver], float]] = {
        "put+get, 1 thread": lambda saver: put_get(saver, 1, pairs // 2),
        f"put+get, {TOGETHER} threads": lambda saver: put_get(saver, TOGETHER, pairs // TOGETHER),
        f"graph steps, {TOGETHER} graphs": lambda saver: graphs(saver, TOGETHER, max(1, pairs // TOGETHER // STEPS)),
    }
    with savers() as sides:
        for what, measure in measures.items():
            report(what, [one_round(sides, measure) for _ in range(given.rounds)])


def one_round(sides: dict[str, Saver], measure: Callable[[Saver], float]) -> dict[str, tuple[float, float]]:
    """By side, the rate that was measured, and the one until what was saved is where it goes in the end."""
    found = {}
    for side, saver in sides.items():
        put_get(saver, TOGETHER, 2)  # open connections, fill caches
        found[side] = timed(saver, measure)
    return found


def report(what: str, rounds: list[dict[str, tuple[float, float]]]) -> None:
    """Print the medians, and their ratios."""
    rates = {side: median(found[side][0] for found in rounds) for side in rounds[0]}
    for side, rate in rates.items():
        delivered = median(found[side][1] for found in rounds)
        arrived = f", {delivered:,.0f} until the backend has them" if side in AHEAD else ""
        print(f"{what:24}  {side:21} {rate:9,.0f} a second{arrived}")
    for side in (*PLAIN, *AHEAD):
        peer = "postgres" if "postgres" in side else "sqlite"
        print(f"{what:24}  {side} / {peer}: {rates[side] / rates[peer]:.2f} (target {TARGET:.1f})", flush=True)


def timed(saver: Saver, measure: Callable[[Saver], float]) -> tuple[float, float]:
    """What ``measure`` says, and the rate until all has reached the backend."""
    flush(saver)
    began = time.perf_counter()
    rate = measure(saver)
    took_s = time.perf_counter() - began
    flush(saver)
    return rate, rate * took_s / (time.perf_counter() - began)


def flush(saver: Saver) -> None:
    """Wait for a journal to be empty."""
    assert not isinstance(saver, RefoldSaver) or saver.flush(FLUSH_S)


@contextmanager
def savers() -> Iterator[dict[str, Saver]]:
    """Each side on a store of its own."""
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
        plain = stack.enter_context(running_instance(folder / "plain"))
        large = stack.enter_context(running_instance(folder / "large", REFOLD_DATABASE_URL=server.new_database()))
        yield {
            "sqlite": sqlite,
            "postgres": postgres,
            "refold": stack.enter_context(RefoldSaver(plain.url)),
            "refold+postgres": stack.enter_context(RefoldSaver(large.url)),
            "refold ahead": stack.enter_context(RefoldSaver(plain.url, write_ahead=folder / "ahead")),
            "refold+postgres ahead": stack.enter_context(RefoldSaver(large.url, write_ahead=folder / "ahead2")),
        }


def put_get(saver: Saver, threads: int, pairs: int) -> float:
    """Pairs of a put and a get a second, ``pairs`` of them on each of ``threads`` threads."""
    began = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda _: one_thread(saver, pairs), range(threads)))
    return threads * pairs / (time.perf_counter() - began)


def one_thread(saver: Saver, pairs: int) -> None:
    """Save and read back, again and again; what is read is what was saved."""
    place: Any = {"thread_id": uuid4().hex, "checkpoint_ns": ""}
    config: Any = {"configurable": place}
    messages: list[Any] = [HumanMessage("x" * 200, id=str(n)) for n in range(30)]
    versions: dict[str, Any] = {}
    for number in range(pairs):
        messages = [*messages[1:], HumanMessage("y" * 200, id=str(number + 30))]
        changed = ["messages", "steps"] if number else ["messages", "steps", "goal", "plan"]
        values = {"messages": messages, "steps": number, "goal": "g" * 300, "plan": ["p" * 60] * 8}
        fresh = {name: saver.get_next_version(versions.get(name), None) for name in changed}
        versions = {**versions, **fresh}
        checkpoint = Checkpoint(
            v=4, id=str(uuid6()), ts="2026-03-01T10:00:00+00:00", channel_values=values, channel_versions=versions,
            versions_seen={"agent": versions}, updated_channels=changed,
        )  # fmt: skip
        config = saver.put(config, checkpoint, {"source": "loop", "step": number, "parents": {}}, fresh)
        found = saver.get_tuple({"configurable": place})
        assert found is not None
        assert found.checkpoint["channel_values"] == values


def graphs(saver: Saver, together: int, rounds: int) -> float:
    """Steps of a graph a second, of ``together`` graphs at once."""
    builder = StateGraph(State)
    for number in range(STEPS):
        builder.add_node(f"n{number}", lambda state: {"messages": [HumanMessage("y" * 200)], "steps": 1})
        builder.add_edge(f"n{number - 1}" if number else START, f"n{number}")
    builder.add_edge(f"n{STEPS - 1}", END)
    graph: Any = builder.compile(checkpointer=saver)

    def run(_: int) -> None:
        config = {"configurable": {"thread_id": uuid4().hex}}
        for _ in range(rounds):
            graph.invoke({"messages": [HumanMessage("x" * 200)]}, config, durability="sync")

    began = time.perf_counter()
    with ThreadPoolExecutor(together) as pool:
        list(pool.map(run, range(together)))
    return together * rounds * STEPS / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
