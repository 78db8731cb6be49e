"""Which tools are at hand in a context, and which beliefs are about them.

A belief about a tool is told where that tool is at hand; one about a way of doing things (its tools in their order)
where all of them are, or, where only the tool to be called next is known, where that is one of them. A context that
names no tools rules out nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from projections.policy.predicate import Seen, comparable

_TOOL, _STEP, _MORE = "tool/", " > ", "…"


class AtHand(NamedTuple):
    """Tools as they are compared: ``next``, the one to be called; ``listed``, those that there are."""

    next: frozenset[str]
    listed: frozenset[str]

    @classmethod
    def of(cls, seen: Seen) -> AtHand:
        """The tools of a context: its fields ``tool`` and ``tools``."""
        return cls(frozenset(one.text for one in seen["tool"]), frozenset(one.text for one in seen["tools"]))

    def suits(self, tools: frozenset[str]) -> bool:
        """Whether what is about these tools has anything to say here."""
        if not tools or not (self.next or self.listed):
            return True
        return tools <= self.listed | self.next if self.listed else bool(tools & self.next)


def tool_of(belief: Mapping[str, Any]) -> str:
    """The tool that a belief says how well it works; empty for any other belief."""
    name: str = belief["belief"]
    return name.removeprefix(_TOOL) if belief["kind"] == "tool_reliability" and name.startswith(_TOOL) else ""


def tools_of(belief: Mapping[str, Any]) -> frozenset[str]:
    """The tools that a belief is about, as they are compared."""
    if tool := tool_of(belief):
        return frozenset((comparable(tool),))
    if belief["kind"] != "plan_pattern" or belief.get("trigger"):
        return frozenset()
    return frozenset(
        comparable(step) for step in str(belief.get("subject") or "").split(_STEP) if step not in ("", _MORE)
    )
