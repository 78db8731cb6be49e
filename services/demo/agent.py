"""The demo's agent: a shopkeeper's clerk. Scripted, but it really acts, on files and programs in its own folder.

It reads the week's sales, writes a program that adds them up and a check for it, runs the check, sees it fail, mends
the program by what the failure says, orders what runs low from a supplier, and writes a report. It is a process of its
own that knows Refold by the SDK alone: run it again after a kill, and it goes on where it was.

    python -m services.demo.agent URL FOLDER TASK
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from refold import Refold, Run

from services.demo.office import Office, Supplier
from services.demo.texts import CHECK, PROGRAM, REMEDIES, REORDER_BELOW

STEPS = [
    {"id": "read", "title": "Read the sales and the stock"},
    {"id": "program", "title": "Write a program that adds up the week"},
    {"id": "check", "title": "Check the program, and mend it"},
    {"id": "order", "title": "Order what runs low"},
    {"id": "report", "title": "Write the report"},
]
WISH = "Tell me only the conclusion, without the process."


class Clerk:
    """One attempt at the week's accounts: a method a step, each of which gives the step's result."""

    def __init__(self, run: Run, office: Office, supplier: Supplier) -> None:
        self.run = run
        self.office = office
        self.supplier = supplier

    def work(self) -> None:
        """Do every step that no earlier attempt has finished."""
        run = self.run
        if run.attempt == 1:
            run.message("user", f"Do this week's accounts, and order what runs low. {WISH}")
            run.remember(WISH, kind="preference", entity="report", attribute="style")
        run.plan(STEPS)
        for done in (step["id"] for step in STEPS if run.done(step["id"])):
            say(f"{done}: done by an earlier attempt")
        for step in run.pending([step["id"] for step in STEPS]):
            say(f"{step}: begins")
            with run.step(step) as block:
                method: Callable[[], dict[str, Any]] = getattr(self, step)
                block.result = method()
                block.summary = str(block.result.get("said", ""))
            say(f"{step}: {block.summary}")

    def read(self) -> dict[str, Any]:
        """Read both input files."""
        names = self.run.call("list_files", self.office.files, {})
        sales = self.run.call("read_file", self.office.read, {"name": "sales.csv"})
        stock = json.loads(self.run.call("read_file", self.office.read, {"name": "stock.json"}))
        low = {item: count for item, count in stock.items() if count < REORDER_BELOW}
        self.run.note("low_stock", low, category="stock", ttl_s=7 * 86_400)
        lines = len(sales.splitlines()) - 1
        return {"said": f"{lines} sales in {len(names)} files, {len(low)} items run low", "low": low}

    def program(self) -> dict[str, Any]:
        """Write the program and its check."""
        for name, text in (("totals.py", PROGRAM), ("check_totals.py", CHECK)):
            self.run.call("write_file", self.office.write, {"name": name, "text": text})
            self.run.artifact(name, uri=self.office.uri(name), kind="program", size_bytes=len(text), step="program")
        return {"said": "totals.py and check_totals.py are written"}

    def check(self) -> dict[str, Any]:
        """Run the check until it passes; each failure picks the remedy that fits what it says."""
        for failures in range(len(REMEDIES) + 1):
            with self.run.tool("run_program", {"name": "check_totals.py"}) as call:
                call.result = self.office.run_program("check_totals.py")
            if call.result["exit_code"] == 0:
                totals = json.loads(call.result["stdout"])
                return {"said": f"the check passes after {failures} failure(s): {totals['sum']} in all", **totals}
            error = call.result["stderr"].strip().splitlines()[-1]
            say(f"check: fails: {error}")
            self._mend(error, call.call_id)
        raise RuntimeError("the program cannot be mended")

    def _mend(self, error: str, call_id: str) -> None:
        remedy = next(remedy for remedy in REMEDIES if remedy.symptom in error)
        self.run.decide(
            remedy.name,
            question=f"what to do about: {error}",
            alternatives=[other.name for other in REMEDIES if other is not remedy],
            rationale=remedy.why,
            based_on=[call_id],
        )
        arguments = {"name": "totals.py", "old": remedy.old, "new": remedy.new}
        self.run.call("edit_file", self.office.edit, arguments)

    def order(self) -> dict[str, Any]:
        """Order each item once, whatever happens: the supplier's book tells what was ordered already."""
        receipts = {}
        for item in sorted(self.run.result("read")["low"]):
            arguments = {"item": item, "count": 2 * REORDER_BELOW}
            asked = self.supplier.find
            with self.run.tool("place_order", arguments, side_effect=True, already_done=asked) as call:
                if call.done:
                    say(f"order: {item} was ordered by an earlier attempt: {call.result}")
                else:
                    call.result = self.supplier.order(call.key, **arguments)
                    say(f"order: {item} is ordered: {call.result}")
            receipts[item] = call.result
        return {"said": f"ordered {', '.join(receipts)}", "receipts": receipts}

    def report(self) -> dict[str, Any]:
        """Write the report, in the way the user wants it."""
        totals, receipts = self.run.result("check"), self.run.result("order")["receipts"]
        conclusion = f"The week brought {totals['sum']}; {totals['best']} sold best; ordered: {', '.join(receipts)}."
        self.run.call("write_file", self.office.write, {"name": "report.md", "text": conclusion + "\n"})
        self.run.artifact("report.md", uri=self.office.uri("report.md"), kind="report", step="report")
        self.run.message("assistant", conclusion)
        self._settle(conclusion)
        return {"said": conclusion}

    def _settle(self, conclusion: str) -> None:
        session_state = {
            "goal": "the week's accounts",
            "current_phase": "done",
            "completed_actions": [
                {"path": "totals.py", "summary": "adds up a week of sales"},
                {"path": "report.md", "summary": conclusion},
            ],
            "key_decisions": ["lines without a quantity are no sales"],
            "action_items": ["expect the supplier's delivery"],
        }
        self.run.settle(
            session_state,
            memories=[{"content": WISH, "kind": "preference", "entity": "report", "attribute": "style"}],
            reflections=["the first program trusted its input; its own check showed that it must not"],
            learnings=[{"content": "sales.csv has lines without a quantity: skip them", "kind": "learning"}],
        )


def say(text: str) -> None:
    """Tell whoever watches."""
    print(text, flush=True)  # noqa: T201 - the agent's own voice


def main(url: str, folder: str, task: str) -> None:
    """One attempt at the task."""
    place = Path(folder)
    with Refold(url, agent="clerk", user="owner", session="this-week", spool=place / "spool") as client:
        goal = "do the week's accounts and order what runs low"
        with client.run(goal, task=task, resume=True, settles="agent", mode="precise_planning") as run:
            say(f"attempt {run.attempt}")
            Clerk(run, Office(place / "office"), Supplier(place / "supplier.jsonl")).work()


if __name__ == "__main__":
    main(*sys.argv[1:])
