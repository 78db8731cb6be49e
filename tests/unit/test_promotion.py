"""Wishes about conduct: what is read from people's words, English and Chinese, and what is left alone."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import pytest

from events.door import admit
from events.event import Position, Recorded
from events.registry import decode_payload
from events.triggers import parse
from services.curation.extract import proposals_of
from services.curation.statements import gist
from services.embedding.use import LightUse
from services.promotion.neighbours import LEAST, may_be_one
from services.promotion.opposition import oppositions
from services.promotion.pieces import tools_of
from services.promotion.rulebook import PROMOTER, Rulebook
from services.promotion.rules import conduct_id, rule_of
from services.promotion.said import MOST_CHARS, is_safe, shown, wishes_in
from services.wishes.lexicon import MENTIONS, POLES, STATEMENTS
from services.wishes.reading import opposed, wishes_of

LABELS = Path(__file__).parent.parent / "fixtures" / "conduct_labels.jsonl"
"""Utterances of our own making. ``a`` shaped the rules; ``d`` and ``f`` were each written before anybody looked how
they are read, and then shaped them, too; ``e`` is mostly what was missed in between; ``g`` is held out: it has shaped
nothing. Rules that had seen ``a`` alone read ``d`` with a precision of 0.98 and a recall of 0.90, those that had seen
``a`` to ``e`` read ``f`` with 1.00 and 0.66."""


class Figures(NamedTuple):
    """Of wishes: how many of those read are right, how many of those there are were read."""

    precision: float
    recall: float


def figures(splits: str) -> Figures:
    right = wrong = missed = 0
    for label in labels(splits):
        read = {wish.what for wish in wishes_in(label["text"])}
        there = {(label["aspect"], label["value"], label["negative"])} if label["aspect"] else set()
        right, wrong, missed = right + len(read & there), wrong + len(read - there), missed + len(there - read)
    return Figures(right / (right + wrong), right / (right + missed))


def labels(splits: str) -> list[dict[str, Any]]:
    found = [orjson.loads(line) for line in LABELS.read_bytes().splitlines()]
    return [label for label in found if label["split"] in splits]


@pytest.mark.parametrize(("split", "precision", "recall"), [("adef", 0.97, 0.95), ("g", 0.85, 0.7), ("h", 0.97, 0.9)])
def test_wishes_are_read_as_people_label_them(split: str, precision: float, recall: float) -> None:
    """More than 200 utterances, a third of them no wish about conduct; 0.90 and 0.75 for those held out (``g``).

    ``h``: the conclusion without the process in every form, and its near misses.
    """
    found = figures(split)
    print(f"conduct, splits {split}: precision {found.precision:.2f}, recall {found.recall:.2f}, {len(labels(split))}")
    assert len(labels("adefg")) >= 200
    assert found.precision >= precision
    assert found.recall >= recall


def test_every_way_to_say_it_meets_in_one_wish() -> None:
    words = (
        "conclusions without the process", "just the bottom line", "skip the reasoning, only the result",
        "don't walk me through it", "直接告诉我结论就行", "别讲过程", "JUST THE BOTTOM LINE!",
        "ｊｕｓｔ the conclusion",
        "Don’t explain, just the answer", "I want the conclusion without the process.",
        "I prefer answers without the reasoning behind them.", "Skip the details, what's the answer?",
        "All I need is the summary at the end, not the journey.",
    )  # fmt: skip
    assert {wish.what for each in words for wish in wishes_of(each)} == {("process", "conclusion", False)}
    assert all(wishes_of(each) for each in words)


@pytest.mark.parametrize(
    "text", ["回答简短一点好吗", "简短一点行吗？", "Shorter answers, please?", "Keep it short, would you?"]
)
def test_a_request_may_end_like_a_question(text: str) -> None:
    assert [wish.what for wish in wishes_in(text)] == [("length", "short", False)]


@pytest.mark.parametrize(
    "text",
    [
        "The process crashed twice", "What is the conclusion?", "I want to process a refund",
        "The dress code is formal",
        "The flight is short", "The emoji picker is broken", "Is there a table for two?",
        "Check the bullet points in it",
        "Yes, proceed with those steps.", "Thank you for guiding me through this process.", "结果出来了吗", "",
        "昨天的回答很简短，你觉得好吗？", "Is a short answer ok?",
        "just the conclusion " + "and so on " * 40,
    ],
)  # fmt: skip
def test_talk_about_other_things_is_no_wish(text: str) -> None:
    assert wishes_in(text) == []


def test_chinese_is_asked_for_in_its_most_common_name() -> None:
    (wish,) = wishes_in("请用中文回答")
    assert rule_of(wish).statement == "用中文回答"


def test_a_wish_for_once_is_told_apart() -> None:
    assert [wish.once for wish in wishes_in("Just the result this time. 请用中文回答")] == [True, False]
    both = wishes_in("Usually just the result. But explain it this time")
    assert [(wish.value, wish.once) for wish in both] == [("conclusion", False), ("steps", True)]


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("When it's about code, show the steps", ["code"]),
        ("Be brief in your answers when the topic is tax law", []),
        ("If I ask about invoices, only the answer please", ["invoices"]),
        ("对于报表，只给结论", ["报表"]),
        ("写代码的时候一步一步来", ["代码"]),
        ("Just the result for each question", [""]),
        ("I like it when you answer in more detail", [""]),
        ("只要结论", [""]),
        ("Just the answer if the question is about taxes in the third quarter of next year", []),
    ],
)
def test_a_wish_may_hold_under_a_condition(text: str, when: list[str]) -> None:
    """Such a rule is another belief, with a trigger; a condition that is no trigger makes no rule for always."""
    wishes = wishes_in(text)
    assert [wish.when for wish in wishes] == when or (when == [] and all(wish.when for wish in wishes))
    for rule in map(rule_of, wishes):
        assert bool(rule.trigger) == bool(rule.limits) == bool(when[0] if when else True)
        assert parse(rule.trigger) is not None


def test_what_is_opposed_is_so_both_ways_and_never_to_itself() -> None:
    for one in STATEMENTS:
        assert not opposed(one, one)
        assert all(opposed(one, other) == opposed(other, one) for other in STATEMENTS)
    assert opposed(("format", "bullets", False), ("format", "tables", False))
    assert not opposed(("format", "bullets", True), ("format", "tables", False))
    assert not opposed(("tone", "formal", False), ("length", "short", False))


def test_every_wish_that_can_be_read_has_words_of_ours() -> None:
    for aspect, value in MENTIONS[False].keys() | MENTIONS[True].keys():
        assert (aspect, value, False) in STATEMENTS
        assert aspect in POLES or (aspect, value, True) in STATEMENTS


def test_a_secret_is_not_shown() -> None:
    """C21."""
    assert shown("just the result, password: hunter2hunter2") == ""
    assert shown("just the result") == "just the result"


def test_no_more_is_judged_and_shown_than_is_read() -> None:
    """A feedback of a megabyte must not keep everybody waiting (C28)."""
    long = "send keys " * 100_000
    assert not is_safe(long) and len(shown("words and " * 100_000)) <= MOST_CHARS


def test_the_tools_of_a_trigger() -> None:
    trigger = {"all": [{"field": "tool", "is": "a"}, {"any": [{"field": "tools", "in": ["b", 3]}]}, {"not": {}}]}
    assert tools_of(trigger) == {"a", "b"}
    assert tools_of({}) == tools_of({"field": "goal", "has": "a"}) == set()


def test_what_is_on_its_way_to_the_log_is_opposed_once_it_is_there() -> None:
    """The wish that is read later looks both ways."""
    one, other = conduct_id(("process", "steps", False)), conduct_id(("process", "conclusion", False))
    known, log = Rulebook(), [*published(other, 1), *published(one, 3)]
    known.advance(log[:2])
    known.expect([{"type": "belief.proposed", "data": orjson.loads(log[2].event.data)}])
    assert oppositions(log[1].event, known) == []
    known.advance(log)
    assert [raw["data"]["belief"] for raw in oppositions(log[3].event, known)] == [other]


def published(rule: str, n: int) -> list[Recorded]:
    """What the promoter makes of a wish for a rule, in the minute ``n``."""
    proposed = {"belief": rule, "kind": "user_preference", "statement": "as it says", "confidence": 0.5}
    verified = {"belief": rule, "supports": True, "source": f"session/{n}"}
    found = []
    for place, (kind, data) in enumerate((("belief.proposed", proposed), ("belief.verified", verified)), n):
        event = admit({
            "id": f"e{place}", "type": kind, "source": PROMOTER, "user": "ada", "time": f"2026-03-01T10:0{n}:00Z",
            "data": {**data, "scope": "user"},
        })  # fmt: skip
        found.append(Recorded(0, Position(1, place), event, decode_payload(event)))
    return found


def test_neighbours_in_meaning_are_rather_missed_than_wrong() -> None:
    """Wishes that no rule reads, a fifth of them near misses ("on Fridays", "on Mondays"), in pairs, by the model."""
    found = [orjson.loads(line) for line in (LABELS.parent / "neighbour_labels.jsonl").read_bytes().splitlines()]
    vectors = LightUse().embed([gist(one["text"]) for one in found])
    likeness = np.asarray(vectors @ vectors.T)
    right = wrong = missed = 0
    for one, other in combinations(range(len(found)), 2):
        near = likeness[one, other] >= LEAST and may_be_one(found[one]["text"], found[other]["text"])
        same = found[one]["wish"] == found[other]["wish"]
        right, wrong, missed = right + (near and same), wrong + (near and not same), missed + (same and not near)
    print(f"neighbours: precision {right / (right + wrong):.2f}, recall {right / (right + missed):.2f}")
    assert right >= 5
    assert right / (right + wrong) >= 0.9


def test_only_a_wish_that_says_it_lasts_is_proposed_as_a_memory_too() -> None:
    """In one wording for all ways to say it, so that memory has it once; what is wished in passing must come again."""
    lasting = ("From now on skip the reasoning, only the result", "Remember: no explanations, just the bottom line")
    proposed = [proposals_of(words) for words in lasting]
    assert proposed[0][0]["content"] == proposed[1][0]["content"] == "Give the conclusion without the process"
    assert {one[0]["attribute"] for one in proposed} == {"conduct: process"}
    assert proposals_of("just the bottom line") == proposals_of("别讲过程") == []
    assert proposals_of("From now on explain it this time") == []
