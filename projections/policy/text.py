"""A policy as text for a system prompt: a line for each rule, then, fenced, what to confirm first.

Rules are told as they stand. What came from tools, such as the cause of a failure, and a rule that reads like an order
against the reader's people, stands in a fence: data, never an instruction (C39). The text is the same for the same
selection and room; what has no room is counted in its last line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import ceil
from typing import NamedTuple, TypeVar

import regex

from projections.belief.words import cause_words
from projections.bounds import clip
from projections.cards.secrecy.secrets import masked_text
from projections.context.cuts import cut
from projections.context.fences import defused, fence
from projections.context.rendering import one_line
from projections.context.tokens import count, weigh
from projections.policy.selection import REMEMBERED, Document, Rule, Selection

T = TypeVar("T")

RULES = "Rules, the user's own first:"
NOTICES = "Went wrong before, confirm first:"
NOTICES_SHARE = 0.25
"""Most of the room that notices take, so that many of them leave room for rules."""

_LONGEST = 1_000
"""Characters of a line."""
_HIDING = regex.compile(
    r"[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f"
    r"\u200b\u2060-\u2064\ufeff\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)
"""What turns text around, or is there and not seen: whoever reads a policy must read what its model does."""
_LINE = weigh("\n")
_HEAD = weigh(RULES) + 2 * _LINE
_NOTICES_FRAME = count(f"{NOTICES}\n{fence('notices', '')}\n")
_RULES_FRAME = count(fence("rules", "") + "\n")


class Told(NamedTuple):
    """A policy within its room: the text, its tokens, what it tells, and how many of each had no room.

    ``more``: there may be more rules, and more notices, than were ever looked at.
    """

    text: str
    tokens: int
    rules: tuple[Rule, ...]
    notices: tuple[Document, ...]
    cut_rules: int
    cut_notices: int
    more: tuple[bool, bool] = (False, False)


def tell(selection: Selection, tokens: int) -> Told:
    """The selection as text of at most ``tokens`` tokens, whole lines; of a first rule that has no room, its head."""
    told = _told(selection, tokens)
    if told.cut_rules or told.cut_notices or any(told.more):
        shorter = _told(selection, tokens - count(_note(told)) - 2)
        text = f"{shorter.text}\n{_note(shorter)}"
        if shorter.text and (size := count(text)) <= tokens and (_tells_one(shorter) or not told.rules):
            return shorter._replace(text=text, tokens=size)
        # so little room that the note would take it all
    return told._replace(tokens=count(told.text))


def _tells_one(told: Told) -> bool:
    """Whether it tells a rule whole: rather more of a first rule than the number of those that have no room."""
    return bool(told.rules) and _line(told.rules[0]) in told.text.split("\n")


def told_in(selection: Selection, text: str) -> list[Rule]:
    """The rules whose lines a text holds whole."""
    lines = set(text.split("\n"))
    return [rule for rule in selection.rules if _line(rule) in lines]


def standing_tokens(selection: Selection) -> int:
    """What the user's own standing preferences take: room that they are always given."""
    standing = [rule for rule in selection.rules if rule.rank == "standing" and not rule.doubtful]
    return ceil(_HEAD + sum(_size(_line(rule)) for rule in standing)) if standing else 0


def _told(selection: Selection, tokens: int) -> Told:
    plain = [rule for rule in selection.rules if not rule.doubtful]
    first = [rule for rule in plain if rule.rank != "learned"]
    told, left = _fitting(first, _line, tokens - _HEAD)
    lacking = len(told) < len(first)
    if plain and not told and (lacking or _fitting(plain[:1], _line, left)[0] == []):
        return _head_of(plain[0], selection, tokens)
    noted, left = _framed(selection.notices, notice_line, left, min(left, tokens * NOTICES_SHARE), _NOTICES_FRAME)
    odd: list[Rule] = []
    if not lacking:
        more, left = _fitting(plain[len(first) :], _line, left)
        told += more
        odd, left = _framed([rule for rule in selection.rules if rule.doubtful], _line, left, left, _RULES_FRAME)
    lines = [RULES, *map(_line, told)] if told else []
    lines += [NOTICES, fence("notices", "\n".join(map(notice_line, noted)))] if noted else []
    lines += [fence("rules", "\n".join(map(_line, odd)))] if odd else []
    return _counted("\n".join(lines), [*told, *odd], noted, selection)


def _head_of(rule: Rule, selection: Selection, tokens: int) -> Told:
    """As much of the first rule as there is room for, and nothing else."""
    head = cut(_line(rule), int(tokens - _HEAD))
    return _counted(f"{RULES}\n{head}", [rule], [], selection) if head else _counted("", [], [], selection)


def _counted(text: str, rules: Sequence[Rule], notices: Sequence[Document], selection: Selection) -> Told:
    """Its tokens are not counted yet."""
    cut_rules, cut_notices = len(selection.rules) - len(rules), len(selection.notices) - len(notices)
    return Told(text, 0, tuple(rules), tuple(notices), cut_rules, cut_notices, selection.more)


def _fitting(items: Sequence[T], say: Callable[[T], str], room: float) -> tuple[list[T], float]:
    """The items whose lines fit whole, in their order; and what room is left."""
    fitting: list[T] = []
    for item in items:
        size = _size(say(item))
        if size <= room:
            room -= size
            fitting.append(item)
    return fitting, room


def _framed(items: Sequence[T], say: Callable[[T], str], left: float, most: float, frame: int) -> tuple[list[T], float]:
    """The same for lines that stand in a frame of so many tokens, of which there is none without a line."""
    fitting, spare = _fitting(items, say, most - frame)
    return (fitting, left - most + spare) if fitting else ([], left)


@lru_cache(maxsize=REMEMBERED)
def _size(line: str) -> float:
    return weigh(line) + _LINE


def _line(rule: Rule) -> str:
    return _plain(rule.document["statement"])


def notice_line(notice: Document) -> str:
    """A notice on one line: the tool, what happened, in how many contexts."""
    if notice.get("kind") == "caution":
        return _plain(f"{notice['tool']}: {notice['notice'].removesuffix('; confirm first')}")
    contexts = notice.get("contexts", 0)
    tool = notice.get("tool", "")
    said = ": ".join(filter(None, (tool, cause_words(tool, notice.get("cause", "")))))
    return _plain(f"{said or 'a run failed'}{f' (in {contexts} contexts)' if contexts > 1 else ''}")


@lru_cache(maxsize=REMEMBERED)
def _plain(text: str) -> str:
    return f"- {defused(one_line(clip(masked_text(_HIDING.sub('', text).strip()), _LONGEST)))}"


def _note(told: Told) -> str:
    named = []
    for number, word, more in zip((told.cut_rules, told.cut_notices), ("rule", "notice"), told.more, strict=True):
        if number or more:
            named.append(f"{number}{' or more' * more} {word}{'s' * (number != 1)}")
    return f"(no room for {' and '.join(named)})"
