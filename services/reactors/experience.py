"""What a run was worth learning from: its trajectory as labelled nodes, and a handover sheet. Pure, versioned.

A node is ``success`` (straight), ``deviated_success`` (after failures or a changed plan), ``recoverable_failure`` (the
run got over it), ``fatal_failure`` (it did not) or ``unfinished``. What an interruption left unfinished says nothing
about the tool: it is listed, and counted nowhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from events.types.belief import Node, NodeLabel, ToolCount
from services.reactors.evidence import clip
from services.reactors.trajectory import Call, Step, Trajectory

DERIVER_VERSION = 1
"""Raise it when labels change: the fold keeps the highest version of each run."""

CAUSE_CHARS = 160


def nodes_of(run: Trajectory) -> list[Node]:
    """Plan, steps, calls and result, in the order in which the run came to them."""
    nodes = [Node(node="plan", kind="plan", label=_plan_label(run))] if run.plans else []
    troubled = {call.step for call in run.calls.values() if call.state == "failed"}
    tried = [step for step in run.steps.values() if step.state not in ("planned", "skipped")]
    nodes += [_step_node(run, step, deviated=bool(step.failures) or step.step in troubled) for step in tried]
    failed_before: set[tuple[str, str]] = set()
    last_answered = next((call for call in reversed(run.calls.values()) if call.state != "open"), None)
    for call in run.calls.values():
        fatal = call is last_answered and run.outcome() == "failed"
        nodes.append(_call_node(call, retried=(call.name, call.step) in failed_before, fatal=fatal))
        if call.state == "failed":
            failed_before.add((call.name, call.step))
    return [*nodes, Node(node="result", kind="result", label=_result_label(run), cause=_result_cause(run))]


def counts_of(nodes: Sequence[Node]) -> list[ToolCount]:
    """How often each tool ended how: value-free, so that it may travel beyond its user."""
    counted = Counter((n.tool, n.label) for n in nodes if n.kind == "call" and n.tool and n.label != "unfinished")
    return [ToolCount(tool=tool, label=label, count=count) for (tool, label), count in sorted(counted.items())]


def sheet_of(run: Trajectory, nodes: Sequence[Node]) -> dict[str, Any]:
    """The handover sheet: what was asked, which tools, what came of it, what people said, why, and for whom."""
    ending = run.ending
    worst = next((node for node in nodes if node.label == "fatal_failure"), None)
    return {
        "event_type": "run.terminated",
        "reason": ending.payload.reason if ending else "",
        "outcome": run.outcome(),
        "tools": sorted({call.name for call in run.calls.values() if call.name}),
        "input_summary": clip(run.started.goal) if run.started else "",
        "feedback": [
            {"text": clip(given.text), "score": given.score, "target": given.target} for given in run.feedback
        ],
        "cause": (worst.cause if worst else "") or _result_cause(run),
        "suggested_scope": "agent" if any(node.kind == "call" for node in nodes) else "user",
    }


def _plan_label(run: Trajectory) -> NodeLabel:
    match run.outcome():
        case "completed":
            return "deviated_success" if run.plans > 1 or _stumbled(run) else "success"
        case "failed":
            return "fatal_failure"
        case _:
            return "unfinished"


def _stumbled(run: Trajectory) -> bool:
    return any(step.failures or step.state == "skipped" for step in run.steps.values())


def _step_node(run: Trajectory, step: Step, *, deviated: bool) -> Node:
    label: NodeLabel = "unfinished"
    if step.state == "completed":
        label = "deviated_success" if deviated else "success"
    elif step.state == "failed":
        label = "fatal_failure" if run.outcome() == "failed" else "recoverable_failure"
    return Node(node=f"step/{step.step}", kind="step", label=label, cause=clip(step.error, CAUSE_CHARS))


def _call_node(call: Call, *, retried: bool, fatal: bool) -> Node:
    label: NodeLabel = "unfinished"
    if call.state == "returned":
        label = "deviated_success" if retried else "success"
    elif call.state == "failed":
        label = "fatal_failure" if fatal else "recoverable_failure"
    cause = clip(call.error, CAUSE_CHARS)
    return Node(node=f"call/{call.call_id}", kind="call", label=label, tool=call.name, cause=cause)


def _result_label(run: Trajectory) -> NodeLabel:
    match run.outcome():
        case "completed":
            failed = any(call.state == "failed" for call in run.calls.values())
            return "deviated_success" if failed or run.plans > 1 or _stumbled(run) else "success"
        case "failed":
            return "fatal_failure"
        case "blocked":
            return "recoverable_failure"
        case "interrupted":
            return "unfinished"


def _result_cause(run: Trajectory) -> str:
    ending = run.ending
    if ending is None or run.outcome() == "completed":
        return ""
    open_steps = ", ".join(step.title or step.step for step in run.open_steps)
    detail = ending.payload.detail or (f"open steps: {open_steps}" if open_steps else "")
    return clip(f"{ending.payload.reason}: {detail}" if detail else ending.payload.reason, CAUSE_CHARS)
