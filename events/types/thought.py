"""What was said, decided, noted and computed."""

from __future__ import annotations

from typing import Literal

from events.types.base import Cost, Count, JsonValue, NonEmpty, Payload, Seconds, Summand


class MessageAdded(Payload, frozen=True, kw_only=True):
    """A turn of the conversation. ``content`` is text or a list of content parts."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: JsonValue = None
    name: str = ""
    call_id: str = ""


class DecisionMade(Payload, frozen=True, kw_only=True):
    """A choice, what else was possible, and why."""

    chosen: NonEmpty
    question: str = ""
    alternatives: list[JsonValue] = []
    rationale: str = ""
    based_on: list[str] = []


class NoteWritten(Payload, frozen=True, kw_only=True):
    """A keyed note of the task. With ``expected_version`` a writer that saw an older one is told, never overwritten."""

    key: NonEmpty
    content: JsonValue
    expected_version: Count | None = None
    category: str = ""
    ttl_s: Seconds | None = None


class ModelResponded(Payload, frozen=True, kw_only=True):
    """A model answered; costs are in ``currency`` units."""

    model: str = ""
    tokens_in: Summand = 0
    tokens_out: Summand = 0
    cost: Cost = 0.0
    currency: str = "USD"
    latency_ms: float | None = None


class CardSummarized(Payload, frozen=True, kw_only=True):
    """A reactor's model summarised a memory card; an empty summary: none of its answers held.

    ``calls`` were made for it, which took so many tokens, cost and time together.
    """

    card: NonEmpty
    summary: str
    model: str = ""
    calls: Count = 0
    tokens_in: Summand = 0
    tokens_out: Summand = 0
    cost: Cost = 0.0
    latency_ms: float = 0.0


class ConversationRead(Payload, frozen=True, kw_only=True):
    """A reactor's model read a user's message for what is worth remembering: ``found``, each content and kind.

    ``understood`` is False where no answer could be used: rules read the message then. ``calls`` were made for it.
    """

    message: NonEmpty
    found: list[JsonValue] = []
    understood: bool = True
    model: str = ""
    calls: Count = 0
    tokens_in: Summand = 0
    tokens_out: Summand = 0
    cost: Cost = 0.0
    latency_ms: float = 0.0


class CardInvalidated(Payload, frozen=True, kw_only=True):
    """A memory card does not hold; the event belongs to the card's task."""

    card: NonEmpty
    reason: str = ""
    by: str = ""


class CardRestored(Payload, frozen=True, kw_only=True):
    """An invalidated, superseded or expired memory card holds again."""

    card: NonEmpty
    reason: str = ""
    by: str = ""
