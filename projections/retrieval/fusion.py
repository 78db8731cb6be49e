"""One relevance from several signals, without one drowning the others and without saturating.

A signal is a score for each document, higher is better, of any scale: keyword scores may reach 40 where cosines end at
1. Each is divided by the best that it gives to any document for this query, so that the order within it stays exactly
as it is and the best of each counts the same. Where whatever is compared has some likeness, as cosines have (a mean of
0.15 with one model, of 0.75 with another), it is what stands out that tells: the mean of all documents then counts
``BACKGROUND`` of the best, and scores between go in a straight line, so that the fusion is the same whichever model
made them. And where the best stands out no further than the best of as many numbers drawn at random would, the signal
counts the less, the more there are and the more another one has to say: so does a model that does not know the
language. A floor says which best is still weak for a signal: below it, the signal
says that nothing fits, and does not speak as loudly as if something did. The relevance is the mean of the signals by
weight, within 0..1; it reaches 1 only where one document is the best by every signal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]


BACKGROUND = 0.25
"""What a score that is the mean of all counts, in parts of the best: about what it is with the default model anyway."""
CHANCE = (0.7, 0.9)
"""How far the best stands above the mean when it does so by chance, in standard deviations times sqrt(2 ln n).

That is the bound on the expected best of n normal numbers, who reach 0.7 (n = 10) to 0.9 (n = 10,000) of it. Signals
that stand out less than the first count least, more than the second fully.
"""
DOUBT = 0.9
"""How much less a signal counts, at most, that stands out no further than by chance."""
FEW = 30
"""Documents of which the spread tells half as much as that of very many."""
DIGITS = 6
"""Digits of a mean that count, so that it does not depend on the order of what it is the mean of."""


class Signal(NamedTuple):
    """``scores``: ``float64[n]``. ``known``: ``bool[n]``, where it can tell at all; None: everywhere.

    ``rise``: how far the best must stand out from the mean to be set against it in full, in the signal's own measure.
    0, for a signal that is 0 for what does not fit: the mean means nothing.
    """

    scores: Scores
    weight: float
    floor: float = 0.0
    known: NDArray[np.bool_] | None = None
    rise: float = 0.0


def fuse(signals: Mapping[str, Signal], size: int) -> dict[str, Scores]:
    """What each signal adds to the relevance of each of ``size`` documents; their sum is the relevance.

    Where a signal cannot tell of a document, the others share its weight there. Scores that are negative or not finite
    count as 0. Without signals there is nothing to add.
    """
    parts = {name: _unit(signal) for name, signal in signals.items()}
    bests = {name: float(part.max(initial=0.0)) for name, part in parts.items()}
    weights = {}
    for name, signal in signals.items():
        others = max((best for other, best in bests.items() if other != name), default=0.0)
        weights[name] = _weights(signal, size) * (1 - others * _doubt(signal))
    total = np.sum(list(weights.values()), axis=0) if weights else np.zeros(size)
    scale = np.divide(1.0, total, out=np.zeros(size), where=total > 0)
    return {name: parts[name] * weights[name] * scale for name in signals}


def _unit(signal: Signal) -> Scores:
    scores = np.nan_to_num(signal.scores.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0).clip(min=0.0)
    best = float(scores.max(initial=0.0))
    if best <= 0:
        return scores
    heard = min(best / signal.floor, 1.0) if signal.floor > 0 else 1.0
    return heard * (_standing_out(scores, best, signal) if signal.rise > 0 else scores / best)


def _doubt(signal: Signal) -> float:
    """How much less a signal counts, 0..``DOUBT``, since its best may be so by chance."""
    there = signal.scores if signal.known is None else signal.scores[signal.known]
    if signal.rise <= 0 or len(there) < 2:
        return 0.0
    chance = float(there.std()) * math.sqrt(2 * math.log(len(there)))
    above = (float(there.max()) - float(there.mean())) / chance if chance > 0 else 0.0
    low, high = CHANCE
    certain = min(max((above - low) / (high - low), 0.0), 1.0)
    return round(DOUBT * (1 - certain) * len(there) / (len(there) + FEW), DIGITS)


def _standing_out(scores: Scores, best: float, signal: Signal) -> Scores:
    """Scores as parts of the best: two straight lines, from 0 to the mean and from there to the best, which is 1."""
    there = scores if signal.known is None else scores[signal.known]
    mean = min(round(float(there.mean()), DIGITS), best)
    fall = (1 - BACKGROUND) / max(best - mean, signal.rise)
    at_mean = 1 - fall * (best - mean)
    below = scores * (at_mean / mean) if mean > 0 else scores
    return np.where(scores >= mean, 1 - fall * (best - scores), below)


def _weights(signal: Signal, size: int) -> Scores:
    weights = np.full(size, signal.weight)
    if signal.known is not None:
        weights[~signal.known] = 0.0
    return weights
