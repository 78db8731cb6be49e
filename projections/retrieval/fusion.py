"""One relevance from several signals, without one drowning the others and without saturating.

A signal is a score for each document, higher is better, of any scale: keyword scores may reach 40 where cosines end at
1. Each is divided by the best that it gives to any document for this query, so that the order within it stays exactly
as it is and the best of each counts the same. A floor says which best is still weak for a signal: below it, the signal
says that nothing fits, and does not speak as loudly as if something did. The relevance is the mean of the signals by
weight, within 0..1; it reaches 1 only where one document is the best by every signal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]


class Signal(NamedTuple):
    """``scores``: ``float64[n]``. ``known``: ``bool[n]``, where it can tell at all; None: everywhere."""

    scores: Scores
    weight: float
    floor: float = 0.0
    known: NDArray[np.bool_] | None = None


def fuse(signals: Mapping[str, Signal], size: int) -> dict[str, Scores]:
    """What each signal adds to the relevance of each of ``size`` documents; their sum is the relevance.

    Where a signal cannot tell of a document, the others share its weight there. Scores that are negative or not finite
    count as 0. Without signals there is nothing to add.
    """
    parts = {name: _unit(signal) for name, signal in signals.items()}
    weights = {name: _weights(signal, size) for name, signal in signals.items()}
    total = np.sum(list(weights.values()), axis=0) if weights else np.zeros(size)
    scale = np.divide(1.0, total, out=np.zeros(size), where=total > 0)
    return {name: parts[name] * weights[name] * scale for name in signals}


def _unit(signal: Signal) -> Scores:
    scores = np.nan_to_num(signal.scores.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0).clip(min=0.0)
    best = max(float(scores.max(initial=0.0)), signal.floor)
    return scores / best if best > 0 else scores


def _weights(signal: Signal, size: int) -> Scores:
    weights = np.full(size, signal.weight)
    if signal.known is not None:
        weights[~signal.known] = 0.0
    return weights
