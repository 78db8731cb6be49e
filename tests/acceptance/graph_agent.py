"""An agent as LangGraph runs it, for tests that kill it: nodes with effects on a ledger file, kept in Refold.

``python graph_agent.py URL THREAD LEDGER MODE``: ``start`` runs and kills itself where told by ``--kill``, ``resume``
goes on, ``ask`` stops at a question, ``answer`` answers it, ``race`` runs once everybody is there. With ``--ahead`` it
saves into a journal in that folder; with ``--hold`` nothing of that reaches the backend.
"""

from __future__ import annotations

import argparse
import operator
import os
import signal
import time
from pathlib import Path
from typing import Annotated, Any, TypedDict

from refold import Conflict
from refold.integrations.langgraph import RefoldSaver, ahead


class State(TypedDict):
    done: Annotated[list[str], operator.add]


def effect(ledger: Path, name: str) -> dict[str, list[str]]:
    """Something that must not happen twice."""
    with ledger.open("a") as file:
        file.write(f"{name}\n")
        file.flush()
        os.fsync(file.fileno())
    return {"done": [name]}


def build(ledger: Path, saver: RefoldSaver, thread: str, kill: str) -> Any:
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import interrupt

    def node(name: str) -> Any:
        def work(state: State) -> dict[str, list[str]]:
            if kill == name:
                os.kill(os.getpid(), signal.SIGKILL)
            return effect(ledger, name)

        return work

    def beside(state: State) -> dict[str, list[str]]:
        if kill == "beside":
            # the other branch has finished, and what it wrote is saved: now die
            config = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
            while not (found := saver.get_tuple(config)) or not found.pending_writes:
                time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGKILL)
        return effect(ledger, "beside")

    def approve(state: State) -> dict[str, list[str]]:
        return {"done": [f"approved:{interrupt('may I?')}"]}

    graph = StateGraph(State)
    for name in ("plan", "book", "report"):
        graph.add_node(name, node(name))
    graph.add_node("beside", beside)
    graph.add_node("approve", approve)
    graph.add_edge(START, "plan")
    graph.add_edge("plan", "book")
    graph.add_edge("plan", "beside")
    graph.add_edge(["book", "beside"], "approve" if kill == "ask" else "report")
    graph.add_edge("approve", "report")
    graph.add_edge("report", END)
    return graph.compile(checkpointer=saver)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("url", "thread", "ledger", "mode"):
        parser.add_argument(name)
    parser.add_argument("--kill", default="")
    parser.add_argument("--ahead")
    parser.add_argument("--hold", action="store_true")
    given = parser.parse_args()
    if given.hold:
        ahead.QUIET_S = ahead.GATHER_S = 3600.0
    ledger = Path(given.ledger)
    config = {"configurable": {"thread_id": given.thread}}
    with RefoldSaver(given.url, write_ahead=given.ahead) as saver:
        if given.mode == "race":
            print(race(saver, config, ledger), flush=True)
            return
        graph = build(ledger, saver, given.thread, "ask" if given.mode in ("ask", "answer") else given.kill)
        print(graph.invoke(told(given.mode), config, durability="sync"), flush=True)


def told(mode: str) -> Any:
    """What the graph is invoked with."""
    if mode == "answer":
        from langgraph.types import Command

        return Command(resume="yes")
    return None if mode == "resume" else {"done": []}


def race(saver: RefoldSaver, config: Any, ledger: Path) -> Any:
    """Take one step from the state that all racers saw."""
    found = saver.get_tuple(config)
    assert found is not None
    with ledger.open("a") as file:
        file.write("here\n")
    while not ledger.with_suffix(".go").exists():
        time.sleep(0.02)
    checkpoint = {**found.checkpoint, "id": f"{found.checkpoint['id']}-{os.getpid()}"}
    try:
        return "won", saver.put(found.config, checkpoint, {"source": "loop", "step": 99}, {})  # type: ignore[arg-type]
    except Conflict as conflict:
        return "lost", str(conflict)


if __name__ == "__main__":
    main()
