"""What several calls of a model took together, as events record it."""

from __future__ import annotations

from dataclasses import dataclass

from services.models.client import Answer


@dataclass
class Spent:
    """Calls that were answered, and their tokens, cost and time."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0
    latency_ms: float = 0.0

    def count(self, answer: Answer) -> None:
        """One more."""
        self.calls += 1
        self.tokens_in += answer.tokens_in
        self.tokens_out += answer.tokens_out
        self.cost += answer.cost
        self.latency_ms = round(self.latency_ms + answer.latency_ms, 1)
