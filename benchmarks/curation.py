"""How fast the curator decides, and how well: proposals a second with and without an embedding model; a labelled set.

Decisions are made as the reactor makes them, in memory: everything but the log. Half of the proposals repeat or
contradict earlier ones. The labelled set's split ``d`` was made to be harder after ``a`` to ``c`` had shaped the rules.
Run: ``python -m benchmarks.curation [--proposals 2000]``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

from services.curation.decisions import BATCH, decide_all
from services.curation.statements import gist
from services.curation.view import ScopeView, unseen
from services.embedding.choice import Choice
from services.embedding.models import load
from tests.unit.curation_labels import Embed, cases, measure
from tests.unit.fold_runner import event, record

SCOPES = 20
_SAID = (
    "I prefer {0} tea over {1} tea", "I live in city number {0}", "The user's project {0} uses database {1}",
    "我喜欢第{0}种茶", "我的同事{0}在第{1}组工作", "The user reads newsletter {0} on Mondays", "ok thanks {0}",
    "用户的客户{0}需要第{1}类发票", "My colleague {0} handles region {1}",
    "Release {0} needs a review by team {1} first",
)  # fmt: skip


def proposals(count: int) -> Iterator[tuple[int, str]]:
    """Scope and content of each: ten forms, every second one said before."""
    for number in range(count):
        about = number // 20 if number % 2 else number // 10
        yield number % SCOPES, _SAID[number % len(_SAID)].format(about % 97, about % 31)


def rate(count: int, embed: Embed | None) -> float:
    """Proposals decided a second of one core's time, in batches of ``BATCH`` a scope."""
    views = [ScopeView() for _ in range(SCOPES)]
    waiting: list[list[Any]] = [[] for _ in range(SCOPES)]
    for number, (scope, content) in enumerate(proposals(count)):
        waiting[scope].append(event("memory.proposed", number, user=f"u{scope}", scope="user", content=content))
    ends = [0] * SCOPES
    recorded = [record(raws) for raws in waiting]
    spent = 0.0
    for scope, view in enumerate(views):
        for start in range(0, len(recorded[scope]), BATCH):
            batch = recorded[scope][start : start + BATCH]
            first = ends[scope]
            moved = record(waiting[scope][start : start + BATCH], first=first)
            began = time.process_time()
            view.advance(moved)
            if embed is not None:
                texts = unseen(view, [one.payload.content for one in moved])
                view.vectors.update(zip(texts, embed([gist(text) for text in texts]), strict=True))
            made = decide_all(view)
            spent += time.process_time() - began
            raws = [event(one.type, n, user=f"u{scope}", data=one.data) for n, one in enumerate(made)]
            ends[scope] = first + len(batch) + len(raws)
            decided = record(raws, first=first + len(batch))
            began = time.process_time()
            view.advance(decided)
            spent += time.process_time() - began
    return count / spent


def show(title: str, embed: Embed | None) -> None:
    """Precision and recall, for all and for the hardest split."""
    for splits in ("abc", "d", "abcd"):
        print(f"\n{title}, split {splits}: class, precision, recall, cases")
        for name, figures in measure(cases(splits), embed):
            print(f"  {name:12} {figures.precision:.2f} {figures.recall:.2f} {figures.count:4}")


def main() -> None:
    """Print it all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--proposals", type=int, default=2_000)
    count = parser.parse_args().proposals
    model = load(Choice(form="light"))
    embed: Callable[[Any], Any] = model.embed
    show("without a model", None)
    show("with the default model", embed)
    print(f"\nwithout a model: {rate(count, None):,.0f} proposals/s (at least 500)")
    print(f"with the default model: {rate(count, embed):,.0f} proposals/s (at least 100)")


if __name__ == "__main__":
    main()
