"""The demo, told in order: each chapter does one thing for real, shows what came of it, and checks its promises."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from services.demo import crowd, show
from services.demo.api import Api
from services.demo.instance import Instance, Trouble, clean_environment
from services.demo.office import Supplier
from services.demo.promises import Promises
from services.demo.texts import SALES, STOCK

TASK = "accounts-of-the-week"
AGENT_S = 60.0
BATCH_RUNS = 50

REGISTRY = '''\
"""The same read models, but for one version: what a developer's change of task state amounts to."""

from dataclasses import replace

from projections.registry import PROJECTIONS as SHIPPED

task_state = SHIPPED["task_state"]
PROJECTIONS = {**SHIPPED, "task_state": replace(task_state, version=task_state.version + 1)}
'''


_OF_THE_READING = ("stale", "verify_again", "read")


class Story:
    """One telling of the demo, in a temporary folder."""

    def __init__(self, console: Console, place: Path, instance: Instance) -> None:
        self.console = console
        self.place = place
        self.instance = instance
        self.promises = Promises(console)
        self.supplier = Supplier(place / "supplier.jsonl")
        self.api = Api(instance.url)

    def tell(self) -> Promises:
        """Every chapter."""
        self._hand_out_work()
        self._kill_the_agent()
        self._resume()
        self._look_at_what_is_left()
        self._bring_a_crowd()
        self._refold()
        self._verify()
        self.api.close()
        return self.promises

    # ---- chapters

    def _hand_out_work(self) -> None:
        office = self.place / "office"
        office.mkdir()
        (office / "sales.csv").write_text(SALES)
        (office / "stock.json").write_text(json.dumps(STOCK))

    def _kill_the_agent(self) -> None:
        self._chapter("An agent works, and is killed while it waits for its second order to be confirmed")
        agent = self._start_agent()
        try:
            self._wait_for_order(agent, 2)
            os.kill(agent.pid, signal.SIGKILL)
        finally:
            agent.kill()
            code = agent.wait()
        self.console.print("  [bold red]kill -9[/]")
        self.promises.check("the agent was killed, and had no chance to say so", code == -signal.SIGKILL, code)
        resume = self.api.get(f"/v1/tasks/{TASK}/resume")
        self.console.print(show.task_panel(resume))
        finished = [step["step"] for step in resume["finished_steps"]]
        self.promises.check("three steps are known to be done", finished == ["read", "program", "check"], finished)
        calls = [(call["name"], call["side_effect"]) for call in resume["in_flight"]]
        self.promises.check("one order is in flight: to be checked", calls == [("place_order", True)], calls)

    def _resume(self) -> None:
        self._chapter("The same agent is started again")
        agent = self._start_agent()
        try:
            code = agent.wait(AGENT_S)
        except subprocess.TimeoutExpired as error:
            raise Trouble(f"the agent did not end within {AGENT_S:g} s") from error
        finally:
            agent.kill()
            agent.wait()
        self.promises.check("it finished", code == 0, f"exit code {code}, see {self._agent_log}")
        events = self._events()
        counts = Counter(event["data"]["step"] for event in events if event["type"] == "step.started")
        expected = {"read": 1, "program": 1, "check": 1, "order": 2, "report": 1}
        self.promises.check("no finished step was begun again", counts == expected, dict(counts))
        orders = Counter(order["item"] for order in self.supplier.orders())
        self.promises.check("the supplier has each order once", orders == {"cups": 1, "honey": 1}, dict(orders))
        report = self.place / "office" / "report.md"
        self.promises.check("the report is there", report.is_file() and "honey" in report.read_text(), "no report")

    def _look_at_what_is_left(self) -> None:
        self._chapter("What the log was folded into")
        task = self.api.wait_for("the finished task", self._finished_task)
        self.console.print(show.task_panel(task))
        cards = self.api.items("/v1/cards", task=TASK)
        self.console.print(show.cards_table(cards))
        settlement = self.api.wait_for("the settlement", lambda: self.api.get(f"/v1/runs/{task['run']}/settlement"))
        self.console.print(show.settlement_panel(settlement))
        beliefs = self.api.wait_for("beliefs", lambda: self.api.items("/v1/beliefs", agent="clerk"))
        self.promises.check("the task is completed", task["status"] == "completed", task["status"])
        self.promises.check("there are memory cards", bool(cards), cards)
        settled = (settlement.get("by"), settlement.get("reason"), settlement.get("degraded"))
        self.promises.check("the run settled itself", settled == ("agent", "end_turn", False), settled)
        learned = "; ".join(belief["statement"] for belief in beliefs)
        self.promises.check(f"experience became belief: {learned}", bool(learned), beliefs)

    def _bring_a_crowd(self) -> None:
        self._chapter(f"{crowd.EVENTS:,} events of {crowd.RUNS} simulated runs join in")
        began, batch = time.monotonic(), list[dict[str, Any]]()
        with show.progress(self.console) as bar:
            line = bar.add_task("publish, durable", total=crowd.EVENTS, note="")
            for number, run in enumerate(crowd.runs(), start=1):
                batch += run
                if number % BATCH_RUNS == 0:
                    self.api.publish(batch)
                    bar.update(line, advance=len(batch), note=f"{_rate(bar.tasks[line].completed, began)} events/s")
                    batch = []
        self.api.wait_for("the read models", self._caught_up, timeout_s=60)
        self.promises.check("every read model has caught up", True)
        self._what_was_learned(crowd.agent_of(0))

    def _what_was_learned(self, agent: str) -> None:
        """Hindsight turns each run into experience; beliefs are complete when every call of every run is counted."""
        there_is = crowd.worked(agent)

        def learned() -> list[dict[str, Any]] | None:
            beliefs = [one for one in self.api.items("/v1/beliefs", agent=agent) if one["kind"] == "tool_reliability"]
            counted = sum(belief["supports"] + belief["against"] for belief in beliefs)
            return beliefs if counted >= sum(map(sum, there_is.values())) else None

        beliefs = self.api.wait_for(f"the beliefs of {agent}", learned, timeout_s=60)
        self.console.print(show.beliefs_table(beliefs, f"what {agent} has learned of its tools"))
        counts = {one["belief"].removeprefix("tool/"): (one["supports"], one["against"]) for one in beliefs}
        self.promises.check("each tool is trusted by how often it worked", counts == there_is, (counts, there_is))
        standing = {one["belief"].removeprefix("tool/"): one["status"] for one in (beliefs[0], beliefs[-1])}
        expected = {"read_file": "active", "fetch_page": "constraint"}
        self.promises.check(
            "the best tool is relied on, the worst has become a warning", standing == expected, standing
        )

    def _refold(self) -> None:
        self._chapter("A read model changes: task_state gets a new version, and is folded from the log again")
        before = self.api.get(f"/v1/tasks/{TASK}")
        generation = self._projection("task_state")["generation"]
        (self.place / "changed.py").write_text(REGISTRY)
        self.api.close()
        self.instance.stop()
        search = os.pathsep.join(filter(None, (str(self.place), os.environ.get("PYTHONPATH"))))
        self.instance.start(REFOLD_PROJECTIONS="changed:PROJECTIONS", PYTHONPATH=search)
        self.api = Api(self.instance.url)
        self._follow_rebuild()
        after = self._projection("task_state")
        self.console.print(f"  [dim]generation {generation} -> {after['generation']}; reads went on meanwhile[/]")
        self.promises.check("a new generation is read", after["generation"] != generation, after)
        self.promises.check("it is up to date", after["state"] == "live", after)
        task = self.api.get(f"/v1/tasks/{TASK}")
        self.promises.check("the task reads the same as before", _same(task, before), (before, task))

    def _verify(self) -> None:
        self._chapter("Every read model is compared with a fresh fold of the whole log")
        began = time.monotonic()
        started = self.api.post("/v1/verify")
        with show.progress(self.console) as bar:
            line = bar.add_task("verify", total=None, note="")
            for job in self.api.job(f"/v1/verify/{started['id']}"):
                bar.update(line, completed=job["events"], total=job["total"] or None, note=job["phase"])
        if job["state"] != "done":
            raise Trouble(f"verify failed: {job['error']}")
        found = job["result"]["projections"]
        self.console.print(show.checksums_table(found))
        unequal = [one["name"] for one in found if not one["equal"]]
        names = {"task_state", "memory_cards", "settlements", "beliefs"}
        checked = names <= {one["name"] for one in found}
        self.promises.check(
            "all checksums are equal", checked and not unequal and job["result"]["equal"], job["result"]
        )
        self.console.print(f"  [dim]verified in {time.monotonic() - began:.1f} s[/]")

    # ---- what they need

    def _chapter(self, title: str) -> None:
        self.console.print()
        self.console.rule(Text(title, style="bold"), align="left")

    @property
    def _agent_log(self) -> Path:
        return self.place / "agent.log"

    def _start_agent(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "services.demo.agent", self.instance.url, str(self.place), TASK]
        with self._agent_log.open("a") as log:
            agent = subprocess.Popen(
                command,
                env=clean_environment(),
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
                text=True,
            )
        threading.Thread(target=self._echo, args=(agent,), daemon=True).start()
        return agent

    def _echo(self, agent: subprocess.Popen[str]) -> None:
        assert agent.stdout is not None
        with agent.stdout:
            for line in agent.stdout:
                self.console.print(Text(f"  agent │ {line.rstrip()}", style="dim"), overflow="ellipsis", no_wrap=True)

    def _wait_for_order(self, agent: subprocess.Popen[str], count: int) -> None:
        deadline_s = time.monotonic() + AGENT_S
        while len(self.supplier.orders()) < count:
            if agent.poll() is not None or time.monotonic() > deadline_s:
                raise Trouble(f"the agent placed no {count} orders; its log: {self._agent_log.read_text()[-2000:]}")
            time.sleep(0.02)

    def _events(self) -> list[dict[str, Any]]:
        runs = self.api.items("/v1/runs", task=TASK)
        return [event for run in runs for event in self.api.items(f"/v1/runs/{run['run']}/events")]

    def _finished_task(self) -> dict[str, Any] | None:
        task: dict[str, Any] = self.api.get(f"/v1/tasks/{TASK}")
        return task if task["status"] not in ("in_progress", "interrupted") else None

    def _projection(self, name: str) -> dict[str, Any]:
        return next(one for one in self.api.items("/v1/projections") if one["name"] == name)

    def _caught_up(self) -> bool:
        return all(one["lag_events"] == 0 for one in self.api.items("/v1/projections"))

    def _follow_rebuild(self) -> None:
        """The new code starts a rebuild by itself; until it is done, the former generation is read."""
        with show.progress(self.console) as bar:
            line = bar.add_task("refold task_state", total=None, note="")
            for job in self.api.job("/v1/projections/task_state/rebuild"):
                note = f"{job['phase']} {job['events_per_s']:,} events/s"
                total = job["total"] or None
                bar.update(line, completed=total if job["state"] == "done" else job["events"], total=total, note=note)
        if job["state"] != "done":
            raise Trouble(f"the rebuild failed: {job['error']}")
        self.api.wait_for("the new generation", lambda: self._projection("task_state")["state"] == "live")


def _rate(events: float, since_s: float) -> str:
    return f"{events / max(time.monotonic() - since_s, 1e-3):,.0f}"


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two readings of a task say the same; ages depend on the moment, and the generation is another one."""

    def timeless(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: timeless(item) for name, item in value.items() if name not in _OF_THE_READING}
        return [timeless(item) for item in value] if isinstance(value, list) else value

    return bool(timeless(one) == timeless(other))
