"""A tool's own baseline: whether it failed more than it always does.

Some tools fail often and nobody minds: a search that finds nothing, a test that is red until it is green. So failures
are held against the tool's own past. If it were as ever, the number of failures among these calls would follow the
binomial distribution of its baseline rate; they are *above* the baseline when so many or more would come by chance in
fewer than one of twenty cases (the customary 5 % of a one-sided exact binomial test).

The rate is estimated as (failed + 1/2) / (calls + 1): Jeffreys' prior, so that a short past is no proof that a tool
never fails. Without any past the rate is 1/2, and only what fails nearly always is above it. Beyond 10,000 calls
the normal distribution stands for the binomial one.
"""

from __future__ import annotations

from math import erfc, exp, lgamma, log, sqrt

BY_CHANCE = 0.05
MANY_CALLS = 10_000


def above_baseline(failed: int, calls: int, base_failed: int, base_calls: int) -> bool:
    """Whether ``failed`` of ``calls`` is more than a tool does that failed ``base_failed`` of ``base_calls`` times.

    The baseline is the tool's calls without the ones that are judged.

    >>> above_baseline(2, 2, 1, 40), above_baseline(2, 2, 20, 40), above_baseline(0, 9, 0, 40)
    (True, False, False)
    """
    rate = (base_failed + 0.5) / (base_calls + 1)
    if failed <= 0 or failed <= calls * rate:
        return False
    return _tail(failed, calls, rate) < BY_CHANCE


def _tail(least: int, of: int, rate: float) -> float:
    """Probability of at least ``least`` among ``of``, for a number above the mean: its terms fall from the first on.

    Summing ends when what is left is nothing, or the sum is no small chance any more.
    """
    if of > MANY_CALLS:
        return erfc((least - 0.5 - of * rate) / sqrt(2 * of * rate * (1 - rate))) / 2
    ways = lgamma(of + 1) - lgamma(least + 1) - lgamma(of - least + 1)
    term = exp(ways + least * log(rate) + (of - least) * log(1 - rate))
    total, odds = 0.0, rate / (1 - rate)
    for number in range(least, of + 1):
        total += term
        if total >= BY_CHANCE or term <= total * 1e-12:
            break
        term *= (of - number) / (number + 1) * odds
    return total
