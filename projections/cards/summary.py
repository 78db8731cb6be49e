"""What a card says, made of its facts: JSON as cells and compact tables, prose by its telling sentences. No model.

Nothing is written that the facts do not say: values stand whole or not at all, in their own spelling, with the names
of their fields (of a table once). Rows and sentences that hold a value in use come first; when there is more than
``LIMIT`` allows, the rest follows in order, and ``…`` stands where something was left out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from events.types.thought import DecisionMade
from projections.cards import extract, layout
from projections.cards.reading.facts import Fact, spelled
from projections.cards.templates import PLAIN, Template

LIMIT = 800
"""Longest summary, in code points, but for values in use."""

LIMIT_IN_USE = 2_400
"""Longest summary in which rows and sentences with values in use take more room than ``LIMIT``, in code points."""

MAX_LEAF = 120
MAX_ALTERNATIVES = 12


def summarize(
    facts: Sequence[Fact], template: Template = PLAIN, used: Collection[str] = (), *, limit: int = LIMIT
) -> str:
    """The summary of what these facts say, in at most ``limit`` code points.

    ``used``: the values in use so far, in normal form; what holds them may take up to ``LIMIT_IN_USE``.
    """
    most = max(limit, LIMIT_IN_USE)
    if any(fact.field for fact in facts):
        return layout.render(facts, template, used, limit, most)
    texts = [fact.text for fact in facts]
    if not any(fact.record for fact in facts):  # an array of scalars, or one scalar
        return layout.listed(texts, used, limit, most)
    return extract.telling(texts, limit, used=used, most=most, first=template.prose)


def of_decision(payload: DecisionMade) -> str:
    """A decision in one paragraph: what was chosen, over what, and why."""
    text = f"{payload.question}: {payload.chosen}" if payload.question else payload.chosen
    if payload.alternatives:
        others = "; ".join(
            extract.shortened(spelled(item), MAX_LEAF) for item in payload.alternatives[:MAX_ALTERNATIVES]
        )
        text += f" (rather than {others})"
    return extract.shortened(f"{text} — {payload.rationale}" if payload.rationale else text, LIMIT)


def message_text(content: Any) -> str:
    """The text of a message: itself, or its text parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = [part.get("text", "") if isinstance(part, dict) else part for part in content]
    return "\n".join(text for text in texts if isinstance(text, str) and text)
