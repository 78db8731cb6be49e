"""What people see of a task, and of going on with one: a page to act on, the most urgent first."""

from __future__ import annotations

from typing import Any

from services.cli.output import hint, one_line, print_fields, print_table, readable
from services.cli.read import read_note

_LATEST = 10
"""Decisions, notes and results shown; `--json` has all of them."""


def print_task(found: dict[str, Any]) -> None:
    """Where a task stands."""
    totals = found["totals"]
    counts = f"{totals['events']} events, {totals['steps_done']}/{totals['steps']} steps, {totals['calls']} calls"
    cost = ", ".join(f"{amount:.2f} {currency}" for currency, amount in totals["cost"].items())
    used = f"{totals['tokens_in']:,} tokens in, {totals['tokens_out']:,} out" if totals["tokens_in"] else ""
    print_fields(
        found["task"],
        [
            ("status", found["status"]),
            ("why", " ".join(part for part in (found["reason"], one_line(found["detail"])) if part)),
            ("goal", one_line(found["goal"])),
            ("at step", found["cursor"] or found["current_step"]),
            ("so far", ", ".join(part for part in (counts, used, cost) if part)),
            ("blockers", [one["blocker"] for one in found["blockers"] if one["open"]]),
            ("waits for", [one["approval"] for one in found["approvals"] if one["pending"]]),
            ("note", read_note(found["read"])),
        ],
    )
    rows = [(one["step"], one["status"], one_line(one.get("title") or one.get("summary"))) for one in found["plan"]]
    if rows:
        print_table(("step", "status", "what~"), rows, title="Plan")


def print_resume(found: dict[str, Any]) -> None:
    """What a new process, or a person, needs to go on with a task."""
    print_task(found)
    calls = [
        (one["name"], "yes" if one["side_effect"] else "no", one.get("idempotency_key", ""),
         one_line(one.get("arguments")), one["status"])
        for one in found["in_flight"]
    ]  # fmt: skip
    if calls:
        print_table(("call", "side effect", "idempotency key", "arguments~", "status"), calls, title="In flight")
    rows = [(one["step"], one["status"], one_line(one.get("summary"))) for one in found["finished_steps"]]
    print_table(("finished step", "status", "summary~"), rows, title="Never repeat", empty="no step is finished")
    _print_changes(found)
    _print_notes(found["notes"])
    _print_workbench(found["workbench"] or {})
    print_children(found)
    print_decisions(found)
    _print_session(found)
    saved = found["checkpoint"]
    if saved:
        fields = [(name, saved.get(name)) for name in ("checkpoint", "data_version", "time")]
        print_fields("Checkpoint of its own runtime", fields)
    hint(f"go on as attempt {found['next_attempt']}; --json has all of it")


def print_children(found: dict[str, Any]) -> None:
    """The tasks of sub-agents."""
    rows = [
        (one["task"], one["status"], one_line(one.get("goal")), one_line(one.get("result") or one.get("detail")))
        for one in found["children"]
    ]
    if rows:
        print_table(("task", "status", "goal~", "result~"), rows, title="Sub-agents")


def print_decisions(found: dict[str, Any]) -> None:
    """The latest decisions."""
    rows = [(one_line(one["chosen"]), one_line(one.get("rationale"))) for one in found["decisions"][-_LATEST:]]
    if rows:
        print_table(("decided~", "because~"), rows, title="Latest decisions")


def _print_changes(found: dict[str, Any]) -> None:
    """What the last attempt was configured with in another way, and approvals asked under what holds no more."""
    changes = [("last attempt", one) for one in found["config"]["changed_in_last_run"]]
    for approval in found["approvals"]:
        changes += [(f"approval {approval['approval']}", one) for one in approval.get("changed", ())]
    rows = [(where, one["what"], one_line(one["before"]), one_line(one["after"])) for where, one in changes]
    if rows:
        print_table(("since", "changed", "before~", "now~"), rows, title="Changed configuration")


def _print_notes(notes: list[dict[str, Any]]) -> None:
    rows = [(one["note"], _mark(one), one_line(one["content"])) for one in notes[-_LATEST:]]
    if rows:
        print_table(("note", "beware", "content~"), rows, title="Notes")


def _mark(note: dict[str, Any]) -> str:
    return "stale" if note["stale"] else "verify again" if note["verify_again"] else ""


def _print_workbench(bench: dict[str, Any]) -> None:
    sections = ("observations", "preconditions", "requirements", "to_retry")
    fields = [(name.replace("_", " "), [_item(one) for one in bench.get(name, ())]) for name in sections]
    if any(items for _, items in fields):
        print_fields("Workbench", fields)


def _item(item: Any) -> str:
    """An item of the workbench in one line; a failed call by what it was and why it failed."""
    if isinstance(item, dict) and "effect" in item and "name" in item:
        return one_line(f"{item['name']} {readable(item.get('arguments'))}: {item.get('error')}", 200)
    return one_line(item, 200)


def _print_session(found: dict[str, Any]) -> None:
    session = found["session_state"] or {}
    state = session.get("state") or {}
    names = ("goal", "current_phase", "pending_task", "open_questions", "rejected_paths", "action_items")
    evidence = [item for one in found["pinned_evidence"] for item in one.get("evidence") or ()]
    fields: list[tuple[str, Any]] = [(name.replace("_", " "), state.get(name)) for name in names]
    if state or evidence:
        print_fields("Session", [*fields, ("pinned evidence", evidence)])
