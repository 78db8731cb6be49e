"""What went fatally wrong: notices, and when one becomes a constraint.

A notice stands for a *causal pattern*: a tool, and what it failed by, without values. While a pattern was met in fewer
than ``constraint_contexts`` distinct contexts (3, see ``BeliefRules``) it says "here something went wrong; confirm
first". From then on it is no accident of one situation, and becomes a constraint: "unless confirmed first, do not".
Two contexts are distinct when their fingerprints are (``services.reactors.causes`` tells what one is made of); a
failure that bears none is a context of its own for each run.

Counter-evidence takes contexts away again: ``softening_successes`` (2) later runs in which the same tool worked in that
context and failed nowhere; as many later runs that name no context take away one of those left, and so does clean work
in as many distinct other contexts since the pattern was last met anywhere, so that work whose goals never come back
recovers, too. When fewer than ``constraint_contexts`` are left, it is a notice again. A context that the pattern is met
in once more is back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from events.types.belief import ExperienceRecorded
from projections.belief.evidence import MAX_BECAUSE, TEXT_LIMIT
from projections.belief.naming import belief_name
from projections.belief.tables import SPEAKS_AGAINST, SUPPORTS
from projections.bounds import clip, digest, short
from projections.draft import Draft

FATAL = "fatal_failure"


class Pattern:
    """One causal pattern of one run: in which contexts it was met, how often, and the events that tell of it."""

    def __init__(self, tool: str, cause: str, node: str = "") -> None:
        self.tool, self.cause, self.node = tool, cause, node
        self.contexts: dict[str, int] = {}
        self.because: list[str] = []

    def met(self, context: str, count: int = 1, event: str = "") -> None:
        """It was met in a context."""
        self.contexts[context] = self.contexts.get(context, 0) + count
        if event:
            self.because.append(event)


def patterns_of(payload: ExperienceRecorded) -> dict[str, Pattern]:
    """The fatal patterns of a run, by their keys: from its nodes, or, where those do not travel, from ``fatal``.

    A tool that only the counts call fatal, as those of earlier versions did, has a pattern without a cause.
    """
    found: dict[str, Pattern] = {}
    own = f"run/{payload.run}"
    for node in payload.nodes:
        if node.label == FATAL and node.evidence:
            pattern = _pattern(found, node.tool, node.pattern or node.cause, node.node)
            pattern.met(node.context or own, 1, node.event)
    if not payload.nodes:
        for fatal in payload.fatal:
            if fatal.count:
                _pattern(found, fatal.tool, fatal.pattern).met(fatal.context or own, fatal.count)
    told = {pattern.tool for pattern in found.values()}
    for counted in payload.counts:
        if counted.label == FATAL and counted.count and belief_name(counted.tool) not in told:
            _pattern(found, counted.tool, "").met(own, counted.count)
    return found


def _pattern(found: dict[str, Pattern], tool: str, cause: str, node: str = "") -> Pattern:
    tool, cause = belief_name(tool), belief_name(cause)
    return found.setdefault(digest(f"{tool}\x1f{cause}"), Pattern(tool, cause, node))


def note(draft: Draft, payload: ExperienceRecorded, before: list[str], event_id: str, time: str) -> list[str]:
    """Put down the fatal patterns of a run in place of those ``before``. Returns their keys."""
    run, found = short(payload.run), patterns_of(payload)
    for key in before:
        if key not in found:
            draft.drop("notices", key, run)
    for key, pattern in found.items():
        draft.put(("notices", key, run), {
            "pattern": key, "run": run, "tool": pattern.tool, "cause": clip(pattern.cause, TEXT_LIMIT),
            "node": pattern.node, "contexts": pattern.contexts, "because": pattern.because[:MAX_BECAUSE],
            "event_id": event_id, "time": time,
        })  # fmt: skip
    return sorted(found)


def last_met(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """For each context that a pattern was met in, when that was last; ``rows`` are the pattern's, one for each run."""
    last: dict[str, str] = {}
    for row in rows:
        for context in row["contexts"] or [f"run/{row['run']}"]:
            last[context] = max(last.get(context, ""), row["time"])
    return last


def contexts_left(
    met: Mapping[str, str], tool: str, experiences: Iterable[Mapping[str, Any]], softening_successes: int
) -> int:
    """How many of the contexts that a pattern was met in (``last_met``) no counter-evidence has taken away.

    ``experiences`` are runs of the scope, with ``time`` and ``counts``.
    """
    worked = dict.fromkeys(met, 0)
    anywhere = 0
    others: set[str] = set()
    lately = max(met.values(), default="")
    for run in experiences:
        where = _worked_in(run["counts"] or [], tool)
        if where is None:
            continue
        if where:
            for context in where & met.keys():
                worked[context] += run["time"] > met[context]
            if run["time"] > lately:
                others |= where - met.keys()
            # what failed without naming a context is answered by success in any
            unnamed = [context for context in met if context.startswith("run/") and run["time"] > met[context]]
            anywhere += bool(unnamed) and not where & met.keys()
        else:
            anywhere += any(run["time"] > time for time in met.values())
    left = sum(number < softening_successes for number in worked.values())
    return max(0, left - anywhere // softening_successes - len(others) // softening_successes)


def _worked_in(counts: Iterable[Mapping[str, Any]], tool: str) -> set[str] | None:
    """The contexts in which the tool worked in a run; None where it failed, or did nothing."""
    own = [count for count in counts if belief_name(count["tool"]) == tool and count["count"]]
    if any(count["label"] in SPEAKS_AGAINST for count in own) or not any(count["label"] in SUPPORTS for count in own):
        return None
    return {context for count in own for context in count.get("contexts", ())}
