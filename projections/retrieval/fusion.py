"""One relevance from several signals, without one drowning the others and without saturating.

A signal is a score for each document, higher is better, of any scale: keyword scores may reach 40 where cosines end at
1. Each is divided by the best that it gives to any document for this query, so that the order within it stays exactly
as it is and the best of each counts the same. A floor says which best is still weak for a signal: below it, the signal
says that nothing fits, and does not speak as loudly as if something did.

Cosines find some likeness in whatever is compared, on average 0.15 with one model, 0.75 with another. Of such a signal
(``rise``) it is what stands out that tells: the mean of all documents counts ``BACKGROUND`` of the best, and what lies
between goes in a straight line, so that the fusion is the same whichever model it is. Where the best stands out no
further than by chance, as with a model that does not know the language, the signal counts less: the more documents
there are, and as far as another signal has something to say.

The relevance is the mean of the signals by weight, within 0..1; it reaches 1 only where one document is the best by
every signal.
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
SPEAKS = 0.5
"""The best of another signal, in parts of one that is heard fully, from which on doubts count in full."""
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
    clean = {name: _clean(signal) for name, signal in signals.items()}
    parts = {name: _unit(clean[name], signal) for name, signal in signals.items()}
    bests = {name: float(part.max(initial=0.0)) for name, part in parts.items()}
    weights = {}
    for name, signal in signals.items():
        others = max((best for other, best in bests.items() if other != name), default=0.0)
        doubt = _doubt(_known(clean[name], signal)) if signal.rise > 0 else 0.0
        weights[name] = _weights(signal, size) * (1 - min(others / SPEAKS, 1.0) * doubt)
    total = np.sum(list(weights.values()), axis=0) if weights else np.zeros(size)
    scale = np.divide(1.0, total, out=np.zeros(size), where=total > 0)
    return {name: parts[name] * weights[name] * scale for name in signals}


def _clean(signal: Signal) -> Scores:
    scores = np.nan_to_num(signal.scores.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0).clip(min=0.0)
    return scores if signal.known is None else np.where(signal.known, scores, 0.0)


def _known(scores: Scores, signal: Signal) -> Scores:
    return scores if signal.known is None else scores[signal.known]


def _unit(scores: Scores, signal: Signal) -> Scores:
    best = float(scores.max(initial=0.0))
    if best <= 0:
        return scores
    heard = min(best / signal.floor, 1.0) if signal.floor > 0 else 1.0
    if signal.rise <= 0:
        return heard * scores / best
    mean = min(round(float(_known(scores, signal).mean()), DIGITS), best)
    return heard * _standing_out(scores, best, mean, signal.rise)


def _standing_out(scores: Scores, best: float, mean: float, rise: float) -> Scores:
    """Scores as parts of the best: two straight lines, from 0 to the mean and from there to the best, which is 1."""
    fall = (1 - BACKGROUND) / max(best - mean, rise)
    at_mean = 1 - fall * (best - mean)
    below = scores * (at_mean / mean) if mean > 0 else scores
    return np.where(scores >= mean, 1 - fall * (best - scores), below)


def _doubt(scores: Scores) -> float:
    """How much less a signal counts, 0..``DOUBT``, since its best may be so by chance."""
    count = len(scores)
    if count < 2:
        return 0.0
    chance = float(scores.std()) * math.sqrt(2 * math.log(count))
    above = (float(scores.max()) - float(scores.mean())) / chance if chance > 0 else 0.0
    low, high = CHANCE
    certain = min(max((above - low) / (high - low), 0.0), 1.0)
    return round(DOUBT * (1 - certain) * count / (count + FEW), DIGITS)


def _weights(signal: Signal, size: int) -> Scores:
    weights = np.full(size, signal.weight)
    if signal.known is not None:
        weights[~signal.known] = 0.0
    return weights
