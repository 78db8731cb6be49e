"""What folding memory cards costs: CPU of a core, on conversations with tools, against just decoding the same events.

Events are booking conversations of our own making (profiles, searches and bookings of 0.3 to 2 KB of JSON, what users
and the agent say), or any recorded trajectories (``--data FILE --format chat``). They are decoded, grouped and folded
by the engine's own code in batches of 500, rows kept in memory, nothing stored; without garbage collection, as in the
processes of a rebuild. Each round is a process of its own, which has seen nothing yet; the best of several is taken.
Run: ``python -m benchmarks.cards``.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from events.archive.reader import Archived
from events.door import admit
from events.event import Event, Position, Recorded
from events.registry import decode_payload
from projections.engine.cache import RowCache
from projections.engine.fold import Fold
from projections.engine.shapes import RowKey, shapes_of
from projections.memory_cards import MEMORY_CARDS
from services.importers.registry import FORMATS, read_file
from services.importers.run import ImportedRun

ROUNDS, BATCH = 5, 500
_CITIES = ("Lisbon", "Oslo", "Kyoto", "Quito", "Accra", "Perth", "Turin", "Galway")
_NAMES = ("Ida Berg", "Noor Khan", "Leo Marsh", "Ana Sousa", "Yuki Mori", "Tom Okoye")


class Decoding(NamedTuple):
    """An event of the log as the fold asks for it; decoded anew each time."""

    partition: int
    position: Position
    at: Event
    type: str
    verdict: str = "effective"

    def event(self) -> Event:
        """The envelope."""
        return self.at

    def recorded(self) -> Recorded:
        """The event with its payload."""
        return Recorded(self.partition, self.position, self.at, decode_payload(self.at))


def conversations(count: int) -> Iterator[Event]:
    """``count`` events of booking conversations, one after another."""
    dice = Random(7)
    number = made = 0
    while made < count:
        number += 1
        for index, (kind, data) in enumerate(_conversation(dice, number)):
            raw = {"id": f"e{number}-{index}", "type": kind, "task": f"t{number}", "run": f"r{number}", "data": data}
            yield admit({**raw, "agent": "desk", "user": f"u{number % 50}", "time": "2026-03-01T10:00:00Z"})
            made += 1
            if made == count:
                return


def _conversation(dice: Random, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
    start, end, who = dice.choice(_CITIES), dice.choice(_CITIES), dice.choice(_NAMES)
    user = f"{who.split()[0].lower()}_{number}_{dice.randrange(1000, 9999)}"
    yield "run.started", {"goal": f"a trip from {start} to {end}", "mode": "precise_planning"}
    yield (
        "message.added",
        {"role": "user", "content": f"Hi, I need to get from {start} to {end} on May {dice.randrange(10, 28)}."},
    )
    yield "message.added", {"role": "assistant", "content": "Gladly. May I have your user id?"}
    yield (
        "message.added",
        {"role": "user", "content": f"It is {user}, and I would rather not leave before 11 in the morning."},
    )
    yield from _called("c1", "get_profile", {"user_id": user}, _profile(dice, user, who))
    yield "message.added", {"role": "assistant", "content": f"Thank you, {who}. I look for connections. " * 4}
    trips = [_trip(dice, start, end) for _ in range(dice.randrange(3, 9))]
    yield from _called("c2", "search_trips", {"origin": start, "destination": end, "date": trips[0]["date"]}, trips)
    yield (
        "message.added",
        {"role": "assistant", "content": "".join(f"{t['trip_id']} at {t['leaves']}; " for t in trips)},
    )
    chosen = dice.choice(trips)
    yield "message.added", {"role": "user", "content": f"I take {chosen['trip_id']}, please, and pay by card."}
    wanted = {
        "user_id": user,
        "trip_id": chosen["trip_id"],
        "date": chosen["date"],
        "price": chosen["price"]["economy"],
    }
    yield from _called(
        "c3", "book_trip", wanted, {"booking_id": f"B{dice.randrange(10**6)}", **wanted, "status": "booked"}
    )
    yield "message.added", {"role": "assistant", "content": "It is booked. Is there anything else that I can do?"}
    yield "message.added", {"role": "user", "content": "No, that was all. Thank you very much!"}
    yield "run.terminated", {"reason": "end_turn"}


def _called(call: str, tool: str, arguments: Any, result: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "tool.called", {"call_id": call, "name": tool, "arguments": arguments, "side_effect": tool.startswith("book")}
    yield "tool.returned", {"call_id": call, "name": tool, "result": result}


def _profile(dice: Random, user: str, who: str) -> dict[str, Any]:
    cards = [f"card_{dice.randrange(10**6, 10**7)}" for _ in range(3)]
    return {
        "user_id": user, "name": {"first": who.split()[0], "last": who.split()[1]}, "email": f"{user}@example.com",
        "address": {"street": f"{dice.randrange(1, 999)} Harbour Road", "city": dice.choice(_CITIES), "zip": "99123"},
        "born": f"19{dice.randrange(50, 99)}-0{dice.randrange(1, 9)}-17", "membership": "silver",
        "payment_methods": {card: {"source": "card", "id": card, "last_four": card[-4:]} for card in cards},
    }  # fmt: skip


def _trip(dice: Random, start: str, end: str) -> dict[str, Any]:
    hour, price = dice.randrange(5, 20), dice.randrange(90, 400)
    return {
        "trip_id": f"TR{dice.randrange(100, 999)}", "origin": start, "destination": end,
        "date": "2026-05-20", "leaves": f"{hour:02}:30:00", "arrives": f"{hour + 3:02}:10:00", "status": "available",
        "seats": {"basic": dice.randrange(20), "economy": dice.randrange(20), "business": dice.randrange(20)},
        "price": {"basic": price, "economy": price + 51, "business": price * 3},
    }  # fmt: skip


def recorded_conversations(file: Path, format: str) -> Iterator[Event]:
    """The events of recorded trajectories."""
    for one in read_file(file, FORMATS[format]):
        if isinstance(one, ImportedRun):
            yield from (admit(raw) for raw in one.events)


def decode(log: Sequence[Decoding]) -> int:
    """Only decode the events that cards handle."""
    return sum(one.recorded().payload is not None for one in log if one.type in MEMORY_CARDS.handles)


def fold(log: Sequence[Any]) -> int:
    """Fold them; how many rows stand at the end."""
    shapes, cache = shapes_of(MEMORY_CARDS), RowCache(10**9, complete=True)
    for start in range(0, len(log), BATCH):
        batch: Sequence[Archived] = log[start : start + BATCH]
        folded = Fold(MEMORY_CARDS, shapes, cache, _nothing_to_load).run(batch)
        assert not folded.letters, folded.letters[0]
        cache.learn(folded.rows)
    return len(cache)


def _nothing_to_load(names: Collection[RowKey]) -> None:
    raise AssertionError(f"every row is in memory, and {list(names)[:3]} were asked for")


def seconds(work: Callable[[Sequence[Decoding]], int], log: Sequence[Decoding]) -> float:
    """CPU time of one round, in a process forked for it."""
    with get_context("fork").Pool(1, _hand_over, (log,)) as pool:
        return pool.apply(_round, (work,))


_log: list[Sequence[Decoding]] = []


def _hand_over(log: Sequence[Decoding]) -> None:
    _log.append(log)


def _round(work: Callable[[Sequence[Decoding]], int]) -> float:
    gc.disable()
    started = time.process_time()
    assert work(_log[0])
    return time.process_time() - started


def main() -> None:
    """Print events a second of a core, and the ratio to decoding."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=10_000, help="events of our own making")
    parser.add_argument("--data", type=Path, help="recorded trajectories instead")
    parser.add_argument("--format", default="chat", choices=sorted(FORMATS), help="their format")
    told = parser.parse_args()
    events = conversations(told.events) if told.data is None else recorded_conversations(told.data, told.format)
    log = [Decoding(0, Position(1, n), event, event.type) for n, event in enumerate(events)]
    rounds = [(seconds(fold, log), seconds(decode, log)) for _ in range(ROUNDS)]
    mine, theirs = min(mine for mine, _ in rounds), min(theirs for _, theirs in rounds)
    size = sum(len(one.at.data) for one in log) // len(log)
    print(
        f"cards, {len(log):,} events of {size} B: {len(log) / mine:,.0f} events/s a core, "
        f"decoding alone {len(log) / theirs:,.0f}, ratio {theirs / mine:.3f}"
    )


if __name__ == "__main__":
    main()
