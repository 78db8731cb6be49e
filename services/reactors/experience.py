"""What a run was worth learning from: its trajectory as labelled nodes, and a handover sheet. Pure, versioned.

Nodes are the plan, every plan that took its place (``plan/2`` ...), the steps, the calls and the result; the goal and
what people said stand in the sheet. A node is ``success`` (straight), ``deviated_success`` (after failures or a changed
plan), ``recoverable_failure`` (the run got over it), ``fatal_failure`` (it did not) or ``unfinished``. The run's
outcome is that of its ending, but for a completed run that everybody who scored it scored 0 or less: that one failed.

Evidence goes to nodes, never to whole chains, and these speak for nothing: what an interruption left unfinished; a
result, and the plan that led to it, by luck (``services.reactors.attribution``) or because people stood in the way
(open blockers and approvals, or a refused one); a plan that was left before anything had failed, or whose last step a
tool broke. A failed run does not blame its good calls, nor a failed call a run that got over it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from events.types.belief import Attribution, FatalPattern, Node, NodeLabel, ToolCount
from events.types.run import Outcome
from projections.bounds import canonical, short
from projections.cards.secrecy import secrets
from services.reactors.attribution import (
    Calls,
    Deviation,
    changed_plans,
    departures,
    deviation,
    judged_bad,
    luck,
    put_down,
    troubled,
)
from services.reactors.causes import LOOKED_AT, context_of, names_in, pattern_of, value_free
from services.reactors.evidence import clip
from services.reactors.trajectory import Call, Plan, Step, Trajectory

DERIVER_VERSION = 3
"""Raise it when labels change: every run is derived again, and the fold keeps the highest version of each."""

CAUSE_CHARS = 160
PATH_TOOLS = 40
"""Tools of a path that are named; a longer one ends with an ellipsis."""
MAX_NODES = 400
"""Nodes of a sheet: of a longer run the failures, and the latest of the others."""
MAX_TOOLS = 1_000
MAX_CONTEXTS = 8
FAILURES = frozenset(("recoverable_failure", "fatal_failure"))


@dataclass(frozen=True)
class Hindsight:
    """One run, looked back on: everything that its experience holds is derived here."""

    run: Trajectory

    @cached_property
    def outcome(self) -> Outcome:
        """What became of the run, as it was judged."""
        outcome = self.run.outcome()
        return "failed" if outcome == "completed" and judged_bad(self.run, "run", "") else outcome

    @cached_property
    def deviation(self) -> Deviation:
        """Whether the run left its plan, and when."""
        return deviation(self.run)

    @cached_property
    def nodes(self) -> list[Node]:
        """Plan, steps, calls and result, in the order in which the run came to them."""
        troubled = {call.step for call in self.run.calls.values() if call.state == "failed"}
        tried = [step for step in self.run.steps.values() if step.state not in ("planned", "skipped")]
        nodes = [self._plan_node(), *self._later_plans()] if self.run.plans else []
        nodes += [self._step_node(step, deviated=bool(step.failures) or step.step in troubled) for step in tried]
        failed_before: set[tuple[str, str]] = set()
        for call in self.run.calls.values():
            nodes.append(self._call_node(call, retried=(call.name, call.step) in failed_before))
            if call.state == "failed":
                failed_before.add((call.name, call.step))
        return [*nodes, self._result_node()]

    @cached_property
    def counts(self) -> list[ToolCount]:
        """How often each tool ended how: value-free, so that it may travel beyond its user."""
        counted: dict[tuple[str, NodeLabel], list[str]] = {}
        for node in self.nodes:
            if node.kind == "call" and node.tool and node.evidence:
                counted.setdefault((node.tool, node.label), []).append(node.context)
        return [
            ToolCount(tool=tool, label=label, count=len(contexts), contexts=sorted(set(contexts))[:MAX_CONTEXTS])
            for (tool, label), contexts in sorted(counted.items())[:MAX_TOOLS]
        ]

    @cached_property
    def path(self) -> str:
        """The tools that answered, in the order in which they were called, one that is repeated once."""
        answered = sorted((c for c in self.run.calls.values() if c.name and c.state != "open"), key=lambda c: c.begun)
        tools = [short(call.name) for n, call in enumerate(answered) if n == 0 or answered[n - 1].name != call.name]
        return " > ".join(tools if len(tools) <= PATH_TOOLS else [*tools[:PATH_TOOLS], "…"])

    @cached_property
    def path_label(self) -> NodeLabel:
        """What came of the path; ``unfinished`` where that says nothing about it."""
        if self._blames_nothing or self._is_tools_fault or not self.path:
            return "unfinished"
        return self._result_label()

    @cached_property
    def fatal(self) -> list[FatalPattern]:
        """What the run died of, value-free."""
        found = Counter(
            (node.tool, value_free(node.pattern, node.cause), node.context)
            for node in self.nodes
            if node.kind == "call" and node.label == "fatal_failure" and node.evidence
        )
        return [
            FatalPattern(tool=tool, pattern=pattern, context=context, count=n)
            for (tool, pattern, context), n in sorted(found.items())
        ]

    @cached_property
    def sheet(self) -> dict[str, Any]:
        """The handover sheet: what was asked, which tools, what came of it, what people said, why, and for whom.

        It quotes what users, tools and models said, without secrets: data, never instructions (``trust``). The cause
        is told by rule, from the run's own words, not by a model.
        """
        run, ending = self.run, self.run.ending
        worst = next((node for node in self.nodes if node.label == "fatal_failure" and node.cause), None)
        output = ending.payload.result if ending and ending.payload.result is not None else run.answer
        feedback = [
            {
                "text": _told(given.text),
                "score": given.score,
                "target": short(given.target),
                "by": short(given.by),
                "event": event,
            }
            for given, event in run.feedback.items()
        ]
        return {
            "event_type": "run.terminated",
            "reason": ending.payload.reason if ending else "",
            "outcome": self.outcome,
            "tools": sorted({short(call.name) for call in run.calls.values() if call.name})[:MAX_TOOLS],
            "input_summary": _told(run.started.goal) if run.started else "",
            "output": _told(output if isinstance(output, str) else "" if output is None else canonical(output)),
            "feedback": feedback[-MAX_NODES:],
            "cause": (worst.cause if worst else "") or self._result_cause(),
            "suggested_scope": "agent" if run.calls else "user",
            "trust": "data",
        }

    @cached_property
    def _fatal(self) -> Call | None:
        """The call that the run failed with: the last that was answered, when it failed. A run that can be resumed has
        failed with it where its error ended the run.
        """
        last = next((call for call in reversed(self.run.calls.values()) if call.state != "open"), None)
        if last is None or last.state != "failed":
            return None
        return last if self.outcome == "failed" or self.run.ended_by(last) else None

    @cached_property
    def _is_tools_fault(self) -> bool:
        """Whether the run failed with a call, and nothing says that the call was wrong."""
        blamed = self._calls.put_down(self._fatal) if self._fatal else None
        return blamed is not None and blamed.to == "tool"

    @cached_property
    def _luck(self) -> list[Attribution]:
        return luck(self.run) if self.outcome != "interrupted" else []

    @cached_property
    def _blames_nothing(self) -> bool:
        """Whether the result says nothing about what led to it."""
        people = self.outcome in ("blocked", "failed") and bool(
            self.run.blockers or self.run.approvals or self.run.denied
        )
        return self.outcome == "interrupted" or bool(self._luck) or people

    @cached_property
    def _calls(self) -> Calls:
        return Calls.of(self.run)

    def _plan_node(self) -> Node:
        """The plan that the run began with: whether what was planned led to the result."""
        left_early = self.deviation == "before_failure"
        tried = not (self._blames_nothing or left_early or self._is_tools_fault)
        label = self._result_label()
        if self.outcome == "completed" and self.deviation == "after_failure":
            label = "recoverable_failure"
        return self._planned("plan", self.run.plans[0], label, self._put_down(), evidence=tried)

    def _later_plans(self) -> list[Node]:
        """The plans that took its place, numbered from 2: what came of each."""
        changed, nodes = changed_plans(self.run), []
        last_left = max((left.at for left in departures(self.run)), default=0)
        for number, plan in enumerate(changed, 2):
            upto = changed[number - 1].at if number <= len(changed) else self.run.length + 1
            in_trouble, is_last = troubled(self.run, plan.at, upto), number > len(changed)
            label: NodeLabel = "recoverable_failure" if in_trouble else "unfinished"
            put_downs: list[Attribution] = [put_down("plan", "switched_after_failure")] if in_trouble else []
            followed = last_left <= plan.at
            if is_last:
                label = "success" if self.outcome == "completed" and not in_trouble else self._result_label()
                put_downs = [put_down("plan", "followed_plan")] if followed and not self._blames_nothing else []
            mute = self._blames_nothing or (is_last and (self._is_tools_fault or not followed))
            nodes.append(
                self._planned(f"plan/{number}", plan, label, put_downs, evidence=label != "unfinished" and not mute)
            )
        return nodes

    def _planned(
        self, name: str, plan: Plan, label: NodeLabel, attributed: list[Attribution], *, evidence: bool
    ) -> Node:
        cause = self._result_cause() if label in FAILURES else ""
        return Node(
            node=name, kind="plan", label=label, cause=cause, attributed=attributed, evidence=evidence,
            event=plan.event, pattern=pattern_of("", cause) if cause else "", context=self._context(""),
        )  # fmt: skip

    def _step_node(self, step: Step, *, deviated: bool) -> Node:
        label: NodeLabel = "unfinished"
        if step.state == "completed":
            label = "deviated_success" if deviated else "success"
        elif step.state == "failed":
            label = "fatal_failure" if self.outcome == "failed" else "recoverable_failure"
        label, judged = self._judged(label, "step", step.step)
        return Node(
            node=f"step/{short(step.step)}", kind="step", label=label, cause=_told(step.error, CAUSE_CHARS),
            attributed=judged, evidence=label != "unfinished", event=step.event,
            pattern=pattern_of("", step.error) if label in FAILURES else "", context=self._context(step.step),
        )  # fmt: skip

    def _call_node(self, call: Call, *, retried: bool) -> Node:
        label: NodeLabel = "unfinished"
        attributed: list[Attribution] = []
        if call.state == "returned":
            label = "deviated_success" if retried else "success"
        elif call.state == "failed":
            label = "fatal_failure" if call is self._fatal else "recoverable_failure"
            blamed = self._calls.put_down(call)
            attributed += [blamed] if blamed else []
        label, judged = self._judged(label, "call", call.call_id)
        pattern = pattern_of(short(call.name), call.error, call.arguments) if label in FAILURES else ""
        return Node(
            node=f"call/{short(call.call_id)}", kind="call", label=label, tool=short(call.name), event=call.event,
            cause=_told(call.error, CAUSE_CHARS), attributed=attributed + judged, evidence=label != "unfinished",
            pattern=pattern, context=self._context(call.step),
        )  # fmt: skip

    def _judged(self, label: NodeLabel, kind: str, target: str) -> tuple[NodeLabel, list[Attribution]]:
        """The label after what people said of this node itself: a success that is scored 0 or less is none."""
        if label in ("success", "deviated_success") and judged_bad(self.run, kind, target):
            return "recoverable_failure", [put_down("plan", "judged_bad")]
        return label, []

    def _result_node(self) -> Node:
        label, ending, cause = self._result_label(), self.run.ending, self._result_cause()
        return Node(
            node="result", kind="result", label=label, cause=cause, attributed=self._put_down(),
            evidence=not self._blames_nothing, event=ending.event.id if ending else "",
            pattern=pattern_of("", cause) if label in FAILURES else "", context=self._context(""),
        )  # fmt: skip

    def _put_down(self) -> list[Attribution]:
        """What the result is put down to: luck, the call it failed with, those who judged it, or the course taken."""
        if self._luck or self.outcome == "interrupted":
            return self._luck
        if self._fatal is not None and (blamed := self._calls.put_down(self._fatal)):
            return [put_down("tool", "ended_by_tool") if blamed.to == "tool" else blamed]
        if self.outcome != self.run.outcome():
            return [put_down("plan", "judged_bad")]
        match self.deviation:
            case "before_failure":
                return [put_down("plan", "switched_before_failure")]
            case "after_failure":
                return [put_down("plan", "switched_after_failure")]
            case "none" if self.run.plans and self.outcome != "blocked":
                return [put_down("plan", "followed_plan")]
            case "none":
                return [put_down("plan", "path_failed")] if self.outcome == "failed" else []

    def _result_label(self) -> NodeLabel:
        match self.outcome:
            case "completed":
                run = self.run
                stumbled = any(step.failures or step.state == "skipped" for step in run.steps.values())
                failed = any(call.state == "failed" for call in run.calls.values())
                return "deviated_success" if failed or stumbled or self.deviation != "none" else "success"
            case "failed":
                return "fatal_failure"
            case "blocked":
                return "recoverable_failure"
            case "interrupted":
                return "unfinished"

    def _result_cause(self) -> str:
        run, ending = self.run, self.run.ending
        if ending is None or self.outcome == "completed":
            return ""
        open_steps = ", ".join(step.title or step.step for step in run.open_steps)
        said = [
            given.text for given in run.feedback if given.text and (given.score or 0) <= 0 and given.score is not None
        ]
        judged = said[-1] if said and self.outcome != run.outcome() else ""
        detail = judged or ending.payload.detail or (f"open steps: {open_steps}" if open_steps else "")
        return _told(f"{ending.payload.reason}: {detail}" if detail else ending.payload.reason, CAUSE_CHARS)

    def _context(self, step: str) -> str:
        """The fingerprint of the context that something in a step happened in."""
        if step not in self._contexts:
            started, known = self.run.started, self.run.steps.get(step)
            goal, mode = (started.goal, started.mode) if started else ("", "default")
            self._contexts[step] = context_of(goal, (known.title if known else "") or step, mode, self._names)
        return self._contexts[step]

    @cached_property
    def _names(self) -> list[str]:
        return names_in(call.arguments for call in self.run.calls.values())

    @cached_property
    def _contexts(self) -> dict[str, str]:
        """Step -> fingerprint, as they are asked for."""
        return {}


def key_nodes(nodes: Sequence[Node]) -> list[Node]:
    """The nodes that a sheet keeps: all of a run of ordinary length, else failures first, then the latest."""
    if len(nodes) <= MAX_NODES:
        return list(nodes)
    ranked = sorted(range(len(nodes)), key=lambda n: (nodes[n].node not in ("plan", "result"), *_rank(nodes[n]), -n))
    return [nodes[n] for n in sorted(ranked[:MAX_NODES])]


def _rank(node: Node) -> tuple[bool, bool]:
    return node.label != "fatal_failure", node.label != "recoverable_failure"


def _told(text: str, chars: int = 240) -> str:
    """A text as a sheet tells it: on one line, without secrets."""
    return clip(secrets.masked_text(text[:LOOKED_AT]), chars)
