"""What folding beliefs costs: CPU of a core, on experiences of runs, against just decoding the same events.

Experiences are those that hindsight makes of the booking conversations of ``benchmarks.cards``, or of any recorded
trajectories (``--data FILE --format chat``), repeated as other runs of the same agent on one day after another until
there are enough: half of them whole sheets of 50 users, half what the agent's scope is given. They are decoded, grouped
and folded by the engine's own code in batches of 500, rows kept in memory, nothing stored. ``--long`` compares the last
tenth of a long history with its first: the cost of an event must not grow with what a belief stands on.
Run: ``python -m benchmarks.beliefs``.
"""

from __future__ import annotations

import argparse
import gc
import time
import tracemalloc
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import cycle, groupby, islice
from pathlib import Path
from typing import Any

from benchmarks.cards import Decoding, conversations, recorded_conversations
from events.archive.reader import Archived
from events.door import admit
from events.event import Event, Position, Recorded
from events.registry import decode_payload
from projections.beliefs import BELIEFS_PROJECTION
from projections.engine.cache import RowCache
from projections.engine.fold import Fold
from projections.engine.shapes import RowKey, shapes_of
from services.importers.registry import FORMATS
from services.reactors.hindsight import ended_run, experience_of

ROUNDS, BATCH, RUNS_A_DAY = 3, 500, 100
_START = datetime(2026, 1, 1, tzinfo=UTC)


def experiences(events: Iterable[Event], count: int) -> Iterator[Event]:
    """``count`` experiences: what hindsight makes of these runs, again and again under other names."""
    found = []
    for _, run in groupby(events, key=lambda event: event.run):
        ended = ended_run([Recorded(0, Position(1, n), one, decode_payload(one)) for n, one in enumerate(run)])
        if ended is not None:
            found.append(experience_of(ended, user="u", agent="desk"))
    for number, levels in enumerate(islice(cycle(found), count)):
        moment = (_START + timedelta(days=number // RUNS_A_DAY)).isoformat()
        for level, data in levels.items():
            names = {"agent": "desk"} if level == "agent" else {"agent": "desk", "user": f"u{number % 50}"}
            raw = {"id": f"e{number}-{level}", "type": "experience.recorded", "time": moment, **names}
            yield admit({**raw, "data": {**data, "run": f"r{number}"}})


def fold(log: Sequence[Any], cache: RowCache) -> float:
    """Fold them on the rows of the cache; CPU seconds."""
    shapes = shapes_of(BELIEFS_PROJECTION)
    started = time.process_time()
    for start in range(0, len(log), BATCH):
        batch: Sequence[Archived] = log[start : start + BATCH]
        folded = Fold(BELIEFS_PROJECTION, shapes, cache, _nothing_to_load).run(batch)
        assert not folded.letters, folded.letters[0]
        cache.learn(folded.rows)
    return time.process_time() - started


def decode(log: Sequence[Decoding]) -> float:
    """Only decode them; CPU seconds."""
    started = time.process_time()
    assert all(one.recorded().payload is not None for one in log)
    return time.process_time() - started


def _nothing_to_load(names: Collection[RowKey]) -> None:
    raise AssertionError(f"every row is in memory, and {list(names)[:3]} were asked for")


def _cache() -> RowCache:
    return RowCache(10**9, complete=True)


def _long(log: Sequence[Decoding]) -> None:
    cache, tenth = _cache(), len(log) // 10
    spent = [fold(log[start : start + tenth], cache) for start in range(0, tenth * 10, tenth)]
    print(f"beliefs, last tenth of {len(log):,} events against the first: {spent[-1] / spent[0]:.2f} x")


def main() -> None:
    """Print events a second of a core, and the ratio to decoding."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--data", type=Path, help="recorded trajectories instead")
    parser.add_argument("--format", default="chat", choices=sorted(FORMATS), help="their format")
    parser.add_argument("--long", action="store_true", help="compare the end of the history with its beginning")
    parser.add_argument("--memory", action="store_true", help="tell the memory of all rows")
    told = parser.parse_args()
    runs = conversations(2_000) if told.data is None else recorded_conversations(told.data, told.format)
    events = experiences(runs, told.events // 2)
    log = [Decoding(0, Position(1, n), event, event.type) for n, event in enumerate(events)]
    gc.disable()
    if told.long:
        _long(log)
        return
    if told.memory:
        tracemalloc.start()
    rounds = [(fold(log, cache := _cache()), decode(log)) for _ in range(1 if told.memory else ROUNDS)]
    mine, theirs = min(mine for mine, _ in rounds), min(theirs for _, theirs in rounds)
    size = sum(len(one.at.data) for one in log) // len(log)
    if told.memory:
        print(f"beliefs, {len(cache):,} rows of {len(log):,} events in {tracemalloc.get_traced_memory()[0] >> 20} MB")
        return
    print(
        f"beliefs, {len(log):,} experiences of {size} B: {len(log) / mine:,.0f} events/s a core, "
        f"decoding alone {len(log) / theirs:,.0f}, ratio {theirs / mine:.3f}"
    )


if __name__ == "__main__":
    main()
