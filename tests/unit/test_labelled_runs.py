"""Runs labelled by hand against what hindsight says of them: the precision of each label is printed and asserted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from projections.belief.baseline import above_baseline
from services.reactors.experience import Hindsight
from services.reactors.hindsight import ended_run
from tests.unit.labelled_runs import Labelled, labelled_runs

LEAST_PRECISION = 0.9
LEAST_RECALL = 0.9
RUNS = labelled_runs()

Verdict = tuple[str, str, bool, bool]
"""Label, where, by hand, by rule."""


def seen_of(labelled: Labelled) -> Hindsight:
    ended = ended_run(labelled.events)
    assert ended is not None, labelled.name
    return Hindsight(ended.run)


def verdicts(labelled: Labelled) -> Iterator[Verdict]:
    """Every label that a hand or a rule gave, and whether the other one gave it, too."""
    seen = seen_of(labelled)
    nodes = {node.node: node for node in seen.nodes}
    assert nodes.keys() == labelled.nodes.keys(), labelled.name
    for name, node in nodes.items():
        where = f"{labelled.name}: {name}"
        for label in {node.label, labelled.nodes[name]}:
            yield label, where, label == labelled.nodes[name], label == node.label
        by_rule = {given.to for given in node.attributed}
        by_hand = labelled.put_down[name]
        for to in by_rule | by_hand if node.label != "unfinished" and needs_a_reason(name, by_hand, labelled) else ():
            yield f"put down to {to}", where, to in by_hand, to in by_rule
        if not node.evidence or name in labelled.mute:
            yield "speaks for nothing", where, name in labelled.mute, not node.evidence
    for kind in {seen.deviation, labelled.deviation}:
        yield f"deviation {kind}", labelled.name, kind == labelled.deviation, kind == seen.deviation
    for tool, (failed_before, calls_before, above) in labelled.above.items():
        mine = [node for node in seen.nodes if node.tool == tool and node.evidence]
        failed = sum("failure" in node.label for node in mine)
        by_rule_above = above_baseline(failed, len(mine), failed_before, calls_before)
        if above or by_rule_above:
            yield "above its baseline", f"{labelled.name}: {tool}", above, by_rule_above


def needs_a_reason(node: str, by_hand: set[str], labelled: Labelled) -> bool:
    """A hand gives reasons for failures and luck; that a success followed its plan goes without saying."""
    return bool(by_hand) or "failure" in labelled.nodes[node]


def test_precision_of_each_label(capsys: pytest.CaptureFixture[str]) -> None:
    found = [verdict for labelled in RUNS for verdict in verdicts(labelled)]
    right, said, meant = Counter[str](), Counter[str](), Counter[str]()
    for label, _, by_hand, by_rule in found:
        right[label] += by_hand and by_rule
        said[label] += by_rule
        meant[label] += by_hand
    with capsys.disabled():
        print(f"\n{len(RUNS)} labelled runs\n{'label':28} precision      recall")
        for label in sorted(said | meant):
            print(f"{label:28} {right[label]:4}/{said[label]:<4} {right[label]:10}/{meant[label]:<4}")
        for label, where, by_hand, _ in found:
            if not (by_hand and _):
                print(f"  {where}: {label} by {'hand' if by_hand else 'rule'} alone")
    assert len(RUNS) >= 30
    assert {label: n for label, n in said.items() if right[label] < LEAST_PRECISION * n} == {}
    assert {label: n for label, n in meant.items() if right[label] < LEAST_RECALL * n} == {}


def test_the_runs_are_of_many_kinds() -> None:
    languages = Counter(any("\u4e00" <= char <= "\u9fff" for char in str(run.events[0].event.data)) for run in RUNS)
    plans = Counter(any(one.event.type == "plan.updated" for one in run.events) for run in RUNS)
    assert min(languages.values()) >= 10
    assert min(plans.values()) >= 10
