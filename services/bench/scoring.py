"""How good predicted probabilities are: ranking (AUC), error (Brier), and whether they mean what they say. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import sqrt
from typing import NamedTuple

Z95 = 1.96
"""Standard errors on each side of a 95 % interval."""


class Predicted(NamedTuple):
    """A probability, and what came."""

    probability: float
    came: bool


class Auc(NamedTuple):
    """Area under the ROC curve with its 95 % interval; 0.5 is chance."""

    value: float
    low: float
    high: float


def auc(predicted: Sequence[Predicted]) -> Auc | None:
    """How often what came had the higher probability, ties by half; None unless something came and something did not.

    The interval is Hanley and McNeil's (1982), cut at 0 and 1.
    """
    came = [one.probability for one in predicted if one.came]
    other = [one.probability for one in predicted if not one.came]
    if not came or not other:
        return None
    wins = sum((high > low) + (high == low) / 2 for high in came for low in other)
    area = wins / (len(came) * len(other))
    q1, q2 = area / (2 - area), 2 * area * area / (1 + area)
    spread = area * (1 - area) + (len(came) - 1) * (q1 - area**2) + (len(other) - 1) * (q2 - area**2)
    margin = Z95 * sqrt(max(0.0, spread) / (len(came) * len(other)))
    return Auc(area, max(0.0, area - margin), min(1.0, area + margin))


def brier(predicted: Sequence[Predicted]) -> float:
    """Mean squared distance of the probabilities from what came; lower is better."""
    return sum((one.probability - one.came) ** 2 for one in predicted) / len(predicted)


class Bin(NamedTuple):
    """Predictions within ``low`` (included) and ``high``: how many, their mean, and the share that came."""

    low: float
    high: float
    number: int
    mean: float
    came: float


def reliability(predicted: Sequence[Predicted], edges: Sequence[float]) -> list[Bin]:
    """Predictions by bins between ``edges``, the last of which is within its bin; empty bins are left out."""
    bins = []
    for low, high in pairwise(edges):
        inside = [one for one in predicted if low <= one.probability < high or one.probability == high == edges[-1]]
        if inside:
            mean = sum(one.probability for one in inside) / len(inside)
            bins.append(Bin(low, high, len(inside), mean, sum(one.came for one in inside) / len(inside)))
    return bins
