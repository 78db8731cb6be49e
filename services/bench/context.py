"""Coverage and cost of contexts over recorded runs: Refold's at budgets, and those of other ways (DESIGN 8).

For each decision (``decisions``) a context is assembled from what was folded before that call. *Coverage* is the share
of its needed values in the context: plainly, labelled, and with its field's name or *in its sentence*, whole. *Cost* is
the context's tokens over those of the history so far; *density* the share of the context's values that the call uses,
*later* the share that it or any later call of the run uses. Runs are folded one after another, so that what is learned
of one serves those that follow it; ``alone`` folds each by itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from projections.context.assembly import assemble
from projections.context.material import Material
from projections.context.sources import said_in
from projections.memory_cards import MEMORY_CARDS
from projections.queries.card_sources import read_asked, read_flows, read_needs, read_sources
from services.bench import rivals
from services.bench.decisions import FIRST_CALL, SHORTEST, History, distinct_values, is_labelled, leaves
from services.bench.replica import ORG, Replica, replica
from services.embedding.model import Embedder
from services.importers.registry import FORMATS, files, read_file
from services.importers.run import ImportedRun

NOW = datetime(2100, 1, 1, tzinfo=UTC)
"""Contexts are read for one moment, so that a benchmark is the same whenever it runs."""

BUDGETS = (0.22, 0.11)
"""Shares of the history: what a context needs to hold nearly everything, and a tight one."""


class Context(NamedTuple):
    """One context of one way."""

    way: str
    text: str
    tokens: float


class Decision(NamedTuple):
    """A call that needs values, and the contexts that were made before it."""

    run: str
    call: str
    needed: list[str]
    uses: frozenset[str]
    later: frozenset[str]
    history: History
    contexts: list[Context]


@dataclass
class Figures:
    """What one way comes to, averaged over decisions."""

    plain: list[float] = field(default_factory=list)
    labelled: list[float] = field(default_factory=list)
    in_sentence: list[float] = field(default_factory=list)
    cost: list[float] = field(default_factory=list)
    density: list[float] = field(default_factory=list)
    later: list[float] = field(default_factory=list)

    def document(self, way: str) -> dict[str, Any]:
        """The averages."""
        return {
            "way": way, "coverage": _mean(self.plain), "labelled": _mean(self.labelled),
            "in_sentence": _mean(self.in_sentence), "cost": _mean(self.cost),
            "density": _mean(self.density), "later": _mean(self.later), "decisions": len(self.plain),
        }  # fmt: skip


def _mean(values: Sequence[float]) -> float | None:
    return round(fmean(values), 4) if values else None


def runs_of(path: Path, format: str, limit: int | None = None) -> list[ImportedRun]:
    """The runs of a file or folder, at most ``limit``. Raises SetupError when there is no file."""
    form = FORMATS[format]
    found = (run for file in files(path, form) for run in read_file(file, form) if isinstance(run, ImportedRun))
    return [run for run, _ in zip(found, range(limit if limit is not None else 1 << 62), strict=False)]


def decisions(
    runs: Iterable[ImportedRun],
    budgets: Sequence[float],
    others: Mapping[str, rivals.Rival],
    *,
    alone: bool = False,
    done: Callable[[], None] = lambda: None,
) -> Iterator[Decision]:
    """The decisions of runs, each with its contexts; ``done`` is called after each run."""
    if alone:
        for run in runs:
            yield from decisions([run], budgets, others, done=done)
        return
    with replica(MEMORY_CARDS) as models:
        for run in runs:
            yield from _of_run(models, run, budgets, others)
            models.next_run()
            done()


def _of_run(
    models: Replica, run: ImportedRun, budgets: Sequence[float], others: Mapping[str, rivals.Rival]
) -> Iterator[Decision]:
    history = History()
    for place, raw in enumerate(run.events):
        if raw["type"] == "tool.called":
            needed = history.needs(raw["data"].get("arguments")) if history.calls + 1 >= FIRST_CALL else []
            if needed:
                contexts = [*_refold(models, raw, history, budgets), *_others(history, others)]
                uses, later = _uses([raw]), _uses(run.events[place:])
                yield Decision(run.run, raw["data"]["call_id"], needed, uses, later, history, contexts)
        history.add(models.add(raw))


def _uses(events: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """The values of the arguments of calls."""
    calls = (raw["data"].get("arguments") for raw in events if raw["type"] == "tool.called")
    return frozenset(text for arguments in calls for text in leaves(arguments) if len(text) >= SHORTEST)


def _refold(models: Replica, raw: Mapping[str, Any], history: History, budgets: Sequence[float]) -> Iterator[Context]:
    conn = models.read(MEMORY_CARDS.name)
    task = raw.get("task") or raw["run"]
    asked = read_asked(conn, ORG, task)
    flows = read_flows(conn, ORG, raw.get("agent", ""), asked)
    sources, needs = read_sources(conn, ORG, task, NOW), read_needs(conn, ORG, task, flows, asked)
    spoken = [message.text for message in history.messages if message.role in ("user", "assistant")]
    needs = needs._replace(said=said_in(spoken))
    material = Material(task, sources=sources, needs=needs)
    for budget in budgets:
        made = assemble(material, max_tokens=int(history.tokens * budget), parts=("cards",))
        yield Context(f"Refold at {budget:g}", made.text, rivals.tokens_of(made.text))


def _others(history: History, others: Mapping[str, rivals.Rival]) -> Iterator[Context]:
    for way, make in others.items():
        text = make(history)
        yield Context(way, text, rivals.tokens_of(text))


def measure(decided: Iterable[Decision], dump: Callable[[str], Any] | None = None) -> list[dict[str, Any]]:
    """The figures of every way. ``dump`` is given a JSON line for each context of the first way."""
    ways: dict[str, Figures] = {}
    for one in decided:
        told = distinct_values(one.history.facts)
        for place, context in enumerate(one.contexts):
            _count(ways.setdefault(context.way, Figures()), one, context, told)
            if dump is not None and place == 0:
                dump(_line(one, context))
    return [figures.document(way) for way, figures in ways.items()]


def _count(figures: Figures, one: Decision, context: Context, told: set[str]) -> None:
    present = [value for value in one.needed if value in context.text]
    labelled = [value for value in present if is_labelled(value, context.text, one.history.facts)]
    whole = [value for value in labelled if is_labelled(value, context.text, one.history.facts, by_words=False)]
    figures.plain.append(len(present) / len(one.needed))
    figures.labelled.append(len(labelled) / len(one.needed))
    figures.in_sentence.append(len(whole) / len(one.needed))
    figures.cost.append(context.tokens / one.history.tokens)
    standing = {value for value in told if value in context.text}
    if standing:
        figures.density.append(len(standing & one.uses) / len(standing))
        figures.later.append(len(standing & one.later) / len(standing))


def _line(one: Decision, context: Context) -> str:
    return json.dumps(
        {
            "run": one.run, "call": one.call, "needed": one.needed, "context": context.text,
            "history_tokens": round(one.history.tokens), "context_tokens": round(context.tokens),
        },
        ensure_ascii=False,
    )  # fmt: skip


def other_ways(budget: float, model: Embedder | None) -> dict[str, rivals.Rival]:
    """The ways to compare with; without a model, none by meaning."""
    ways: dict[str, rivals.Rival] = {
        "whole history": rivals.whole,
        "last 10 messages": rivals.last(10),
        "last 16 messages": rivals.last(16),
        f"head and tail at {budget:g}": rivals.head_and_tail(budget),
        f"BM25, {rivals.TOP_K} passages": rivals.best_by_words,
    }
    if model is not None:
        ways[f"dense, {rivals.TOP_K} passages"] = rivals.best_by_meaning(model)
    return ways
